"""A blocking client of jobs for all threads of a process, also after a fork: the sending side of the adapters to frameworks."""

import os
import threading
from collections.abc import Callable
from typing import TypeVar
from uuid import uuid4

from penstock.jobs.client import Jobs
from penstock.jobs.errors import NotFound, Unsupported
from penstock.protocol.beanstalk import Stats

T = TypeVar("T")


class SharedJobs:
    """One Jobs, and so one connection, that any thread may use. A forked process has a connection of its own."""

    def __init__(self, jobs: Jobs) -> None:
        self._jobs = jobs
        self._lock = threading.Lock()
        self._pid = os.getpid()

    def ask(self, request: Callable[[Jobs], T]) -> T:
        """Return the result of `request`, which may use the client until it returns. Raises JobsError."""
        if self._pid != os.getpid():  # a thread of the parent may have had the lock
            self._pid, self._lock = os.getpid(), threading.Lock()
        with self._lock:
            return request(self._jobs)

    def put_once(self, tube: str, body: bytes, priority: int, delay_s: float, ttr_s: float, key: str = "") -> None:
        """Put a job that is stored once although the put is tried again. `key`: as of put_unique. Raises JobsError."""
        key = key or str(uuid4())

        def put(jobs: Jobs) -> None:
            try:
                jobs.put_unique(key, body, priority, delay_s, ttr_s, tube)
            except Unsupported:  # the original beanstalkd
                jobs.put(body, priority, delay_s, ttr_s, tube)

        self.ask(put)

    def stats_tube(self, tube: str) -> Stats:
        """Return the statistics of a tube; {} if it does not exist. Raises JobsError."""
        try:
            return self.ask(lambda jobs: jobs.stats_tube(tube))
        except NotFound:
            return {}

    def clear(self, tube: str) -> int:
        """Delete the jobs of a tube that no worker has; return how many. Raises JobsError; Unsupported by beanstalkd."""
        try:
            return self.ask(lambda jobs: jobs.clear_tube(tube))
        except NotFound:
            return 0

    def close(self) -> None:
        """Close the connection; the next request connects again."""
        self.ask(Jobs.close)

"""Everything that a kombu connection sends: jobs, broadcasts, and requests about tubes.

An outlet may be called from any thread, and after a fork: each process gets connections of its own.
"""

import os
import threading
from collections.abc import Callable

from penstock.celery import names
from penstock.celery.address import BrokerUrl
from penstock.celery.envelope import Payload, delay_of, pack_job, priority_of
from penstock.client import Producer
from penstock.jobs import Jobs, JobsSettings
from penstock.jobs.shared import SharedJobs
from penstock.telemetry import JOBS, telemetry


class Outlet:
    """The sending side of one kombu connection."""

    def __init__(self, endpoint: BrokerUrl, wall: Callable[[], float]) -> None:
        self._endpoint = endpoint
        self._wall = wall  # s since the epoch
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._jobs = SharedJobs(self.new_jobs())
        self._producer: Producer | None = None

    def new_jobs(self) -> Jobs:
        """Return a client of jobs with the connection's settings."""
        endpoint = self._endpoint
        times = endpoint.connect_timeout_s, endpoint.timeout_s, endpoint.retry_s
        return Jobs(endpoint.jobs, JobsSettings(*times, telemetry=False))  # its spans are those of tasks

    def tube_of(self, queue: str) -> str:
        """Return the tube of a queue."""
        return names.tube_of(self._endpoint.prefix + queue)

    def put(self, queue: str, key: str, message: Payload) -> None:
        """Put the message into the queue's tube, once although it is tried again. Raises JobsError."""
        tracing = telemetry()
        if tracing is None:
            self._put(queue, key, message)
            return
        operation = tracing.send(JOBS, queue)
        message["headers"] = dict(operation.headers) | (message.get("headers") or {})
        try:
            self._put(queue, key, message)
        except BaseException as error:
            operation.end(error)
            raise
        operation.end()

    def _put(self, queue: str, key: str, message: Payload) -> None:
        body = pack_job(queue, self._endpoint.ttr_s, message)
        tube, priority, delay = self.tube_of(queue), priority_of(message), delay_of(message, self._wall())
        self._jobs.put_once(tube, body, priority, delay, self._endpoint.ttr_s, key)

    def ready_count(self, queue: str) -> int:
        """Return the number of ready jobs of the queue; 0 if it does not exist."""
        return int(self._jobs.stats_tube(self.tube_of(queue)).get("current-jobs-ready", 0))

    def clear(self, queue: str) -> int:
        """Delete the jobs of the queue that no worker has; return how many."""
        return self._jobs.clear(self.tube_of(queue))

    def verify(self) -> None:
        """Raise JobsError unless the server answers."""
        self._jobs.ask(lambda jobs: jobs.peek(0))

    def publish(self, exchange: str, body: bytes) -> None:
        """Publish to the exchange's topic; without an nsqd, do nothing. Raises penstock.client.ClientError."""
        if not self._endpoint.nsqd:
            return
        with self._own():
            if self._producer is None:
                self._producer = Producer(self._endpoint.nsqd)
            self._producer.publish(names.ephemeral(self._endpoint.prefix + exchange), body)

    def close(self) -> None:
        """Close the connections of this process."""
        self._jobs.close()
        with self._own():
            if self._producer is not None:
                self._producer.close()

    def _own(self) -> threading.Lock:
        """Return the lock of this process. After a fork the parent's sockets and lock are left alone."""
        if self._pid != os.getpid():
            self._pid, self._lock = os.getpid(), threading.Lock()
            self._producer = None
        return self._lock

"""Throw all jobs of a node away, for tests: DEBUG FLUSHALL and CLUSTER RESET."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nsqd.core.work_queue.job import Job
from nsqd.core.work_queue.tube import Tube
from nsqd.protocols.disque import resp

if TYPE_CHECKING:
    from nsqd.protocols.disque.client import Client

MOST_FLUSHED = 500  # jobs that are finished in a turn


class Flush:
    """Finishes all jobs of a node, a part at a time, and then answers those who wait."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._tubes: list[Tube] = list(client.context.queues.tubes.all())

    def some(self) -> bytes | None:
        """Finish some jobs. Returns the reply when all are finished."""
        left = MOST_FLUSHED
        while self._tubes and left > 0:
            tube = self._tubes[-1]
            jobs: list[Job] = [job for _, job in zip(range(left), tube.jobs, strict=False)]
            for job in jobs:
                tube.finish(job)
            left -= len(jobs)
            if not tube.jobs.count:
                self._tubes.pop()
        if self._tubes:
            return None
        self._client.context.queues.drop_empty()
        for other in list(self._client.context.clients()):
            if other.worker.waiting:
                other.end_wait(other.nil_array)
        return resp.status(b"OK")

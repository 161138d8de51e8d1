"""Delete all jobs of a node, for tests: DEBUG FLUSHALL and CLUSTER RESET."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from nsqd.protocols.disque import resp

if TYPE_CHECKING:
    from nsqd.protocols.disque.client import Client

MOST_FLUSHED = 500  # jobs that are finished in a turn


def flush(client: Client) -> None:
    """Finish all jobs, a part in each turn, and then end the waits of all clients."""
    tubes = list(client.context.queues.tubes.all())

    def step() -> bytes | None:
        left = MOST_FLUSHED
        while tubes and left:
            jobs = list(islice(tubes[-1].jobs, left))
            for job in jobs:
                tubes[-1].finish(job)
            left -= len(jobs)
            if not tubes[-1].jobs.count:
                tubes.pop()
        if tubes:
            return None
        client.context.queues.drop_empty()
        for other in list(client.context.clients()):
            if other.worker.waiting:
                other.end_wait(other.nil_array)
        return resp.status(b"OK")

    client.begin_long(step)

"""The messages that a node has left, for an operator who drains it (nsqd/http/drain.py). Counted in batches while it runs.

A sum of zero can be trusted only while nothing is published. Then messages only go from a topic to its readers and from there
away, and a topic is counted before its readers, so no message is missed on the way. All states of a reader are counted at one
moment.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from nsqd.core.broker import Broker
from nsqd.core.reader import Reader


class DrainStatus(NamedTuple):
    """Messages and jobs left in a topic itself, in a reader, or in several; and schedules and batches left on the node."""

    depth: int = 0  # messages: those that are not distributed yet, and those that are ready in a channel
    in_flight: int = 0
    deferred: int = 0  # also follow-ups, which wait for their batch
    buried: int = 0  # messages, and jobs
    jobs: int = 0  # of tubes: ready, reserved or delayed
    schedules: int = 0
    batches: int = 0  # that are not done

    def plus(self, other: DrainStatus) -> DrainStatus:
        """Return the sum of both, field by field."""
        return DrainStatus(*map(sum, zip(self, other, strict=True)))

    @property
    def is_drained(self) -> bool:
        """Return True if nothing is left. Buried messages do not count: they wait for an operator."""
        return not any(self._replace(buried=0))


def drain_statuses(broker: Broker, *aside: str) -> Iterator[DrainStatus]:
    """Yield what is left in every topic and reader, except the topics `aside`, and the schedules and batches of all logs.

    The caller may continue in later turns.
    """
    contexts = [one.context for one in broker.logs]
    yield DrainStatus(
        deferred=sum(one.batches.follow_up_count for one in contexts),
        schedules=len({key for one in contexts for key in one.schedules.known}),
        batches=len({name for one in contexts for name in one.batches.unfinished()}),
    )
    for topic in [topic for one in broker.logs for topic in one.topics.values()]:
        if topic.deleted or topic.name in aside:
            continue
        yield DrainStatus(depth=topic.depth)
        for reader in list(topic.readers.values()):
            if not reader.deleted:
                yield _of_reader(reader)


def count_in_flight(broker: Broker) -> int:
    """Return the number of messages and jobs in flight, of all logs of the node."""
    return sum(reader.counts().in_flight for reader in _readers(broker))


def count_finishable(broker: Broker) -> int:
    """Return the number of messages and jobs in flight that a client can still finish, of all logs of the node."""
    return sum(reader.finishable_count for reader in _readers(broker))


def _readers(broker: Broker) -> Iterator[Reader]:
    for topic in [topic for one in broker.logs for topic in one.topics.values()]:
        yield from (reader for reader in topic.readers.values() if not reader.deleted)


def _of_reader(reader: Reader) -> DrainStatus:
    counts = reader.counts()
    if reader.takes_job_options:
        return DrainStatus(buried=counts.buried, jobs=sum(counts) - counts.buried + reader.pending_count)
    return DrainStatus(counts.ready, counts.in_flight, counts.deferred, counts.buried)

"""The measurements taken when a channel's messages are finished, come back, or are buried: latencies, outcomes, or both."""

from collections.abc import Sequence

from nsqd.core.measurement.latency import Latency
from nsqd.core.measurement.outcomes import Outcomes
from nsqd.core.timing.agenda import Agenda


class Measures:
    """The measurements of one channel. A channel without any has no such object."""

    __slots__ = ("_agenda", "_latency", "_outcomes")

    def __init__(self, latency: Latency | None, outcomes: Outcomes | None, agenda: Agenda) -> None:
        self._latency = latency
        self._outcomes = outcomes
        self._agenda = agenda

    def finished(self, first: int, ids: bytes, attempts: int, published: Sequence[int]) -> None:
        """Record that messages with these ids, from ordinal `first` on, were finished after `attempts` deliveries each.

        `ids`: 16 bytes each, end to end; `published`: when each was published (ns since the epoch), or empty if not known.
        """
        wall = self._agenda.wall
        latencies = [wall - stamp for stamp in published]
        if self._latency is not None and latencies:
            self._latency.record_many(latencies, self._agenda.now)
        if self._outcomes is not None:
            self._outcomes.finished(first, ids, attempts, latencies, wall)

    def returned(self, what: str, ordinal: int, message_id: bytes, attempts: int) -> None:
        """Record that a message was requeued, timed out or buried: `what` is the outcome."""
        if self._outcomes is not None:
            self._outcomes.returned(what, ordinal, message_id, attempts, self._agenda.wall)

    def __repr__(self) -> str:
        return f"<Measures: {self._latency!r}, {self._outcomes!r}>"

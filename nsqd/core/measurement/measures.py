"""What is measured of a channel's messages when they leave it, or come back: latencies, outcomes, or both."""

from collections.abc import Sequence

from nsqd.core.measurement.latency import Latency
from nsqd.core.measurement.outcomes import Outcomes
from nsqd.core.timing.agenda import Agenda


class Measures:
    """See above. A channel of which nothing is measured has none."""

    __slots__ = ("_agenda", "_latency", "_outcomes")

    def __init__(self, latency: Latency | None, outcomes: Outcomes | None, agenda: Agenda) -> None:
        self._latency = latency
        self._outcomes = outcomes
        self._agenda = agenda

    def finished(self, first: int, ids: bytes, attempts: int, published: Sequence[int]) -> None:
        """Messages first.., with these ids, were finished after so many deliveries each.

        `published`: when each was published, ns since the epoch; empty if that is not known.
        """
        wall = self._agenda.wall
        latencies = [wall - stamp for stamp in published]
        if self._latency is not None and latencies:
            self._latency.record_many(latencies, self._agenda.now)
        if self._outcomes is not None:
            self._outcomes.finished(first, ids, attempts, latencies, wall)

    def returned(self, what: str, ordinal: int, message_id: bytes, attempts: int) -> None:
        """A message was requeued, timed out, or buried: an outcome."""
        if self._outcomes is not None:
            self._outcomes.returned(what, ordinal, message_id, attempts, self._agenda.wall)

    def __repr__(self) -> str:
        return f"<Measures: {self._latency!r}, {self._outcomes!r}>"

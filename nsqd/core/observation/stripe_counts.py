"""What a channel counts over the logs that the node owns, so that promoting a log, or giving it back, counts as nothing.

Nothing is published into a promoted log. What its messages become counts from the moment in which they became a stripe of the
home channel (Channel.count_with), and stays counted when the stripe has gone. Levels do change with the stripes: their
messages are here only as long as the stripes are.
"""

from __future__ import annotations

from operator import add
from typing import NamedTuple

from nsqd.core.channel.channel import Channel
from nsqd.core.observation.sums import everywhere

_NOTHING = (0, 0, 0)


class StripeTotals(NamedTuple):
    """The counts of a channel at one look.

    `attached`: how many messages, but for buried ones, came since the last look with new stripes, without those that went.
    """

    counts: tuple[int, int, int, int]  # published, finished, requeued, timed out, since the process started
    attached: int


class StripeCounts:
    """The counts of one channel that has stripes, or had some."""

    __slots__ = ("_ended", "_latest")

    def __init__(self) -> None:
        self._ended: tuple[int, ...] = _NOTHING  # what stripes that are gone had counted when they were looked at last
        self._latest: dict[Channel, tuple[tuple[int, ...], int]] = {}  # by stripe: its counts and what it held

    def look_at(self, home: Channel) -> StripeTotals:
        """Return the counts of the channel and its stripes, and how many messages have come or gone with stripes."""
        own, *stripes = everywhere(home)
        now = {stripe: (_counts_of(stripe), _held(stripe)) for stripe in stripes}
        attached = sum(held for stripe, (_, held) in now.items() if stripe not in self._latest)
        for stripe, (counts, held) in self._latest.items():
            if stripe not in now:
                self._ended = tuple(map(add, self._ended, counts))
                attached -= held
        self._latest = now
        total = tuple(map(add, _counts_of(own), self._ended))
        for counts, _ in now.values():
            total = tuple(map(add, total, counts))
        finished, requeued, timed_out = total
        return StripeTotals((own.message_count, finished, requeued, timed_out), attached)

    def __repr__(self) -> str:
        return f"<StripeCounts of {len(self._latest)} stripes>"


def _counts_of(channel: Channel) -> tuple[int, ...]:
    return channel.message_count - sum(channel.counts()), channel.requeue_count, channel.timeout_count


def _held(channel: Channel) -> int:
    depth, in_flight, deferred, _ = channel.counts()
    return depth + in_flight + deferred

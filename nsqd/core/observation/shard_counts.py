"""What a channel counts over the logs that the node owns, so that promoting a log, or giving it back, counts as nothing.

Nothing is published into a promoted log. What its messages become counts from the moment in which they became a shard of the
home channel (Channel.count_with), and stays counted when the shard has gone. Levels do change with the shards: their
messages are here only as long as the shards are.
"""

from __future__ import annotations

from operator import add
from typing import NamedTuple

from nsqd.core.channel.channel import Channel

_NOTHING = (0, 0, 0)


class ShardTotals(NamedTuple):
    """The counts of a channel at one look.

    `attached`: how many messages, except for buried ones, came since the last look with new shards, without those that went.
    """

    counts: tuple[int, int, int, int]  # published, finished, requeued, timed out, since the process started
    attached: int


class ShardCounts:
    """The counts of one channel that has shards, or had some."""

    __slots__ = ("_ended", "_latest")

    def __init__(self) -> None:
        self._ended: tuple[int, ...] = _NOTHING  # what shards that are gone had counted when they were looked at last
        self._latest: dict[Channel, tuple[tuple[int, ...], int]] = {}  # by shard: its counts and what it held

    def look_at(self, home: Channel) -> ShardTotals:
        """Return the counts of the channel and its shards, and how many messages have come or gone with shards."""
        own, *shards = home.shards
        now = {shard: (_counts_of(shard), _held(shard)) for shard in shards}
        attached = sum(held for shard, (_, held) in now.items() if shard not in self._latest)
        for shard, (counts, held) in self._latest.items():
            if shard not in now:
                self._ended = tuple(map(add, self._ended, counts))
                attached -= held
        self._latest = now
        total = tuple(map(add, _counts_of(own), self._ended))
        for counts, _ in now.values():
            total = tuple(map(add, total, counts))
        finished, requeued, timed_out = total
        return ShardTotals((own.message_count, finished, requeued, timed_out), attached)

    def __repr__(self) -> str:
        return f"<ShardCounts of {len(self._latest)} shards>"


def _counts_of(channel: Channel) -> tuple[int, ...]:
    return channel.message_count - sum(channel.counts()), channel.requeue_count, channel.timeout_count


def _held(channel: Channel) -> int:
    depth, in_flight, deferred, _ = channel.counts()
    return depth + in_flight + deferred

"""Deletions by an operator at a node whose log another node had promoted: facts about that log.

A deletion names topics and readers by the numbers that they have in the log. A number is given once, so a channel that was
made later under the same name has another one. A node that leads a copy of the log may give the same numbers as another copy
after the point where the two diverge. So a deletion names only what was made before that point, and holds for a copy only if it
has that point.

See docs/contributing/design/cluster-protocol.md#deletions.
"""

from collections.abc import Iterable
from enum import IntEnum
from itertools import pairwise
from typing import NamedTuple

from nsqd.core.message.epoch import Epoch

MOST_DELETIONS = 4096  # that are kept and sent of one log


class DeletionKind(IntEnum):
    """The kind of a deletion. The numbers are never used again."""

    TOPIC_DELETED = 0
    CHANNEL_DELETED = 1
    CHANNEL_EMPTIED = 2  # of all messages before `ordinal`
    TOPIC_EMPTIED = 3  # of all messages from `ordinal` on, which no reader had been given


class Deletion(NamedTuple):
    """One thing that was deleted or emptied."""

    kind: DeletionKind
    topic: int  # number in the log
    channel: int = 0  # number in the log; 0: the deletion is of the topic
    ordinal: int = 0


class LogDeletions(NamedTuple):
    """The deletions from a log after the point where two copies of it diverge, of what existed at that point."""

    epoch: Epoch  # that of the last byte before the point
    position: int  # of the point
    deletions: tuple[Deletion, ...]

    def holds_for(self, epochs: Iterable[tuple[Epoch, int]]) -> bool:
        """Return True if a copy of the log has nothing of `epoch` but what is before the point: it has diverged there.

        `epochs`: those of the copy, each with the position at which it begins, ascending.
        """
        ends = {epoch: end for (epoch, _), (_, end) in pairwise(epochs)}
        return ends.get(self.epoch) == self.position

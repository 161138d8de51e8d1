"""Which tails of copies were salvaged, as the leader of a log knows it: so that no other node salvages the same bytes again.

A node may forget a tail: then messages are delivered twice.

See docs/contributing/design/cluster-protocol.md#diverged-copies.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from nsqd.core.message.epoch import Epoch

MOST = 1000  # tails that a node remembers; the oldest are forgotten first
MOST_EPOCHS = 64  # of one tail: one of more epochs is not remembered


class SalvagedTail(NamedTuple):
    """A tail that a node has made a log of, which has its copies or is closed."""

    log_id: bytes
    node: int  # number of the node that has salvaged it
    start: int  # position in the log
    end: int
    epochs: tuple[tuple[Epoch, int], ...]  # of its bytes, with the position at which each begins in the copy


def tail_of(log_id: bytes, node: int, start: int, end: int, epochs: tuple[tuple[Epoch, int], ...]) -> SalvagedTail:
    """Return the tail of a copy with these epochs from `start` to `end`."""
    first = max([index for index, (_, at) in enumerate(epochs) if at <= start], default=0)
    return SalvagedTail(log_id, node, start, end, epochs[first:])


class SalvagedTails:
    """The tails that were salvaged, the oldest first."""

    def __init__(self, known: Iterable[SalvagedTail] = ()) -> None:
        """`known`: the facts of an earlier run of this node."""
        self.known: list[SalvagedTail] = list(known)

    def add(self, tail: SalvagedTail) -> None:
        """Note a tail, unless it is known."""
        if tail not in self.known and len(tail.epochs) <= MOST_EPOCHS:
            self.known.append(tail)
            del self.known[:-MOST]

    def of_log(self, log_id: bytes) -> list[SalvagedTail]:
        """Return the tails of a log, by the position at which they begin."""
        return sorted((one for one in self.known if one.log_id == log_id), key=lambda one: one.start)

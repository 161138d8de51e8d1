"""Which tails of copies were taken in, as the owner of a log knows it: so that no other node takes the same bytes in again.

A node may forget it: then messages come twice.

See docs/design/cluster.md#remnants.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from nsqd.core.message.epoch import Epoch

MOST = 1000  # tails that a node remembers; the oldest are forgotten first
MOST_EPOCHS = 64  # of one tail: one of more epochs is not remembered


class TakenInTail(NamedTuple):
    """What a node has made a log of, which has its copies or is closed."""

    log_id: bytes
    node: int  # number of the node that has taken it in
    start: int  # position in the log
    end: int
    epochs: tuple[
        tuple[Epoch, int], ...
    ]  # of the copy, with the position at which each begins: those that the tail has bytes of


def tail_of(log_id: bytes, node: int, start: int, end: int, epochs: tuple[tuple[Epoch, int], ...]) -> TakenInTail:
    """Return the tail of a copy with these epochs from `start` to `end`."""
    first = max([place for place, (_, at) in enumerate(epochs) if at <= start], default=0)
    return TakenInTail(log_id, node, start, end, epochs[first:])


class TakenInTails:
    """The tails that were taken in, the oldest first."""

    def __init__(self, known: Iterable[TakenInTail] = ()) -> None:
        """`known`: what an earlier run of this node knew."""
        self.known: list[TakenInTail] = list(known)

    def add(self, tail: TakenInTail) -> None:
        """Note a tail, unless it is known."""
        if tail not in self.known and len(tail.epochs) <= MOST_EPOCHS:
            self.known.append(tail)
            del self.known[:-MOST]

    def of_log(self, log_id: bytes) -> list[TakenInTail]:
        """Return the tails of a log, by the position at which they begin."""
        return sorted((one for one in self.known if one.log_id == log_id), key=lambda one: one.start)

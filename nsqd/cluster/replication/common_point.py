"""The position at which two copies of a log diverge, and the bytes that a replica lacks of its log."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from nsqd.cluster.replication.stream import Epochs, Have
from nsqd.core.message.epoch import Epoch
from nsqd.storage.log.copying import LogSource
from nsqd.storage.log.records import HEADER_SIZE


def packed(epochs: Iterable[tuple[Epoch, int]]) -> Epochs:
    """Return the epochs of a copy as `common_end` compares them."""
    return [(epoch.pack(), start) for epoch, start in epochs]


def common_end(first: Epochs, first_end: int, second: Epochs, second_end: int) -> int:
    """Return the position up to which two copies of a log hold the same bytes, as far as their epochs show; 0: nothing.

    Within an epoch only one process writes, so two copies that have an epoch from the same position on agree until the first of
    them ends or continues with another epoch.
    """
    shared = set(first).intersection(second)
    if not shared:
        return 0
    latest = max(shared, key=second.index)
    return min(_end_of(latest, first, first_end), _end_of(latest, second, second_end))


def _end_of(epoch: tuple[bytes, int], epochs: Epochs, end: int) -> int:
    """Return the position at which an epoch ends in a copy that ends at `end`."""
    following = epochs.index(epoch) + 1
    return epochs[following][1] if following < len(epochs) else end


def continued(log: LogSource, bases: Sequence[int], common: int, have: Have) -> tuple[int, int] | None:
    """Return the place (base, offset) from which on the log's files continue a replica; None if they do not.

    `bases`: those of the log's segments; `common`: the position up to which both hold the same.
    """
    if not common or common != have.end:
        return None
    later = [base for base in bases if base >= common]
    before = [base for base in bases if base < common]
    if later[:1] == [common]:
        return (common, 0) if _is_gapless(log, later) else None
    if not before or have.segments.get(before[-1]) != 0 or not _is_gapless(log, [before[-1], *later]):
        return None
    return before[-1], HEADER_SIZE + common - before[-1]


def _is_gapless(log: LogSource, bases: Sequence[int]) -> bool:
    """Return True if these segments, the last of the log, hold its bytes without a gap: none was rewritten or removed."""
    for base, following in zip(bases, [*bases[1:], None], strict=True):
        if log.file(base).generation:
            return False
        if following is not None and log.file_end(base, following) != HEADER_SIZE + following - base:
            return False
    return True


def first_missing(log: LogSource, bases: Sequence[int], common: int, have: Have) -> int:
    """Return the first segment of the log that a replica does not have as a whole. The arguments are those of `continued`."""
    if common < have.end or not bases:  # the replica is kept as a diverged copy, and another one begins
        return bases[0] if bases else log.end
    for base, following in zip(bases, [*bases[1:], None], strict=True):
        if base not in have.segments or following is None or following > common:
            return base
    return bases[-1]

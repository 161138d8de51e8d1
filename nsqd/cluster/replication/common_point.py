"""Where two copies of a log part, and what a replica lacks of its log."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from nsqd.cluster.replication.stream import Have
from nsqd.storage.log.files import SegmentFile
from nsqd.storage.log.records import HEADER_SIZE

Epochs = Sequence[tuple[bytes, int]]  # each epoch, packed, with the position at which it begins; ascending


class Segments(Protocol):
    """The files of a log, as they are asked for here. All raise OSError."""

    @property
    def end(self) -> int: ...
    def file(self, base: int) -> SegmentFile: ...
    def file_end(self, base: int, following: int | None) -> int: ...


def common_end(ours: Epochs, our_end: int, theirs: Epochs, their_end: int) -> int:
    """Return the position up to which two copies of a log hold the same bytes, as far as their epochs show; 0: nothing.

    Within an epoch only one process writes, so two copies that have an epoch from the same position on agree until the first of
    them ends or continues with another epoch.
    """
    our_place = {epoch: place for place, epoch in enumerate(ours)}
    for place in reversed(range(len(theirs))):
        mine = our_place.get(theirs[place])
        if mine is not None:
            their_stop = theirs[place + 1][1] if place + 1 < len(theirs) else their_end
            our_stop = ours[mine + 1][1] if mine + 1 < len(ours) else our_end
            return min(our_stop, their_stop)
    return 0


def continued(log: Segments, bases: Sequence[int], common: int, have: Have) -> tuple[int, int] | None:
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


def _is_gapless(log: Segments, bases: Sequence[int]) -> bool:
    """Return True if these segments, the last of the log, hold its bytes without a gap: none was rewritten or removed."""
    for base, following in zip(bases, [*bases[1:], None], strict=True):
        if log.file(base).generation:
            return False
        if following is not None and log.file_end(base, following) != HEADER_SIZE + following - base:
            return False
    return True


def first_missing(log: Segments, bases: Sequence[int], common: int, have: Have) -> int:
    """Return the first segment of the log that a replica does not have as a whole. The arguments are those of `continued`."""
    if common < have.end or not bases:  # the replica is kept as a diverged copy, and another one begins
        return bases[0] if bases else log.end
    for base, following in zip(bases, [*bases[1:], None], strict=True):
        if base not in have.segments or following is None or following > common:
            return base
    return bases[-1]

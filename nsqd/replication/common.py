"""Where two copies of a log part."""

from __future__ import annotations

from collections.abc import Sequence

Epochs = Sequence[tuple[bytes, int]]  # each epoch, packed, with the position at which it begins; ascending


def common_end(ours: Epochs, our_end: int, theirs: Epochs, their_end: int) -> int:
    """Return the position up to which two copies of a log hold the same bytes, as far as their epochs show; 0: nothing.

    Within an epoch only one process writes, so two copies that have an epoch from the same position on agree until the first of
    them ends or goes on with another epoch.
    """
    our_place = {epoch: place for place, epoch in enumerate(ours)}
    for place in reversed(range(len(theirs))):
        mine = our_place.get(theirs[place])
        if mine is not None:
            their_stop = theirs[place + 1][1] if place + 1 < len(theirs) else their_end
            our_stop = ours[mine + 1][1] if mine + 1 < len(ours) else our_end
            return min(our_stop, their_stop)
    return 0

"""How many messages each nsqd of a consumer may have in flight to it."""

from collections.abc import Sequence


def shares(total: int, limits: Sequence[int], turn: int) -> list[int]:
    """Split `total` into one RDY for each connection, none above its limit. The sum never exceeds `total`.

    If `total` suffices, every connection gets at least 1. Otherwise `total` of the connections get 1, and the choice rotates
    with `turn`, so that no nsqd waits forever.
    """
    count = len(limits)
    if total >= count:
        base, extra = divmod(total, count) if count else (0, 0)
        return [min(base + (i < extra), limit) for i, limit in enumerate(limits)]
    rdy = [0] * count
    for i in range(total):
        rdy[(turn * total + i) % count] = 1
    return rdy

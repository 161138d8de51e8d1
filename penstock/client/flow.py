"""How many messages each nsqd of a consumer may have in flight to it. Pure."""

from collections.abc import Sequence


def shares(total: int, limits: Sequence[int], turn: int) -> list[int]:
    """Split `total` into one RDY for each connection, none above its limit.

    If `total` suffices, every connection gets at least 1. Otherwise `total` of the connections get 1, and the choice
    rotates with `turn`, so that no nsqd waits forever. The sum never exceeds `total`.
    """
    count = len(limits)
    if not count:
        return []
    if total < count:
        chosen = {(turn * total + i) % count for i in range(total)}
        return [int(i in chosen) for i in range(count)]
    base, extra = divmod(total, count)
    return [min(base + (i < extra), limit) for i, limit in enumerate(limits)]

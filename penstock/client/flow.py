"""How many messages each nsqd of a consumer may have in flight with us. Pure."""

from collections.abc import Sequence


def shares(total: int, limits: Sequence[int], turn: int) -> list[int]:
    """Split `total` into one RDY a connection, none above its limit.

    Everyone gets at least 1 if `total` reaches; otherwise `total` of them get 1, and who does moves on with `turn`, so
    that no nsqd is left waiting for ever. The sum never exceeds `total`.
    """
    count = len(limits)
    if not count:
        return []
    if total < count:
        chosen = {(turn * total + i) % count for i in range(total)}
        return [int(i in chosen) for i in range(count)]
    base, extra = divmod(total, count)
    return [min(base + (i < extra), limit) for i, limit in enumerate(limits)]

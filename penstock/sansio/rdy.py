"""How many messages each nsqd of a consumer may have in flight to it."""

from collections.abc import Sequence


def shares(total: int, limits: Sequence[int], in_flight: Sequence[int], turn: int) -> list[int]:
    """Split `total` into one RDY for each connection, none above its limit. The sum never exceeds `total`.

    If `total` suffices, every connection gets at least 1. Otherwise at most `total` of the connections get 1, and the choice
    rotates with `turn`, so that no nsqd waits forever. `in_flight`: the unanswered messages of each connection. Those of the
    connections that are not chosen count in `total`, so that a rotation does not bring more messages than `total`.
    """
    count = len(limits)
    if total >= count:
        base, extra = divmod(total, count) if count else (0, 0)
        return [min(base + (i < extra), limit) for i, limit in enumerate(limits)]
    chosen = [(turn * total + i) % count for i in range(total)]
    free = total - sum(in_flight) + sum(in_flight[i] for i in chosen)
    rdy = [0] * count
    for i in chosen[: max(0, free)]:
        rdy[i] = 1
    return rdy

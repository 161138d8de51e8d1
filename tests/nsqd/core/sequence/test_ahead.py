"""What lies ahead of a reader is looked up a few extents at a time, while what came before is released already."""

from collections import deque
from collections.abc import Iterable

from nsqd.core.sequence.ahead import EXTENTS_AT_ONCE, Ahead
from tests.cases import each

EXTENTS = [(0, 10, False), (10, 14, True), (14, 20, False), (25, 30, False), (30, 40, False)]


class Sequence:
    """Extents, of which those before `gone` are released."""

    def __init__(self) -> None:
        self.gone = 0

    def extents(self, first: int, end: int) -> Iterable[tuple[int, int, bool]]:
        for start, stop, delayed in EXTENTS:
            low, high = max(start, first, self.gone), min(stop, end)
            if low < high:
                yield low, high, delayed


@each("includes_delayed", [False, True])
def test_it_yields_what_is_in_no_hole_though_it_is_released_on_the_way(includes_delayed: bool) -> None:
    sequence, found = Sequence(), list[tuple[int, int]]()
    ahead = Ahead(sequence, 5, 35, deque([(0, 2), (7, 9), (26, 32)]), includes_delayed)  # type: ignore[arg-type]
    for spans in ahead.spans():
        assert len(spans) <= 2 * EXTENTS_AT_ONCE
        found += spans
        sequence.gone = max([sequence.gone, *(end for _, end in spans)])
    assert found == [(5, 7), (9, 10), *[(10, 14)] * includes_delayed, (14, 20), (25, 26), (32, 35)]
    assert not list(Ahead(Sequence(), 40, 40, deque(), True).spans())  # type: ignore[arg-type]

"""Rows of a block: what goes in comes back, over gaps, changes of subjects and rings that forget."""

from array import array
from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from nsqd.core.observation.series_block import ROW_OVERHEAD, WIDTH, Block, Ring, read_back

COUNTERS = 4
T0 = 1_800_000_000  # s; a multiple of the step


@dataclass(eq=False)
class Subject:
    deleted: bool = False


def put(block: Block[Subject], ring: Ring, at: int) -> None:
    ring.begin(at)
    block.record([ring])
    block.trim([ring])


@given(
    st.lists(st.tuples(st.integers(1, 3), st.lists(st.integers(-5, 300), min_size=WIDTH, max_size=WIDTH)), max_size=40)
)
def test_rows_have_what_was_recorded(moves: list[tuple[int, list[int]]]) -> None:
    ring = Ring(10, 8)
    block, at, total = Block[Subject](ring), T0, [0] * WIDTH
    block.enter(3, Subject(), array("q", total), [ring])
    block.enter(4, Subject(), array("q", [7] * WIDTH), [ring])
    noted: dict[int, tuple[int, list[int]]] = {}  # steps since the one before, and the state, by slot
    for steps, gained in moves:
        at += steps * 10
        total = [old + new for old, new in zip(total, gained, strict=True)]
        assert block.set(3, array("q", total)) == any(gained)
        put(block, ring, at)
        noted[at // 10 - 1] = steps, list(total)
    values = block.values(3, ring)
    if not moves:
        assert values is None
        return
    columns, first = read_back(values, COUNTERS), values.slots[0]
    last = max(noted)
    assert first >= last - 7
    assert {len(column) for column in columns} == {last - first + 1}
    for slot in range(first, last + 1):
        shown = [column[slot - first] for column in columns]
        if slot not in noted:
            assert shown == [None] * WIDTH
            continue
        steps, state = noted[slot]
        assert shown[COUNTERS:] == state[COUNTERS:]
        before = noted.get(slot - 1)
        if before is None:
            assert shown[:COUNTERS] == [None] * COUNTERS
        else:
            assert shown[:COUNTERS] == [max(0, new - old) for new, old in zip(state, before[1], strict=True)][:COUNTERS]
    other = block.values(4, ring)
    assert read_back(other, COUNTERS)[-1][-1] == 7


def test_who_did_nothing_takes_nothing() -> None:
    ring = Ring(10, 8)
    block = Block[Subject](ring)
    assert (repr(block), ring.is_before(T0)) == ("<Block of 0 subjects, 0 B>", True)
    block.enter(0, Subject(), array("q", [5] * WIDTH), [ring])
    put(block, ring, T0)
    assert (repr(ring), ring.is_before(T0), ring.is_before(T0 + 10)) == ("<Ring: 1 steps of 10 s>", False, True)
    for number in range(1, 20):
        put(block, ring, T0 + number * 10)
    assert block.stored_bytes == 8 * (8 + 1)
    assert block.set(0, array("q", [6] * WIDTH))
    put(block, ring, T0 + 200)
    assert ROW_OVERHEAD < block.stored_bytes < 200
    for number in range(9):
        put(block, ring, T0 + 210 + number * 10)
    assert block.stored_bytes == 8 * (8 + 1)

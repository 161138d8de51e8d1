"""A heap of runs against a count of each number."""

from collections import Counter
from heapq import heappush

from hypothesis import given, settings
from hypothesis import strategies as st

from nsqd.core.work_queue.entries import Entries
from tests.effort import tries

MOVES = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.integers(0, 30)),
        st.tuples(st.just("run"), st.tuples(st.integers(0, 2), st.integers(1, 6))),
        st.tuples(st.just("advance"), st.integers(1, 4)),
        st.tuples(st.just("sweep"), st.integers(2, 4)),
    ),
    max_size=30,
)


@settings(max_examples=tries(60), deadline=None)
@given(moves=MOVES)
def test_entries_are_a_sorted_list_of_numbers(moves: list[tuple[str, int | tuple[int, int]]]) -> None:
    entries, model = Entries(), Counter[int]()
    ends = [0, 1000, 2000]  # a run begins after the last one of its kind, as those of a priority do
    for move in moves:
        match move:
            case "add", int() as entry:
                heappush(entries.heap, entry)
                model[entry] += 1
            case "run", (int() as kind, int() as count):
                first, ends[kind] = ends[kind], ends[kind] + count
                entries.add_run(first, first + count)
                model.update(range(first, first + count))
            case "advance", int() as step if entries.heap:
                first, end = entries.lowest_run()
                entries.advance(first + step)
                model -= Counter(range(first, min(first + step, end)))
            case "sweep", int() as divisor:

                def first_live(first: int, end: int, divisor: int = divisor) -> int | None:
                    return next((entry for entry in range(first, end) if entry % divisor), None)

                entries.sweep(first_live)
                assert all(first % divisor for first in entries.heap)
                left = Counter(entries.ascending())
                assert left <= model
                assert all(left[entry] for entry in model if entry % divisor)
                model = left
        entries.check()
        found = list(entries.ascending())
        assert found == sorted(found)
        assert set(found) == set(+model)


def test_runs_that_follow_each_other_are_one_run_until_it_is_over() -> None:
    entries = Entries()
    for first in range(5, 50, 5):
        entries.add_run(first, first + 5)
        entries.advance(entries.heap[0] + 1)
    assert list(entries.ascending()) == list(range(14, 50))
    assert len(entries) == 2  # the one that is consumed, and the one that grows
    entries.advance(50)
    entries.advance(50)
    for first in range(50, 60):
        entries.add_run(first, first + 1)
    assert (len(entries), entries.lowest_run()) == (1, (50, 60))
    entries.advance(60)
    entries.add_run(60, 61)
    entries.add_run(70, 71)
    entries.add_run(61, 62)
    assert [*entries.ascending()] == [60, 61, 70]
    entries.check()
    assert entries.pop_batch(3)
    assert not entries.pop_batch(3)
    assert list(entries.ascending()) == []

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

"""Up to where a topic is durable: never further than it is, and no mark is lost for want of memory."""

from hypothesis import given
from hypothesis import strategies as st

from nsqd.storage.log import durable_ends
from nsqd.storage.log.durable_ends import DurableEnds


@given(st.lists(st.tuples(st.integers(1, 9), st.integers(1, 5)), max_size=60), st.data())
def test_what_is_durable_is_told_and_no_more(groups: list[tuple[int, int]], data: st.DataObject) -> None:
    known, position, end = DurableEnds(3), 0, 3
    ends = [(0, 3)]
    for size, count in groups:
        position, end = position + size, end + count
        known.add(position, end)
        ends.append((position, end))
    durable = data.draw(st.integers(0, position))
    assert known.end_at(durable) == max(end for at, end in ends if at <= durable)
    assert known.end_at(position) == end


def test_very_many_are_thinned_out() -> None:
    known = DurableEnds(0)
    for number in range(1, 5 * durable_ends.MOST):
        known.add(number, number)
    assert len(known._waiting) <= durable_ends.MOST
    half = 5 * durable_ends.MOST // 2
    assert half - 100 <= known.end_at(half) <= half
    assert known.end_at(5 * durable_ends.MOST) == 5 * durable_ends.MOST - 1

"""Ranges of message ids: whether two logs have some in common."""

from hypothesis import given
from hypothesis import strategies as st

from nsqd.core.message.id_ranges import IdRange, common_number

RANGES = st.lists(st.builds(IdRange, st.integers(0, 2), st.integers(0, 12), st.integers(0, 12)), max_size=3)


@given(RANGES, RANGES)
def test_ids_are_in_common_if_one_is_in_both(one: list[IdRange], other: list[IdRange]) -> None:
    def ids(ranges: list[IdRange]) -> set[tuple[int, int]]:
        return {(part.node, sequence) for part in ranges for sequence in range(part.first, part.end)}

    both = ids(one) & ids(other)
    number = common_number(one, other)
    assert (number is not None) == bool(both)
    assert not both or number in {node for node, _ in both}

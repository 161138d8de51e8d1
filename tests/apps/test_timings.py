"""The lines of -status-every."""

from hypothesis import given
from hypothesis import strategies as st

from apps.timings import Status, Timings, check_every, percentile


def test_lines_and_percentiles_are_the_originals() -> None:
    timings = Timings(4, "[aggregate]:")
    lines = [line for seconds in (9.0, 0.001, 0.002, 0.003, 0.0126) for line in timings.add(seconds)]
    assert lines == ["[aggregate]: finished 4 - 99th: 12.60ms - 95th: 12.60ms - avg: 4.65ms"]
    hundred = [float(i) for i in range(1, 101)]
    assert (percentile(95, hundred), percentile(99, hundred)) == (97.0, 100.0)
    assert percentile(95, [float(i) for i in range(250)]) == 238.0
    assert percentile(99, [1.0]) == 1.0


@given(st.integers(1, 50), st.lists(st.integers(0, 120)))
def test_the_first_request_is_in_no_line_and_each_other_in_one(every: int, batches: list[int]) -> None:
    one_by_one, together = Timings(every, "x"), Timings(every, "x")
    singly = [line for index, count in enumerate(batches) for _ in range(count) for line in one_by_one.add(index)]
    at_once = [line for index, count in enumerate(batches) for line in together.add(index, count)]
    assert at_once == singly
    assert len(at_once) == max(0, sum(batches) - 1) // every


def test_one_destination_has_only_the_aggregate_and_zero_turns_all_off() -> None:
    alone, pair, off = Status(1, ["a"]), Status(1, ["a", "b"]), Status(0, ["a", "b"])
    assert [line.split()[0] for line in alone.add("a", 1.0, 2)] == ["[aggregate]:"]
    assert [line.split()[0] for line in pair.add("a", 1.0, 2)] == ["[a]:", "[aggregate]:"]
    assert off.add("a", 1.0, 1000) == []
    assert (check_every(0), check_every(-1)) == ("", "must not be negative")

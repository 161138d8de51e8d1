"""The first id of a log: above all that its node may have issued before, as far as is known, and by the time."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsqd.core.message.ids import LEASE, SAFE_LEASES, SEQUENCE, ClockError, first_of_new_log
from shared.version import RELEASED

SECOND = 1_000_000_000
TIMES = st.integers(RELEASED, RELEASED + (1 << 29))


@given(TIMES, st.integers(0, SEQUENCE >> 1))
def test_a_log_begins_two_leases_above_what_is_known(second: int, lease: int) -> None:
    first = first_of_new_log(second * SECOND, lease)
    assert first >= (lease + SAFE_LEASES * LEASE if lease else 0)
    assert 1 < first < SEQUENCE - LEASE


@given(TIMES, st.integers(1, 1 << 20))
def test_a_later_log_begins_above_what_the_earlier_one_issued_in_time(second: int, seconds: int) -> None:
    later = first_of_new_log((second + seconds) * SECOND, 0)
    assert later - first_of_new_log(second * SECOND, 0) == seconds * (1 << 17)


@pytest.mark.parametrize(
    ("wall", "why"),
    [
        (0, "says 1970-01-01, which is before this version was released"),
        (RELEASED * SECOND - 1, "before this version was released"),
        (2_800_000_000 * SECOND, "says 2058-09-23, which is too far in the future"),
    ],
)
def test_a_wrong_clock_is_refused(wall: int, why: str) -> None:
    with pytest.raises(ClockError, match=why):
        first_of_new_log(wall, LEASE)

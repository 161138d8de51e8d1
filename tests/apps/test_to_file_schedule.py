"""When nsq_to_file syncs, touches and tries again, in virtual time."""

import itertools

from hypothesis import given
from hypothesis import strategies as st

from apps.to_file.schedule import FIRST_RETRY, LAST_RETRY, QUIET, SHORTEST_TOUCH, TOUCH, Retry, SyncWindow, Touches


def simulate(window: SyncWindow, share: int, backlog: int, until: float) -> list[tuple[float, int]]:
    """An nsqd that sends `share` messages and then waits for its answers. Returns the syncs: when, and of how many."""
    syncs, waiting, now = [], 0, 0.0
    while now < until:
        sent = min(share - waiting, backlog)
        if sent:
            backlog, waiting = backlog - sent, waiting + sent
            window.arrived(now, waiting)
        if window.is_due(now, waiting):
            window.synced(now, waiting)
            if waiting:
                syncs.append((now, waiting))
            waiting = 0
        now += 0.01
    return syncs


def test_an_nsqd_that_may_send_less_than_all_is_found_out_by_one_silence_until_the_topic_is_idle() -> None:
    syncs = simulate(SyncWindow(200, 30.0, 0.0), share=200, backlog=2000, until=0.2)
    assert [count for _, count in syncs] == [200] * 10
    syncs = simulate(SyncWindow(200, 30.0, 0.0), share=67, backlog=67 * 20, until=QUIET + 0.5)
    assert [count for _, count in syncs] == [67] * 20
    assert syncs[0][0] >= QUIET
    window = SyncWindow(200, 30.0, 0.0)
    simulate(window, share=67, backlog=67 * 20, until=5.0)
    window.arrived(6.0, 1)
    assert window.limit == 200


@given(
    st.integers(1, 50),
    st.floats(0.05, 5.0),
    st.lists(st.tuples(st.integers(0, 60), st.floats(0.001, 1.0)), max_size=40),
)
def test_no_message_waits_longer_than_the_interval_or_beyond_the_limit(
    most: int, interval: float, steps: list[tuple[int, float]]
) -> None:
    window, now, waiting, oldest = SyncWindow(most, interval, 0.0), 0.0, 0, 0.0
    for arrivals, pause in steps:
        arrivals = min(arrivals, most - waiting)
        if arrivals:
            oldest = now if not waiting else oldest
            waiting += arrivals
            window.arrived(now, waiting)
        if window.is_due(now, waiting):
            window.synced(now, waiting)
            waiting = 0
        assert 1 <= window.limit <= most
        assert waiting < most
        assert not waiting or now - oldest <= interval
        now += pause
        while pause > 0 and waiting and window.is_due(now, waiting):  # a tick at least
            window.synced(now, waiting)
            waiting = 0


def test_touches_come_before_a_known_timeout() -> None:
    touches = Touches(60.0, 0.0)
    assert [touches.is_due(now) for now in (19.9, 20.0, 39.9, 40.0)] == [False, True, False, True]
    touches = Touches(0.0, 0.0)
    assert [touches.is_due(TOUCH - 0.1), touches.is_due(TOUCH)] == [False, True]


def test_touches_come_more_often_after_one_that_was_too_late_and_slowly_less_often_again() -> None:
    touches = Touches(0.0, 0.0)
    touches.too_late(1.0)
    assert not touches.is_due(1.0)
    assert touches.is_due(1.0 + TOUCH / 3)
    for _ in range(50):
        touches.too_late(100.0)
    assert touches.interval == SHORTEST_TOUCH
    now, times = 100.0, 0
    while touches.interval < TOUCH:
        now += 0.1
        times += touches.is_due(now)
    assert 30 <= times <= 50


def test_attempts_grow_rare_while_writing_fails() -> None:
    retry, now, at = Retry(), 0.0, []
    assert not retry.is_failing
    while now < 300:
        now += retry.failed(now)
        at.append(now)
    assert at[0] == FIRST_RETRY
    assert max(b - a for a, b in itertools.pairwise(at)) == LAST_RETRY
    assert retry.is_failing
    assert retry.worked()
    assert not retry.worked()
    assert not retry.is_failing

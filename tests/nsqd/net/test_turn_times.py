"""The durations of turns, with a clock of the test's own."""

from nsqd.net.turn_times import RECORDED_AT_ONCE, TurnTimes


class Clock:
    def __init__(self) -> None:
        self.now = 7

    def __call__(self) -> int:
        return self.now


def turns_of(*durations: int) -> TurnTimes:
    clock = Clock()
    times = TurnTimes(clock)
    for duration in durations:
        began = times.clock()
        clock.now += duration
        times.note_end(began)
        clock.now += 1_000_000  # between two turns
    return times


def test_every_turn_that_is_over_is_in_the_histogram() -> None:
    found = turns_of(3000, 5000, 40).histogram()
    assert (found.count, found.sum, found.min, found.max) == (3, 8040, 40, 5000)


def test_none_is_counted_twice_or_lost_when_many_are_recorded_at_once() -> None:
    times = turns_of(*range(1, 2 * RECORDED_AT_ONCE + 11))
    assert (times.histogram(), times.histogram().count) == (times.histogram(), 2 * RECORDED_AT_ONCE + 10)
    assert times.histogram().max == 2 * RECORDED_AT_ONCE + 10


def test_a_histogram_does_not_change_when_turns_follow() -> None:
    times = turns_of(5)
    before = times.histogram()
    times.note_end(times.clock())
    assert (before.count, times.histogram().count) == (1, 2)

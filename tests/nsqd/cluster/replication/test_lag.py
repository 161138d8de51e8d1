"""The age of the oldest byte that a follower has not confirmed."""

from nsqd.cluster.replication.lag import MOST_SAMPLES, WriteTimes

TICK = 250_000_000


def test_the_age_counts_from_the_first_look_at_a_byte() -> None:
    times = WriteTimes(100)
    assert times.age(100, 7) == 0, "all of the log is confirmed"
    times.note(100, 5)
    times.note(150, 10)
    times.note(180, 20)
    assert [times.age(position, 50) for position in (100, 149, 150, 179, 180)] == [40, 40, 30, 30, 0]
    times.forget(150)
    assert [times.age(position, 50) for position in (149, 150, 180)] == [30, 30, 0]


def test_the_times_of_a_follower_that_lags_for_days_take_little_memory_and_stay_exact() -> None:
    times, stuck = WriteTimes(0), 40
    for tick in range(100_000):
        times.note(10 * tick, tick * TICK)
        times.forget(min(10 * tick, stuck))
    assert len(times._samples) <= MOST_SAMPLES
    now = 100_000 * TICK
    assert times.age(stuck, now) == now - 5 * TICK
    later = [now - times.age(position, now) for position in range(stuck, 999_990, 1000)]
    assert later == sorted(later)
    assert later[-1] <= now

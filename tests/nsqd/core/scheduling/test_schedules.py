"""Missed ticks, clocks that step, pauses and removals of schedules, in virtual time."""

from dataclasses import replace
from random import Random

from nsqd.core.scheduling.recurrence import At, Every, Recurrence
from nsqd.core.scheduling.schedules import GRACE, MOST_LATE, Missed, Schedule, Schedules
from tests.cases import each
from tests.effort import seeds

KEY = ("t", "n")


def schedule(recurrence: Recurrence, missed: Missed = Missed.ONCE, since: int = 0, name: str = "n") -> Schedule:
    return Schedule("t", name, recurrence, missed, b"body", (("a", "b"),), since)


def published(schedules: Schedules, now: int, most: int = 1 << 30) -> list[int]:
    """Publish up to `most` ticks that are due. Returns them."""
    found: list[int] = []
    while len(found) < most and (due := schedules.fetch_due(now, 1)):
        for tick in due:
            schedules.finish(tick)
            schedules.note(tick)
            found += [tick.at] if tick.is_published else []
    schedules.check()
    return found


@each("missed, now, expected", [
    # of a schedule that is due every 100 s
    (Missed.SKIP, 100, [100]),
    (Missed.SKIP, 100 + GRACE, [100]),
    (Missed.SKIP, 101 + GRACE, []),
    (Missed.SKIP, 250, []),
    (Missed.ONCE, 199, [100]),
    (Missed.ONCE, 1050, [100]),
    (Missed.ALL, 350, [100, 200, 300]),
    (Missed.ALL, 2 * MOST_LATE + 50, list(range(MOST_LATE + 100, 2 * MOST_LATE + 50, 100))),
])  # fmt: skip
def test_missed_ticks(missed: Missed, now: int, expected: list[int]) -> None:
    schedules = Schedules()
    schedules.put(schedule(Every(100, 0), missed))
    assert published(schedules, now) == expected
    following = now // 100 * 100 + 100
    assert (schedules.next_tick(KEY), published(schedules, following)) == (following, [following])


def test_one_tick_older_than_all_others_is_published_though_it_is_late() -> None:
    schedules = Schedules()
    schedules.put(schedule(At(100), Missed.ALL))
    assert published(schedules, 10 * MOST_LATE) == [100]
    assert not schedules.known


def test_a_clock_that_is_set_back_repeats_nothing_over_a_restart_or_a_replacement() -> None:
    schedules = Schedules()
    schedules.put(schedule(Every(100, 0)))
    assert published(schedules, 100) == [100]
    assert published(schedules, 50) == []
    again = Schedules()
    again.restore(schedules.known.values(), schedules.noted)
    again.put(schedule(Every(50, 0), since=50))
    assert [published(again, now) for now in (60, 100, 149, 150)] == [[], [], [], [150]]


def test_a_pause_drops_its_ticks_and_a_refusal_only_delays() -> None:
    schedules = Schedules()
    schedules.put(schedule(Every(100, 0), Missed.ALL))
    schedules.put(replace(schedules.known[KEY], paused=True))
    assert (schedules.next_tick(KEY), published(schedules, 500)) == (0, [])
    schedules.put(replace(schedules.known[KEY], paused=False, since=510))
    (tick,) = schedules.fetch_due(600, 9)
    schedules.retry(tick, 605)
    assert (schedules.next_tick(KEY), published(schedules, 604), published(schedules, 605)) == (600, [], [600])


def test_the_last_tick_is_noted_until_its_schedule_is_gone_from_the_file() -> None:
    schedules = Schedules()
    schedules.put(schedule(At(100)))
    (tick,) = schedules.fetch_due(100, 9)
    schedules.finish(tick)
    schedules.has_changed = False
    assert (schedules.known, schedules.noted) == ({}, {KEY: 0})
    schedules.note(tick)
    assert (schedules.has_changed, schedules.noted) == (True, {})
    over = Schedules()
    over.restore([schedule(At(100))], {KEY: 100})
    assert (over.known, over.noted, over.has_changed) == ({}, {}, True)
    over.put(schedule(At(100), since=100))  # a pause that ends after the only tick
    assert not over.known
    over.check()


def test_a_removed_schedule_is_not_noted() -> None:
    schedules = Schedules()
    schedules.put(schedule(Every(100, 0)))
    (tick,) = schedules.fetch_due(100, 9)
    schedules.finish(tick)
    schedules.remove(KEY)
    schedules.note(tick)
    assert (schedules.noted, schedules.size) == ({}, 0)


def test_random_histories_publish_each_tick_once() -> None:
    for seed in seeds(30):
        random, schedules, now = Random(seed), Schedules(), 0
        expected: list[tuple[str, int]] = []
        for number in range(5):
            period, start = random.randrange(1, 50), random.randrange(50)
            schedules.put(schedule(Every(period, start), Missed.ALL, start, f"n{number}"))
            expected += [(f"n{number}", tick) for tick in range(start + period, 1001, period)]
        found: list[tuple[str, int]] = []
        while now < 1000:
            now = min(1000, max(0, now + random.randrange(-20, 60)))
            for tick in schedules.fetch_due(now, random.randrange(1, 9)):
                if random.random() < 0.2:
                    schedules.retry(tick, now + 5)
                    continue
                found.append((tick.schedule.name, tick.at))
                schedules.finish(tick)
                schedules.note(tick)
            if random.random() < 0.1:
                again = Schedules()
                again.restore(schedules.known.values(), schedules.noted)
                schedules = again
            schedules.check()
        while due := schedules.fetch_due(now, 9):
            for tick in due:
                found.append((tick.schedule.name, tick.at))
                schedules.finish(tick)
        while due := schedules.fetch_due(now + 5, 9):
            for tick in due:
                found += [(tick.schedule.name, tick.at)] if tick.at <= now else []
                schedules.finish(tick)
        assert sorted(found) == sorted(expected), seed

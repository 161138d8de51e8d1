"""Missed ticks, clocks that step, pauses and removals of schedules, in virtual time."""

from dataclasses import replace
from random import Random

from nsqd.core.records import RecordKind
from nsqd.core.scheduling.recurrence import At, Every, Recurrence
from nsqd.core.scheduling.schedules import GRACE, MOST_LATE, Schedules
from nsqd.core.scheduling.table import Missed, Schedule, ScheduleTable
from nsqd.core.sequence.mark import Mark
from tests.cases import each
from tests.effort import seeds

KEY = ("t", "n")


class Recorded(Schedules):
    """Schedules with the table that their records make."""

    def __init__(self) -> None:
        super().__init__(self._append)
        self.logged = ScheduleTable()

    def _append(self, kind: int, content: bytes) -> tuple[Mark, ...]:
        self.logged.apply(RecordKind(kind), content)
        return ()

    def restarted(self) -> "Recorded":
        """Return what a restart makes of the records."""
        assert (self.logged.known, self.logged.noted) == (self.known, self.noted)
        again = Recorded()
        again.logged = self.logged
        again.load(self.logged)
        again.check()
        return again


def schedule(recurrence: Recurrence, missed: Missed = Missed.ONCE, since: int = 0, name: str = "n") -> Schedule:
    return Schedule("t", name, recurrence, missed, b"body", (("a", "b"),), since)


def published(schedules: Schedules, now: int, most: int = 1 << 30) -> list[int]:
    """Publish up to `most` ticks that are due. Returns them."""
    found: list[int] = []
    while len(found) < most and (due := schedules.fetch_due(now, 1)):
        for tick in due:
            schedules.finish(tick)
            schedules.note([tick])
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
    schedules = Recorded()
    schedules.put(schedule(Every(100, 0), missed))
    assert published(schedules, now) == expected
    following = now // 100 * 100 + 100
    assert (schedules.next_tick(KEY), published(schedules, following)) == (following, [following])


def test_one_tick_older_than_all_others_is_published_though_it_is_late() -> None:
    schedules = Recorded()
    schedules.put(schedule(At(100), Missed.ALL))
    assert published(schedules, 10 * MOST_LATE) == [100]
    assert not schedules.known


def test_a_clock_that_is_set_back_repeats_nothing_over_a_restart_or_a_replacement() -> None:
    schedules = Recorded()
    schedules.put(schedule(Every(100, 0)))
    assert published(schedules, 100) == [100]
    assert published(schedules, 50) == []
    again = schedules.restarted()
    again.put(schedule(Every(50, 0), since=50))
    assert [published(again, now) for now in (60, 100, 149, 150)] == [[], [], [], [150]]


def test_a_pause_drops_its_ticks_and_a_refusal_only_delays() -> None:
    schedules = Recorded()
    schedules.put(schedule(Every(100, 0), Missed.ALL))
    schedules.put(replace(schedules.known[KEY], paused=True))
    assert (schedules.next_tick(KEY), published(schedules, 500)) == (0, [])
    schedules.put(replace(schedules.known[KEY], paused=False, since=510))
    (tick,) = schedules.fetch_due(600, 9)
    schedules.retry(tick, 605)
    assert (schedules.next_tick(KEY), published(schedules, 604), published(schedules, 605)) == (600, [], [600])


def test_a_schedule_whose_last_tick_is_over_stays_until_its_message_is_safe() -> None:
    schedules = Recorded()
    schedules.put(schedule(At(100)))
    (tick,) = schedules.fetch_due(100, 9)
    schedules.finish(tick)
    schedules.check()
    assert (schedules.next_tick(KEY), published(schedules, 200)) == (0, [])
    assert published(schedules.restarted(), 200) == [100]  # under the same key
    schedules.note([tick])
    assert (schedules.known, schedules.restarted().known) == ({}, {})


def test_a_tick_that_is_not_safe_when_the_node_stops_is_noted() -> None:
    schedules = Recorded()
    for name in "an":
        schedules.put(schedule(Every(100, 0), name=name))
    for tick in schedules.fetch_due(100, 9):
        schedules.finish(tick)
    assert published(schedules.restarted(), 100) == [100, 100]
    schedules.note_all()
    assert published(schedules.restarted(), 100) == []


def test_a_schedule_that_was_removed_or_replaced_before_its_tick_is_noted() -> None:
    schedules = Recorded()
    schedules.put(schedule(Every(100, 0)))
    (tick,) = schedules.fetch_due(100, 9)
    schedules.finish(tick)
    schedules.put(schedule(Every(100, 0), since=150))
    schedules.note([tick])
    assert schedules.restarted().noted == {KEY: 150}
    schedules.remove(KEY)
    schedules.note([tick])
    assert (schedules.restarted().noted, schedules.size) == ({}, 0)


def test_a_schedule_of_another_log_continues_behind_the_ticks_of_both() -> None:
    for over, mine, expected in ((300, 0, 400), (100, 300, 400), (300, 300, 400)):
        schedules = Recorded()
        if mine:
            schedules.put(schedule(Every(100, 0)))
            assert published(schedules, mine) == [100]
        schedules.put(schedule(Every(100, 0)), over)
        schedules.check()
        assert schedules.restarted().next_tick(KEY) == schedules.next_tick(KEY) == expected


def test_random_histories_publish_each_tick_once() -> None:
    for seed in seeds(30):
        random, schedules, now = Random(seed), Recorded(), 0
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
                schedules.note([tick])
            if random.random() < 0.1:
                schedules = schedules.restarted()
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

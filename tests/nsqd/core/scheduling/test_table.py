"""The durable state of schedules: its records, what a checkpoint and the tail of a log have of it, and unknown time zones."""

from nsqd.core.records import RecordKind
from nsqd.core.scheduling.recurrence import At, Cron, Every, read_cron
from nsqd.core.scheduling.table import (
    Missed,
    Schedule,
    ScheduleTable,
    new_schedule,
    pack_removed,
    pack_schedule,
    pack_ticks,
)

KNOWN = [
    Schedule("t", "a", Every(60, 5), Missed.ONCE, b"\0\xff", (("h", "\u00e9"),), 5),
    Schedule("t", "b", At(9), Missed.SKIP, b"x", (), 5, paused=True),
    Schedule("u", "a", read_cron("0 0 * * *", "Europe/Berlin"), Missed.ALL, b"x", (), 5),
]


def table() -> ScheduleTable:
    """Return the three schedules; the ticks of one up to 65 are done with."""
    found = ScheduleTable()
    for schedule in KNOWN:
        found.apply(RecordKind.SCHEDULE, pack_schedule(schedule, schedule.since))
    found.apply(RecordKind.TICKS, pack_ticks([("t", "a", 65), ("t", "gone", 9)]))
    return found


def test_schedules_and_ticks_are_read_as_they_were_written() -> None:
    found = table()
    assert list(found.known.values()) == KNOWN
    assert found.noted == {("t", "a"): 65, ("t", "b"): 5, ("u", "a"): 5}
    for _ in range(2):  # the second one is gone already
        found.apply(RecordKind.SCHEDULE, pack_removed(("t", "a")))
        assert (found.known.keys(), found.noted.keys()) == ({("t", "b"), ("u", "a")},) * 2


def test_a_dump_leaves_out_what_has_gone_since_it_began() -> None:
    found = table()
    records = found.dump()
    first = next(records)
    found.apply(RecordKind.SCHEDULE, pack_removed(("t", "b")))
    again = ScheduleTable()
    for kind, content in [first, *records]:
        again.apply(kind, content)
        assert new_schedule(content) is None
    assert (again.known, again.noted) == (found.known, found.noted)


def test_a_tail_has_its_own_schedules() -> None:
    found = table()
    assert new_schedule(pack_schedule(KNOWN[0], 5)) == ("t", "a")
    assert new_schedule(pack_removed(("t", "a"))) is None
    found.keep_only({("t", "a"), ("v", "a")})
    assert (found.known, found.noted) == ({("t", "a"): KNOWN[0]}, {("t", "a"): 65})


def test_a_time_zone_that_this_machine_does_not_know_stops_its_schedule_only() -> None:
    found = ScheduleTable()
    elsewhere = Schedule("t", "n", Cron("0 0 * * *", "Mars", None), Missed.ONCE, b"x", (), 5)
    found.apply(RecordKind.SCHEDULE, pack_schedule(elsewhere, 5))
    assert found.known == {("t", "n"): elsewhere}
    assert elsewhere.recurrence.next_after(5) is None

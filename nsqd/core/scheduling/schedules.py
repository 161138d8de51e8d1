"""The live schedules of one log: which are due, and how missed ticks are made up for.

A *tick* is a time at which a schedule is due. The schedule's `over` is the time up to which its ticks are done with; the next
tick is the first one after that, whatever the clock says. So a clock that is set back repeats no tick.

A tick is missed if the node did not publish it before a later one was due, or within GRACE: because it was down, drained, or
had a full disk. `Missed` says how often the message is published then.

A node publishes by the schedules of its own log. Those of a log that it has promoted move there (nsqd/tasks/schedule_task.py).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from nsqd.core.records import RecordKind
from nsqd.core.scheduling.table import (
    Key,
    Missed,
    Schedule,
    ScheduleTable,
    pack_removed,
    pack_schedule,
    pack_ticks,
)
from nsqd.core.sequence.mark import Mark
from nsqd.core.timing.duequeue import DueQueue

GRACE = 60  # s after which a tick is missed, also if no later one is due
MOST_LATE = 7 * 24 * 3600  # s: of older ticks, Missed.ALL publishes one at most


@dataclass(frozen=True, slots=True)
class Tick:
    """A tick that is due. Afterwards all ticks up to `over` are done with."""

    schedule: Schedule
    at: int
    over: int
    is_published: bool  # False: it was missed, and is skipped


class Schedules(ScheduleTable):
    """See above. One thread uses it."""

    def __init__(self, record: Callable[[int, bytes], tuple[Mark, ...]]) -> None:
        """`record` appends a record to the log (Store.record)."""
        super().__init__()
        self._record = record
        self.size = 0  # bytes of all bodies and headers
        self._over: dict[Key, int] = {}  # of each schedule; later than `noted` if a message is not safe yet
        # exactly the schedules that are not paused, and that will be due
        self._due: DueQueue[Key] = DueQueue()
        self._handles: dict[Key, tuple[int, int]] = {}  # their entries in _due, and their next ticks
        # since the start: ticks published or skipped, and how often one was refused
        self.outcomes = Counter(published=0, skipped=0, refused=0)

    def load(self, table: ScheduleTable) -> None:
        """Take over, after a restart, what the log has."""
        for key, schedule in table.known.items():
            self._add(schedule, table.noted[key])

    def put(self, schedule: Schedule, over: int = 0) -> tuple[Mark, ...]:
        """Add a schedule, or replace the one of its name: ticks that this one has published are not published again.

        `over`: the time up to which another log has published its ticks. Returns the marks that its record has to reach.
        """
        self._add(schedule, max(over, self._over.get(schedule.key, 0)))
        return self._record(RecordKind.SCHEDULE, pack_schedule(schedule, self.noted[schedule.key]))

    def _add(self, schedule: Schedule, over: int) -> None:
        key = schedule.key
        self._forget(key)
        self.known[key] = schedule
        self.size += schedule.size
        self.noted[key] = max(over, schedule.since)
        self._advance(schedule, self.noted[key])

    def remove(self, key: Key) -> None:
        """Remove a schedule that is known."""
        self._forget(key)
        self._record(RecordKind.SCHEDULE, pack_removed(key))

    def _forget(self, key: Key) -> None:
        schedule = self.known.pop(key, None)
        if schedule is not None:
            self.size -= schedule.size
            del self._over[key], self.noted[key]
            self._cancel(key)

    def _cancel(self, key: Key) -> None:
        if key in self._handles:
            self._due.remove(self._handles.pop(key)[0])

    def next_tick(self, key: Key) -> int:
        """Return the next tick of a schedule; 0: it is paused, or never due again."""
        return self._handles[key][1] if key in self._handles else 0

    def last_tick(self, key: Key) -> int:
        """Return up to which time ticks of a schedule were published or skipped; 0: there was none since it was added."""
        over = self._over[key]
        return over if over > self.known[key].since else 0

    def fetch_due(self, now: int, limit: int) -> list[Tick]:
        """Return up to `limit` ticks that are due now. Pass each to `finish` or `retry` before the next call."""
        return [_decide(self.known[key], self._handles[key][1], now) for key in self._due.pop_due(now, limit)]

    def retry(self, tick: Tick, at: int) -> None:
        """Put off a tick that could not be published."""
        self.outcomes["refused"] += 1
        self._wait(tick.schedule.key, at, tick.at)

    def finish(self, tick: Tick) -> None:
        """Advance a schedule past a tick that was published or skipped."""
        self.outcomes["published" if tick.is_published else "skipped"] += 1
        self._advance(tick.schedule, tick.over)

    def note(self, ticks: Iterable[Tick]) -> None:
        """Record that ticks are done with: their messages are safe. A schedule that is never due again is removed."""
        self._note({tick.schedule.key: tick.over for tick in ticks})

    def note_all(self) -> None:
        """Note all ticks: their messages are in the log."""
        self._note(self._over)

    def _note(self, ticks: dict[Key, int]) -> None:
        new = {key: over for key, over in ticks.items() if over > self.noted.get(key, over)}
        self.noted.update(new)
        for key in [key for key in new if key not in self._handles and not self.known[key].paused]:
            self.remove(key)
            del new[key]
        if new:
            self._record(RecordKind.TICKS, pack_ticks((*key, over) for key, over in new.items()))

    def _advance(self, schedule: Schedule, over: int) -> None:
        key = schedule.key
        self._over[key] = over
        following = schedule.recurrence.next_after(over)
        if following is None or schedule.paused:
            self._cancel(key)
        else:
            self._wait(key, following, following)

    def _wait(self, key: Key, until: int, tick: int) -> None:
        self._cancel(key)
        self._handles[key] = self._due.push(until, key), tick

    def check(self) -> None:
        """Raise AssertionError if an invariant of the schedules does not hold."""
        self._due.check()
        active = {
            key for key, one in self.known.items() if not one.paused and one.recurrence.next_after(self._over[key])
        }
        assert set(self._handles) == set(self._due.values()) == active
        assert set(self._over) == set(self.known) == set(self.noted)
        assert all(self.noted[key] <= over for key, over in self._over.items())
        assert self.size == sum(schedule.size for schedule in self.known.values())


def _decide(schedule: Schedule, at: int, now: int) -> Tick:
    """Return what becomes of a tick that is due, and of later ones that are due, too."""
    recurrence = schedule.recurrence
    if schedule.missed is Missed.ALL:
        recent = recurrence.next_after(now - MOST_LATE)
        at = max(at, recent) if recent is not None and recent <= now else at
        return Tick(schedule, at, at, True)
    following = recurrence.next_after(at)
    is_alone = following is None or following > now
    # that of the first: after a crash, the same tick is published under the same key
    is_published = schedule.missed is Missed.ONCE or (is_alone and now - at <= GRACE)
    return Tick(schedule, at, at if is_alone else now, is_published)

"""All schedules of a node: which are due, and how missed ticks are made up for.

A *tick* is a time at which a schedule is due. The schedule's `over` is the time up to which its ticks are done with; the next
tick is the first one after that, whatever the clock says. So a clock that is set back repeats no tick.

A tick is missed if the node did not publish it before a later one was due, or within GRACE: because it was down, drained, or
had a full disk. `Missed` says how often the message is published then.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum

from nsqd.core.message.attributes import Attributes
from nsqd.core.scheduling.recurrence import Recurrence
from nsqd.core.timing.duequeue import DueQueue
from penstock.protocol.headers import Headers

GRACE = 60  # s after which a tick is missed, also if no later one is due
MOST_LATE = 7 * 24 * 3600  # s: of older ticks, Missed.ALL publishes one at most
Key = tuple[str, str]  # topic and name


class Missed(Enum):
    """How many messages are published for missed ticks: none, one for all of them together, or one for each."""

    SKIP = "skip"
    ONCE = "once"
    ALL = "all"


@dataclass(frozen=True, slots=True)
class Schedule:
    """A message, and when it is published."""

    topic: str
    name: str
    recurrence: Recurrence
    missed: Missed
    body: bytes
    headers: Headers
    since: int  # ticks up to this time are not published: it was created, or its pause ended
    paused: bool = False

    @property
    def key(self) -> Key:
        return self.topic, self.name

    @property
    def size(self) -> int:
        """Return the number of bytes that it publishes."""
        return len(self.body) + sum(len(name) + len(value) for name, value in self.headers)

    def attributes(self, tick: int) -> Attributes:
        """Return the attributes of the message of a tick. Its key has the tick published once, over crashes and restarts."""
        return Attributes(self.headers, key=f"schedule:{self.name}:{tick}")


@dataclass(frozen=True, slots=True)
class Tick:
    """A tick that is due. Afterwards all ticks up to `over` are done with."""

    schedule: Schedule
    at: int
    over: int
    is_published: bool  # False: it was missed, and is skipped


class Schedules:
    """See above. One thread uses it."""

    def __init__(self) -> None:
        self.known: dict[Key, Schedule] = {}
        self.size = 0  # bytes of all bodies and headers
        self._over: dict[Key, int] = {}  # of each known schedule
        self._due: DueQueue[Key] = DueQueue()  # exactly the schedules that are not paused
        self._handles: dict[Key, tuple[int, int]] = {}  # their entries in _due, and their next ticks
        # for the file: `over` of ticks whose messages are safe, also of removed schedules whose last message is not safe yet
        self.noted: dict[Key, int] = {}
        # since the start: ticks published or skipped, and how often one was refused
        self.outcomes = Counter(published=0, skipped=0, refused=0)
        self.has_changed = False  # True: the file of the schedules is older than `known`
        self.has_new_notes = False  # True: the file of the ticks is older than `noted`

    def restore(self, schedules: Iterable[Schedule], noted: Mapping[Key, int]) -> None:
        """Take over what the files hold."""
        for schedule in schedules:
            self._add(schedule, noted.get(schedule.key, 0))

    def put(self, schedule: Schedule) -> None:
        """Add a schedule, or replace the one of its name: ticks that this one has published are not published again."""
        self._add(schedule, self._over.get(schedule.key, 0))
        self.has_changed = True

    def _add(self, schedule: Schedule, over: int) -> None:
        self._forget(schedule.key)
        self.known[schedule.key] = schedule
        self.size += schedule.size
        self.noted[schedule.key] = max(over, schedule.since)
        self._advance(schedule, max(over, schedule.since))
        if schedule.key not in self.known:  # it is never due again
            del self.noted[schedule.key]
            self.has_changed = True

    def remove(self, key: Key) -> None:
        """Remove a schedule that is known."""
        self._forget(key)
        self.noted.pop(key, None)
        self.has_changed = True

    def _forget(self, key: Key) -> None:
        schedule = self.known.pop(key, None)
        if schedule is not None:
            self.size -= schedule.size
            del self._over[key]
            self._cancel(key)

    def _cancel(self, key: Key) -> None:
        if key in self._handles:
            self._due.remove(self._handles.pop(key)[0])

    def next_tick(self, key: Key) -> int:
        """Return the next tick of a schedule; 0: it is paused."""
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
        """Continue after a tick. A schedule that is never due again is removed."""
        self.outcomes["published" if tick.is_published else "skipped"] += 1
        self._advance(tick.schedule, tick.over)

    def note(self, tick: Tick) -> None:
        """Remember over restarts that a tick is done with: its message is safe."""
        key = tick.schedule.key
        if key in self.known:
            self.noted[key] = max(tick.over, self.noted[key])
            self.has_new_notes = True
        elif self.noted.pop(key, None) is not None:  # that was its last tick
            self.has_changed = True

    def note_all(self) -> None:
        """Note all ticks: the log is closed, and all messages are safe."""
        self.has_changed |= len(self.noted) > len(self._over)
        self.noted = dict(self._over)
        self.has_new_notes = bool(self.noted)

    def _advance(self, schedule: Schedule, over: int) -> None:
        key = schedule.key
        self._over[key] = over
        following = schedule.recurrence.next_after(over)
        if following is None:
            self._forget(key)
        elif schedule.paused:
            self._cancel(key)
        else:
            self._wait(key, following, following)

    def _wait(self, key: Key, until: int, tick: int) -> None:
        self._cancel(key)
        self._handles[key] = self._due.push(until, key), tick

    def check(self) -> None:
        """Raise AssertionError if an invariant of the schedules does not hold."""
        self._due.check()
        active = {key for key, schedule in self.known.items() if not schedule.paused}
        assert set(self._handles) == set(self._due.values()) == active
        assert set(self._over) == set(self.known) <= set(self.noted)
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

"""The alarms that are raised, their snoozes, and the changes since the last check. Pure.

An alarm is raised for one subject of one rule, and ends when its condition does, or `hold` seconds later. A snooze silences
one subject, or a whole rule, until a time: the alarm is still listed, but raises no banner and no notification. If it is still
raised when its snooze ends, it is notified then; the end of an alarm is notified if its beginning was.
All times are ns since the epoch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from admin.alarms.rules import BY_NAME, RULES, Rule, Severity
from admin.alarms.subject import Subject
from admin.times import clock
from shared.json_fields import JsonObject
from shared.values import SECOND

MOST_SUBJECTS = 10_000  # alarms at a time; the others are counted
MOST_SNOOZES = 1000
LONGEST_REASON = 200  # characters
_PLACES = {rule.name: place for place, rule in enumerate(RULES)}
Id = tuple[str, str]  # rule and subject; the subject "" stands for the whole rule


@dataclass(frozen=True, slots=True)
class Snooze:
    """The pause of the notifications of an alarm or a whole rule. Pages still show it."""

    until: int  # ns since the epoch
    by: str
    reason: str


@dataclass(frozen=True, slots=True)
class Alarm:
    """A condition of one subject that a rule found, since a time in ns since the epoch."""

    subject: Subject
    since: int
    seen: int  # when its condition held last
    snooze: Snooze | None = None
    is_raised: bool = True  # False: its condition has not held for long enough
    # The worst severity with which it was in Changes.raised, of this process or the one before; None: it was in none.
    notified: Severity | None = None
    is_found: bool = True  # False: its condition did not hold at the last check; it ends with the hold of its rule
    current: str = ""  # the value at the last check as text, if its condition did not hold then; "": not known

    @property
    def rule(self) -> Rule:
        return BY_NAME[self.subject.rule]

    @property
    def is_news(self) -> bool:
        """Whether a notification is due, unless it is snoozed."""
        return self.is_raised and (self.notified is None or self.subject.severity < self.notified)

    @property
    def id(self) -> Id:
        return self.subject.rule, self.subject.key

    @property
    def words(self) -> str:
        """The problem as it is now; of an alarm that is only held, the value now, and the problem when it was found last."""
        if self.is_found:
            return self.subject.words
        return f"{self.current or 'no longer'}; at {clock(self.seen)} it was: {self.subject.words}"

    @property
    def advice(self) -> str:
        """Return the action to take, as the problem or its rule has it."""
        return self.subject.advice or self.rule.action

    def json(self) -> JsonObject:
        """Return the alarm in the form of /api/alarms; times in s since the epoch. `value` and `text` are of `seen`."""
        one, rule, snooze = self.subject, self.rule, self.snooze
        return {
            "rule": rule.name, "severity": one.severity.word, "title": rule.title, "subject": one.key, "topic": one.topic,
            "value": one.value, "text": self.words, "since": self.since // SECOND, "seen": self.seen // SECOND,
            "meaning": rule.meaning, "action": self.advice, "runbook": f"docs/{rule.runbook}", "path": one.path,
            "snoozed": snooze and {"until": snooze.until // SECOND, "by": snooze.by, "reason": snooze.reason},
        }  # fmt: skip


@dataclass(frozen=True, slots=True)
class Changes:
    """Alarms to notify after a check.

    Each is in `raised` once, and again when it becomes more severe than ever before; after that it is in `ended` once.
    """

    raised: list[Alarm]
    ended: list[Alarm]


@dataclass(frozen=True, slots=True)
class Group:
    """The alarms of one rule: the worst first."""

    rule: Rule
    alarms: list[Alarm]

    @property
    def severity(self) -> Severity:
        """The severity of its worst alarm."""
        return min(one.subject.severity for one in self.alarms)

    @property
    def since(self) -> int:
        """When the first of its alarms was raised."""
        return min(one.since for one in self.alarms)


class AlarmBook:
    """Remembers the alarms from check to check, and finds the new ones and those that have ended."""

    def __init__(self, since: Mapping[Id, int] | None = None, snoozes: Mapping[Id, Snooze] | None = None) -> None:
        """`since`: alarms from before a restart. They are not new if they are found again; else the first check ends them."""
        self._before = {key: at for key, at in (since or {}).items() if key[0] in BY_NAME}
        self._first = 0  # time of the first check; 0: there was none
        self._cleared: list[Alarm] = []  # whose end is not yet notified
        self._alarms: dict[Id, Alarm] = {}
        self._snoozes = dict(snoozes or {})
        self.left_out = 0

    def update(
        self, found: Iterable[Subject], now: int, current: Callable[[Subject], str] = lambda subject: ""
    ) -> Changes:
        """Note the subjects that a check has found, and return the changes. `current`: see Checks.current."""
        self._first = self._first or now
        subjects = list(found)
        self.left_out = max(0, len(subjects) - MOST_SUBJECTS)
        if self.left_out:  # those that are known come first: one more must not end another
            subjects.sort(key=lambda one: (one.severity, (one.rule, one.key) not in self._alarms))
        for subject in subjects[:MOST_SUBJECTS]:
            self._note(subject, now)
        self._snoozes = {key: one for key, one in self._snoozes.items() if one.until > now}
        over = [one for one in self._alarms.values() if _is_over(one.seen, now, one.rule.hold * one.is_raised)]
        for one in over:
            del self._alarms[one.id]
        held = [one for one in self._alarms.values() if one.seen != now]
        self._alarms |= {one.id: replace(one, is_found=False, current=current(one.subject)) for one in held}
        over += self._cleared + self._not_found_again(now)
        self._cleared = []
        raised = [one for one in self._alarms.values() if one.is_news and not self._snooze_of(one.id)]
        self._alarms |= {one.id: replace(one, notified=one.subject.severity) for one in raised}
        ended = [one for one in over if one.notified is not None]
        return Changes(*(sorted(alarms, key=lambda one: one.subject.severity) for alarms in (raised, ended)))

    def _note(self, subject: Subject, now: int) -> None:
        key = subject.rule, subject.key
        known = self._alarms.get(key)
        if known is not None:
            since = min(known.since, now)  # the clock may have been set back
            is_raised = known.is_raised or now - since >= known.rule.delay * SECOND
            self._alarms[key] = Alarm(subject, since, now, None, is_raised, known.notified)
        elif before := self._before.pop(key, 0):
            self._alarms[key] = self._earlier(subject, before, now)
        else:
            since = subject.since or now
            is_raised = now - since >= BY_NAME[subject.rule].delay * SECOND
            self._alarms[key] = Alarm(subject, since, now, is_raised=is_raised)

    def _not_found_again(self, now: int) -> list[Alarm]:
        """Forget the alarms from before a restart that have ended, and return them."""
        over = {key: at for key, at in self._before.items() if _is_over(self._first, now, BY_NAME[key[0]].hold)}
        for key in over:
            del self._before[key]
        words = "not found after a restart of nsqadmin"
        subjects = [(Subject(*key, key[1], "", words, 0.0, BY_NAME[key[0]].severity), at) for key, at in over.items()]
        return [self._earlier(one, at, self._first) for one, at in subjects]

    def _earlier(self, subject: Subject, since: int, seen: int) -> Alarm:
        """Return an alarm from before a restart. It was notified then with the severity of now, unless it is snoozed."""
        is_snoozed = self._snooze_of((subject.rule, subject.key)) is not None
        return Alarm(subject, since, seen, notified=None if is_snoozed else subject.severity)

    def clear(self, rule: str, key: str) -> None:
        """End an alarm at once, as that of a node that was dismissed."""
        alarm = self._alarms.pop((rule, key), None)
        self._cleared += [alarm] if alarm is not None else []

    # Snoozes

    def snooze(self, key: Id, snooze: Snooze) -> bool:
        """Silence an alarm or a rule. Returns False if there are too many snoozes."""
        if key not in self._snoozes and len(self._snoozes) >= MOST_SNOOZES:
            return False
        self._snoozes[key] = snooze
        return True

    def wake(self, key: Id) -> bool:
        """End a snooze. Returns False if there is none."""
        return self._snoozes.pop(key, None) is not None

    @property
    def snoozes(self) -> Mapping[Id, Snooze]:
        """All snoozes, by rule and subject."""
        return self._snoozes

    # Queries

    def all(self) -> list[Alarm]:
        """Return all alarms, the most severe and largest first, in the order of the rules."""
        raised = (one for one in self._alarms.values() if one.is_raised)
        alarms = [one if (snooze := self._snooze_of(one.id)) is None else replace(one, snooze=snooze) for one in raised]
        return sorted(
            alarms,
            key=lambda one: (one.subject.severity, _PLACES[one.subject.rule], -one.subject.value, one.subject.key),
        )

    def since(self) -> dict[Id, int]:
        """Return the time at which each alarm was raised."""
        return self._before | {key: one.since for key, one in self._alarms.items() if one.is_raised}

    def _snooze_of(self, key: Id) -> Snooze | None:
        """Return the snooze of an alarm, or of its whole rule."""
        return self._snoozes.get(key) or self._snoozes.get((key[0], "")) if self._snoozes else None


def _is_over(seen: int, now: int, hold: float) -> bool:
    """Return whether an alarm whose condition held at `seen` has ended. `hold` is in s. The clock may have been set back."""
    return seen != now and not 0 <= now - seen <= hold * SECOND


def grouped(alarms: Iterable[Alarm]) -> list[Group]:
    """Return the alarms by rule, the most severe rule first."""
    groups: dict[str, Group] = {}
    for one in alarms:
        groups.setdefault(one.subject.rule, Group(one.rule, [])).alarms.append(one)
    return sorted(groups.values(), key=lambda group: group.severity)


def topics_in_trouble(alarms: Iterable[Alarm]) -> dict[str, Alarm]:
    """Return the topics that alarms concern, each with the first of its alarms that is not snoozed: of `all`, the worst."""
    worst_last = reversed([one for one in alarms if one.subject.topic and one.snooze is None])
    return {one.subject.topic: one for one in worst_last}

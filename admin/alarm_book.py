"""The alarms that are raised: since when, who has snoozed them, and what has changed since the last look. Pure.

An alarm is raised for one subject of one rule, and ends when its condition does, or `hold` seconds later. A snooze silences
one subject, or a whole rule, until a time: the alarm is still listed, but raises no banner and no notification.
All times are ns since the epoch.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from admin.alarm_checks import Subject
from admin.alarm_rules import BY_NAME, RULES, Rule, Severity
from admin.merge import JsonObject

SECOND = 1_000_000_000
MOST_SUBJECTS = 10_000  # alarms at a time; the others are counted
MOST_SNOOZES = 1000
LONGEST_REASON = 200  # characters
Id = tuple[str, str]  # rule and subject; the subject "" stands for the whole rule


@dataclass(frozen=True, slots=True)
class Snooze:
    """Somebody has silenced an alarm."""

    until: int
    by: str
    reason: str


@dataclass(frozen=True, slots=True)
class Alarm:
    """An alarm that is raised."""

    subject: Subject
    since: int
    seen: int  # when its condition held last
    snooze: Snooze | None = None
    is_raised: bool = True  # False: its condition has not held for long enough

    @property
    def rule(self) -> Rule:
        """The rule of the alarm."""
        return BY_NAME[self.subject.rule]

    @property
    def id(self) -> Id:
        """What identifies the alarm."""
        return self.subject.rule, self.subject.key

    def json(self) -> JsonObject:
        """Return the alarm in the form of /api/alarms; times in s since the epoch."""
        one, rule = self.subject, self.rule
        silenced = self.snooze
        return {
            "rule": rule.name,
            "severity": one.severity.word,
            "title": rule.title,
            "subject": one.key,
            "topic": one.topic,
            "value": one.value,
            "text": one.words,
            "since": self.since // SECOND,
            "meaning": rule.meaning,
            "action": rule.action,
            "runbook": f"docs/operations/{rule.runbook}",
            "path": one.path,
            "snoozed": None
            if silenced is None
            else {"until": silenced.until // SECOND, "by": silenced.by, "reason": silenced.reason},
        }


@dataclass(frozen=True, slots=True)
class Changes:
    """Alarms that began or ended with a look, without snoozed ones."""

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
    """All alarms that are raised."""

    def __init__(self, since: Mapping[Id, int] | None = None, snoozes: Mapping[Id, Snooze] | None = None) -> None:
        """`since` are alarms from before a restart: if they are found again, they have begun then, and are not new."""
        self._before = dict(since or {})
        self._alarms: dict[Id, Alarm] = {}
        self._snoozes = dict(snoozes or {})
        self.left_out = 0

    def update(self, found: Iterable[Subject], now: int) -> Changes:
        """Note what a look has found. Returns what has changed."""
        raised: list[Alarm] = []
        subjects = sorted(found, key=lambda one: one.severity)
        self.left_out = max(0, len(subjects) - MOST_SUBJECTS)
        for subject in subjects[:MOST_SUBJECTS]:
            key = subject.rule, subject.key
            known = self._alarms.get(key)
            before = self._before.get(key, 0)
            since = known.since if known is not None else before or subject.since or now
            alarm = Alarm(subject, since, now, is_raised=bool(before) or (known is not None and known.is_raised))
            if not alarm.is_raised and now - since >= alarm.rule.delay * SECOND:
                alarm = replace(alarm, is_raised=True)
                raised.append(alarm)
            self._alarms[key] = alarm
        self._before.clear()
        over = [one for one in self._alarms.values() if now - one.seen > one.rule.hold * SECOND * one.is_raised]
        for one in over:
            del self._alarms[one.id]
        over = [one for one in over if one.is_raised]
        self._snoozes = {key: one for key, one in self._snoozes.items() if one.until > now}
        return Changes(*([one for one in alarms if self._snooze_of(one) is None] for alarms in (raised, over)))

    def clear(self, rule: str, key: str) -> None:
        """End an alarm at once, as that of a node that was dismissed."""
        self._alarms.pop((rule, key), None)

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
        place = {rule.name: at for at, rule in enumerate(RULES)}
        alarms = [replace(one, snooze=self._snooze_of(one)) for one in self._alarms.values() if one.is_raised]
        return sorted(
            alarms, key=lambda one: (one.subject.severity, place[one.subject.rule], -one.subject.value, one.subject.key)
        )

    def since(self) -> dict[Id, int]:
        """Return when each alarm was raised."""
        return {key: one.since for key, one in self._alarms.items() if one.is_raised}

    def _snooze_of(self, alarm: Alarm) -> Snooze | None:
        return self._snoozes.get(alarm.id) or self._snoozes.get((alarm.subject.rule, ""))


def grouped(alarms: Iterable[Alarm]) -> list[Group]:
    """Return the alarms by rule, the most severe rule first."""
    groups: dict[str, Group] = {}
    for one in alarms:
        groups.setdefault(one.subject.rule, Group(one.rule, [])).alarms.append(one)
    return sorted(groups.values(), key=lambda group: group.severity)


def topics_in_trouble(alarms: Iterable[Alarm]) -> dict[str, Severity]:
    """Return the topics that alarms concern, each with its worst severity."""
    found: dict[str, Severity] = {}
    for one in alarms:
        topic, severity = one.subject.topic, one.subject.severity
        if topic and one.snooze is None:
            found[topic] = min(severity, found.get(topic, severity))
    return found

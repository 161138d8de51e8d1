"""Alarms are raised and ended once, and go on over a restart."""

from __future__ import annotations

from admin.alarm_book import AlarmBook, Snooze
from admin.alarm_checks import Subject
from admin.alarm_rules import Severity
from tests.admin.looks import NOW, SECOND


def subject(rule: str = "buried", key: str = "t/c", **more: object) -> Subject:
    given = {"name": key, "path": "", "words": "x", "value": 1.0, "severity": Severity.WARNING, "topic": "t", **more}
    return Subject(rule, key, **given)  # type: ignore[arg-type]


def test_an_alarm_is_raised_and_ended_once() -> None:
    book = AlarmBook()
    changes = book.update([subject()], NOW)
    assert [one.id for one in changes.raised] == [("buried", "t/c")]
    changes = book.update([subject(words="y")], NOW + SECOND)
    assert (changes.raised, changes.ended) == ([], [])
    assert [(one.since, one.subject.words) for one in book.all()] == [(NOW, "y")]
    changes = book.update([], NOW + 2 * SECOND)
    assert [one.id for one in changes.ended] == [("buried", "t/c")]
    assert book.all() == []


def test_a_snooze_silences_until_it_ends() -> None:
    book = AlarmBook()
    assert book.snooze(("buried", "t/c"), Snooze(NOW + SECOND, "a", "known"))
    assert book.update([subject()], NOW).raised == []
    assert book.all()[0].snooze is not None

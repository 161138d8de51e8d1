"""Alarms are raised and told once, end once, and go on over a restart."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import pytest

from admin import alarm_book
from admin.alarm_book import MOST_SNOOZES, AlarmBook, Changes, Id, Snooze, grouped, topics_in_trouble
from admin.alarm_rules import BY_NAME, Severity
from admin.alarm_subject import Subject
from admin.times import clock
from tests.admin.looks import MINUTE, NOW, SECOND

BURIED: Id = ("buried", "t/c")
HOLD = int(BY_NAME["failures"].hold) * SECOND
DELAY = int(BY_NAME["topic-without-channel"].delay) * SECOND


def subject(rule: str = "buried", key: str = "t/c", **more: Any) -> Subject:
    given = {"name": key, "path": "", "words": "x", "value": 1.0, "severity": Severity.WARNING, "topic": "t", **more}
    return Subject(rule, key, **given)


def told(changes: Changes) -> tuple[list[str], list[str]]:
    """Return which rules were raised and which have ended."""
    return [one.subject.rule for one in changes.raised], [one.subject.rule for one in changes.ended]


def run(book: AlarmBook, *looks: tuple[int, Iterable[Subject]]) -> list[tuple[list[str], list[str]]]:
    """Return what is told after each of these looks, at so many ns after NOW."""
    return [told(book.update(found, NOW + after)) for after, found in looks]


def test_an_alarm_is_raised_and_ended_once() -> None:
    book = AlarmBook()
    assert told(book.update([subject()], NOW)) == (["buried"], [])
    assert told(book.update([subject(words="y", value=2.0)], NOW + SECOND)) == ([], [])
    (alarm,) = book.all()
    assert (alarm.since, alarm.subject.words, alarm.subject.value) == (NOW, "y", 2.0)
    assert told(book.update([], NOW + 2 * SECOND)) == ([], ["buried"])
    assert told(book.update([], NOW + 3 * SECOND)) == ([], [])
    assert book.all() == []
    assert told(book.update([subject()], NOW + 4 * SECOND)) == (["buried"], []), "it is a new one"


def test_an_alarm_is_told_again_when_it_becomes_more_severe_than_ever() -> None:
    warning, critical = [subject()], [subject(severity=Severity.CRITICAL)]
    looks = enumerate((warning, critical, warning, critical, []))
    assert run(AlarmBook(), *looks) == [(["buried"], []), (["buried"], []), ([], []), ([], []), ([], ["buried"])]
    book = AlarmBook({BURIED: NOW})
    assert run(book, (1, warning), (2, critical)) == [([], []), (["buried"], [])], "also over a restart"
    assert book.all()[0].since == NOW


def test_hold() -> None:
    found = [subject("failures")]
    book = AlarmBook()
    assert run(book, (0, found), (HOLD, []), (HOLD + 1, [])) == [(["failures"], []), ([], []), ([], ["failures"])]
    book = AlarmBook()
    assert run(book, (0, found), (HOLD, []), (HOLD, found), (2 * HOLD, [])) == [(["failures"], [])] + 3 * [([], [])]
    assert book.all()[0].since == NOW, "it has not ended in between"


def test_an_alarm_that_is_only_held_shows_no_old_words_as_those_of_now() -> None:
    book, found = AlarmBook(), [subject("failures", words="3,755 in all")]
    book.update(found, NOW)
    assert book.all()[0].json()["text"] == "3,755 in all"
    book.update([], NOW + 74 * SECOND)
    was = f"no longer; at {clock(NOW)} it was: 3,755 in all"
    (alarm,) = book.all()
    assert (alarm.words, alarm.json()["text"], alarm.json()["seen"]) == (was, was, NOW // SECOND)
    book.update(found, NOW + 75 * SECOND)
    assert (book.all()[0].words, book.all()[0].since) == ("3,755 in all", NOW)
    book.update([], NOW + 76 * SECOND)
    (ended,) = book.update([], NOW + 76 * SECOND + HOLD).ended
    assert ended.words == f"no longer; at {clock(NOW + 75 * SECOND)} it was: 3,755 in all"


def test_delay() -> None:
    found, book = [subject("topic-without-channel")], AlarmBook()
    assert run(book, (0, found), (DELAY - 1, found)) == 2 * [([], [])]
    assert (book.all(), book.since()) == ([], {}), "nobody sees it yet"
    assert run(book, (DELAY, found), (DELAY + 1, found)) == [(["topic-without-channel"], []), ([], [])]
    assert book.all()[0].since == NOW
    book = AlarmBook()
    assert run(book, (0, found), (DELAY - 1, []), (DELAY, found)) == 3 * [([], [])], "it was gone in between"


def test_an_alarm_that_knows_since_when_has_no_delay_for_that_time() -> None:
    book = AlarmBook()
    assert told(book.update([subject("topic-without-channel", since=NOW - DELAY)], NOW)) == (
        ["topic-without-channel"],
        [],
    )
    assert book.since() == {("topic-without-channel", "t/c"): NOW - DELAY}


def test_a_clock_that_is_set_back_keeps_no_alarm() -> None:
    assert run(AlarmBook(), (0, [subject()]), (-MINUTE, [])) == [(["buried"], []), ([], ["buried"])]
    assert run(AlarmBook(), (0, [subject("failures")]), (-MINUTE, [])) == [(["failures"], []), ([], ["failures"])]


def test_a_clock_that_is_set_back_delays_no_alarm() -> None:
    found = [subject("topic-without-channel")]
    looks = (0, found), (-MINUTE, found), (DELAY - MINUTE, found)
    assert run(AlarmBook(), *looks) == [([], []), ([], []), (["topic-without-channel"], [])]


# Over a restart


def test_an_alarm_goes_on_over_a_restart() -> None:
    before = {BURIED: NOW - MINUTE, ("topic-without-channel", "t"): NOW - MINUTE}
    book = AlarmBook(before)
    found = [subject(), subject("topic-without-channel", "t")]
    assert run(book, (0, found), (SECOND, found)) == 2 * [([], [])], "it was told before, and delays are over"
    assert book.since() == before
    assert run(book, (2 * SECOND, [])) == [([], ["buried", "topic-without-channel"])]


def test_the_end_of_an_alarm_is_told_if_it_ended_while_nsqadmin_was_stopped() -> None:
    book = AlarmBook({BURIED: NOW - MINUTE, ("no-such-rule", "x"): NOW})
    assert run(book, (0, [])) == [([], [])]
    assert book.since() == {BURIED: NOW - MINUTE}
    changes = book.update([], NOW + 1)
    assert [(one.id, one.since) for one in changes.ended] == [(BURIED, NOW - MINUTE)]
    assert json.dumps(changes.ended[0].json())
    assert run(book, (2, [])) == [([], [])]
    assert book.since() == {}


def test_an_alarm_that_takes_two_looks_to_be_found_goes_on_over_a_restart() -> None:
    book = AlarmBook({("failures", "t/c"): NOW - MINUTE})
    assert run(book, (0, []), (HOLD, [subject("failures")])) == 2 * [([], [])]
    assert book.all()[0].since == NOW - MINUTE
    book = AlarmBook({("failures", "t/c"): NOW - MINUTE})
    assert run(book, (0, []), (HOLD + 1, [])) == [([], []), ([], ["failures"])]


def test_an_alarm_that_was_snoozed_before_a_restart_was_not_told() -> None:
    snoozes = {BURIED: Snooze(NOW + MINUTE, "a", "known")}
    assert run(AlarmBook({BURIED: NOW}, snoozes), (0, []), (1, [])) == 2 * [([], [])]
    book = AlarmBook({BURIED: NOW}, snoozes)
    assert run(book, (0, [subject()]), (MINUTE, [subject()])) == [([], []), (["buried"], [])]


# Snoozes


@pytest.mark.parametrize("key", [BURIED, ("buried", "")], ids=["a subject", "a rule"])
def test_a_snooze_silences_a_subject_or_a_rule_until_it_ends(key: Id) -> None:
    book, snooze = AlarmBook(), Snooze(NOW + MINUTE, "a", "known")
    assert book.snooze(key, snooze)
    assert run(book, (0, [subject()]), (MINUTE - 1, [subject()])) == 2 * [([], [])]
    assert [one.snooze for one in book.all()] == [snooze]
    assert book.all()[0].json()["snoozed"] == {"until": (NOW + MINUTE) // SECOND, "by": "a", "reason": "known"}
    assert run(book, (MINUTE, [subject()])) == [(["buried"], [])], "it is still there: others learn of it now"
    assert (book.snoozes, book.all()[0].snooze) == ({}, None)
    assert run(book, (MINUTE + 1, [])) == [([], ["buried"])]


def test_a_snooze_of_one_subject_silences_no_other() -> None:
    book = AlarmBook(snoozes={BURIED: Snooze(NOW + MINUTE, "a", "known")})
    changes = book.update([subject(), subject(key="t/d"), subject("failures")], NOW)
    assert {one.id for one in changes.raised} == {("buried", "t/d"), ("failures", "t/c")}


def test_what_begins_and_ends_in_a_snooze_is_not_told() -> None:
    book = AlarmBook(snoozes={BURIED: Snooze(NOW + MINUTE, "a", "known")})
    assert run(book, (0, [subject()]), (1, [])) == 2 * [([], [])]


def test_the_end_of_what_was_told_is_told_in_a_snooze_too() -> None:
    book = AlarmBook()
    assert run(book, (0, [subject()])) == [(["buried"], [])]
    book.snooze(BURIED, Snooze(NOW + MINUTE, "a", "known"))
    assert run(book, (1, [subject()]), (2, [])) == [([], []), ([], ["buried"])]


def test_a_snooze_is_ended_by_hand() -> None:
    book = AlarmBook(snoozes={BURIED: Snooze(NOW + MINUTE, "a", "known")})
    assert run(book, (0, [subject()])) == [([], [])]
    assert book.wake(BURIED)
    assert not book.wake(BURIED)
    assert run(book, (1, [subject()]), (2, [subject()])) == [(["buried"], []), ([], [])]


def test_snoozes_are_bounded() -> None:
    book, snooze = AlarmBook(), Snooze(NOW + MINUTE, "a", "known")
    assert all(book.snooze(("buried", str(number)), snooze) for number in range(MOST_SNOOZES))
    assert not book.snooze(("buried", "x"), snooze)
    assert book.snooze(("buried", "1"), snooze), "it is changed"
    book.update([], NOW + MINUTE)
    assert book.snoozes == {}, "they are over, whether there is such an alarm or not"


# Others


def test_an_alarm_that_is_cleared_is_gone_at_once_and_its_end_is_told_once() -> None:
    book = AlarmBook()
    book.update([subject()], NOW)
    book.clear(*BURIED)
    book.clear("buried", "no such alarm")
    assert (book.all(), book.since()) == ([], {})
    assert run(book, (1, []), (2, [])) == [([], ["buried"]), ([], [])]


def test_alarms_are_bounded_and_those_that_are_raised_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alarm_book, "MOST_SUBJECTS", 3)
    book = AlarmBook()
    first = [subject(key=f"t/{number}") for number in range(3)]
    assert run(book, (0, first)) == [(3 * ["buried"], [])]
    more = [subject(key=f"s/{number}") for number in range(5)]
    assert run(book, (1, [*more, *first])) == [([], [])]
    assert book.left_out == 5
    assert {one.subject.key for one in book.all()} == {"t/0", "t/1", "t/2"}
    worse = subject("node-down", "n:1", severity=Severity.CRITICAL)
    assert run(book, (2, [*more, *first, worse])) == [(["node-down"], ["buried"])]
    assert len(book.all()) == 3
    book.update(first, NOW + 3)
    assert book.left_out == 0


def test_the_worst_is_first() -> None:
    book = AlarmBook()
    found = [
        subject("buried", "b", value=1.0),
        subject("buried", "a", value=1.0),
        subject("buried", "c", value=9.0),
        subject("failures", "f", value=99.0),
        subject("draining", "n", severity=Severity.INFO),
        subject("node-down", "n", severity=Severity.CRITICAL),
    ]
    changes = book.update(found, NOW)
    assert [one.subject.key for one in book.all()] == ["n", "c", "a", "b", "f", "n"]
    assert changes.raised[0].subject.rule == "node-down"
    groups = grouped(book.all())
    assert [(group.rule.name, len(group.alarms)) for group in groups][:2] == [("node-down", 1), ("buried", 3)]
    assert (groups[0].severity, groups[0].since) == (Severity.CRITICAL, NOW)


def test_topics_in_trouble() -> None:
    book = AlarmBook(snoozes={("failures", ""): Snooze(NOW + MINUTE, "a", "known")})
    found = [
        subject("buried", "t/c"),
        subject("buried-growing", "t/c", severity=Severity.CRITICAL),
        subject("failures", "u/c", topic="u"),
        subject("node-down", "n", topic=""),
    ]
    book.update(found, NOW)
    (worst,) = topics_in_trouble(book.all()).items()
    assert (worst[0], worst[1].subject.severity) == ("t", Severity.CRITICAL)

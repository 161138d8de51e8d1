"""Alarms are notified once, end once, and continue over a restart."""

import json
from collections.abc import Iterable
from typing import Any

import pytest

from admin.alarms import book as alarm_book
from admin.alarms.book import MOST_SNOOZES, AlarmBook, Changes, Id, Snooze, grouped
from admin.alarms.rules import BY_NAME, Severity
from admin.alarms.subject import Subject
from admin.times import clock
from tests.admin.looks import MINUTE, NOW, SECOND
from tests.cases import each

BURIED: Id = ("buried", "t/c")
HOLD = int(BY_NAME["failures"].hold) * SECOND
DELAY = int(BY_NAME["topic-without-channel"].delay) * SECOND


def subject(rule: str = "buried", key: str = "t/c", **more: Any) -> Subject:
    given = {"name": key, "path": "", "words": "x", "value": 1.0, "severity": Severity.WARNING, "topic": "t", **more}
    return Subject(rule, key, **given)


def rules_of(changes: Changes) -> tuple[list[str], list[str]]:
    """Return the rules of alarms that were raised, and that have ended."""
    return [one.subject.rule for one in changes.raised], [one.subject.rule for one in changes.ended]


def run(book: AlarmBook, *looks: tuple[int, Iterable[Subject]]) -> list[tuple[list[str], list[str]]]:
    """Return the notifications after each of these checks, at a number of ns after NOW."""
    return [rules_of(book.update(found, NOW + after)) for after, found in looks]


NO, RAISED, ENDED = ([], []), (["buried"], []), ([], ["buried"])
CHANNELLESS, FAILURES = "topic-without-channel", "failures"


def snoozed(until: int = MINUTE, before: dict[Id, int] | None = None) -> AlarmBook:
    """A book in which t/c is snoozed for so long."""
    return AlarmBook(before, {BURIED: Snooze(NOW + until, "a", "known")})


def test_an_alarm_is_raised_and_ended_once() -> None:
    book = AlarmBook()
    assert run(book, (0, [subject()]), (SECOND, [subject(words="y", value=2.0)])) == [RAISED, NO]
    (alarm,) = book.all()
    assert (alarm.since, alarm.subject.words, alarm.subject.value) == (NOW, "y", 2.0)
    assert run(book, (2 * SECOND, []), (3 * SECOND, [])) == [ENDED, NO]
    assert book.all() == []
    assert run(book, (4 * SECOND, [subject()])) == [RAISED], "it is a new one"
    book.clear(*BURIED)  # it is gone at once, and its end is notified once
    book.clear("buried", "no such alarm")
    assert (book.all(), book.since()) == ([], {})
    assert run(book, (5 * SECOND, []), (6 * SECOND, [])) == [ENDED, NO]


def test_an_alarm_is_notified_again_when_it_becomes_more_severe_than_ever() -> None:
    warning, critical = [subject()], [subject(severity=Severity.CRITICAL)]
    looks = enumerate((warning, critical, warning, critical, []))
    assert run(AlarmBook(), *looks) == [RAISED, RAISED, NO, NO, ENDED]
    book = AlarmBook({BURIED: NOW})
    assert run(book, (1, warning), (2, critical)) == [NO, RAISED], "also over a restart"
    assert book.all()[0].since == NOW


def test_hold() -> None:
    found, book = [subject(FAILURES, words="3,755 in all")], AlarmBook()
    assert run(book, (0, found), (HOLD, []), (HOLD + 1, [])) == [([FAILURES], []), NO, ([], [FAILURES])]
    book = AlarmBook()
    assert run(book, (0, found), (HOLD, []), (HOLD, found), (2 * HOLD, [])) == [([FAILURES], []), NO, NO, NO]
    (alarm,) = book.all()
    assert alarm.since == NOW, "it has not ended in between"
    was = f"no longer; at {clock(NOW + HOLD)} it was: 3,755 in all"  # no old words as those of now
    assert (alarm.words, alarm.json()["text"], alarm.json()["seen"]) == (was, was, (NOW + HOLD) // SECOND)
    book.update(found, NOW + 2 * HOLD)
    assert (book.all()[0].words, book.all()[0].json()["text"]) == ("3,755 in all", "3,755 in all")
    book.update([], NOW + 2 * HOLD + 1)
    (ended,) = book.update([], NOW + 3 * HOLD + 1).ended
    assert ended.words == f"no longer; at {clock(NOW + 2 * HOLD)} it was: 3,755 in all"


def test_a_held_alarm_shows_the_value_now() -> None:
    book, values = AlarmBook(), iter(["7 buried", "0 buried"])
    book.update([subject(FAILURES, words="9 buried")], NOW)
    for value in ("7 buried", "0 buried"):
        book.update([], NOW + SECOND, lambda subject: next(values))
        assert book.all()[0].words == f"{value}; at {clock(NOW)} it was: 9 buried"


def test_delay() -> None:
    found, book = [subject(CHANNELLESS)], AlarmBook()
    assert run(book, (0, found), (DELAY - 1, found)) == [NO, NO]
    assert (book.all(), book.since()) == ([], {}), "it is not listed yet"
    assert run(book, (DELAY, found), (DELAY + 1, found)) == [([CHANNELLESS], []), NO]
    assert book.all()[0].since == NOW
    assert run(AlarmBook(), (0, found), (DELAY - 1, []), (DELAY, found)) == [NO, NO, NO], "it was gone in between"
    book = AlarmBook()
    knows = [subject(CHANNELLESS, since=NOW - DELAY)]  # since when it is so: no delay for that time
    assert run(book, (0, knows)) == [([CHANNELLESS], [])]
    assert book.since() == {(CHANNELLESS, "t/c"): NOW - DELAY}


def test_a_clock_that_is_set_back_keeps_and_delays_no_alarm() -> None:
    for rule in ("buried", FAILURES):
        assert run(AlarmBook(), (0, [subject(rule)]), (-MINUTE, [])) == [([rule], []), ([], [rule])]
    found = [subject(CHANNELLESS)]
    looks = (0, found), (-MINUTE, found), (DELAY - MINUTE, found)
    assert run(AlarmBook(), *looks) == [NO, NO, ([CHANNELLESS], [])]


def test_an_alarm_goes_on_over_a_restart() -> None:
    before = {BURIED: NOW - MINUTE, (CHANNELLESS, "t"): NOW - MINUTE}
    book, found = AlarmBook(before), [subject(), subject(CHANNELLESS, "t")]
    assert run(book, (0, found), (SECOND, found)) == [NO, NO], "it was notified before, and delays are over"
    assert book.since() == before
    assert run(book, (2 * SECOND, [])) == [([], ["buried", CHANNELLESS])]
    book = AlarmBook({(FAILURES, "t/c"): NOW - MINUTE})  # it takes two looks to be found
    assert run(book, (0, []), (HOLD, [subject(FAILURES)])) == [NO, NO]
    assert book.all()[0].since == NOW - MINUTE
    book = AlarmBook({(FAILURES, "t/c"): NOW - MINUTE})
    assert run(book, (0, []), (HOLD + 1, [])) == [NO, ([], [FAILURES])]


def test_the_end_of_an_alarm_is_notified_if_it_ended_while_nsqadmin_was_stopped() -> None:
    book = AlarmBook({BURIED: NOW - MINUTE, ("no-such-rule", "x"): NOW})
    assert run(book, (0, [])) == [NO]
    assert book.since() == {BURIED: NOW - MINUTE}
    changes = book.update([], NOW + 1)
    assert [(one.id, one.since) for one in changes.ended] == [(BURIED, NOW - MINUTE)]
    assert json.dumps(changes.ended[0].json())
    assert run(book, (2, [])) == [NO]
    assert book.since() == {}


@each("key", [BURIED, ("buried", "")])
def test_a_snooze_silences_a_subject_or_a_rule_until_it_ends(key: Id) -> None:
    book, snooze = AlarmBook(), Snooze(NOW + MINUTE, "a", "known")
    assert book.snooze(key, snooze)
    assert run(book, (0, [subject()]), (MINUTE - 1, [subject()])) == [NO, NO]
    assert [one.snooze for one in book.all()] == [snooze]
    assert book.all()[0].json()["snoozed"] == {"until": (NOW + MINUTE) // SECOND, "by": "a", "reason": "known"}
    assert run(book, (MINUTE, [subject()])) == [RAISED], "it is still there: others learn of it now"
    assert (book.snoozes, book.all()[0].snooze) == ({}, None)
    assert run(book, (MINUTE + 1, [])) == [ENDED]


def test_what_a_snooze_silences_and_what_not() -> None:
    changes = snoozed().update([subject(), subject(key="t/d"), subject(FAILURES)], NOW)
    assert {one.id for one in changes.raised} == {("buried", "t/d"), (FAILURES, "t/c")}
    assert run(snoozed(), (0, [subject()]), (1, [])) == [NO, NO], "what begins and ends in it"
    book = AlarmBook()
    assert run(book, (0, [subject()])) == [RAISED]
    book.snooze(BURIED, Snooze(NOW + MINUTE, "a", "known"))
    assert run(book, (1, [subject()]), (2, [])) == [NO, ENDED], "the beginning was notified, so is the end"
    # an alarm that was snoozed before a restart was not notified
    assert run(snoozed(before={BURIED: NOW}), (0, []), (1, [])) == [NO, NO]
    assert run(snoozed(before={BURIED: NOW}), (0, [subject()]), (MINUTE, [subject()])) == [NO, RAISED]
    book = snoozed()
    assert run(book, (0, [subject()])) == [NO]
    assert book.wake(BURIED), "it is ended by hand"
    assert not book.wake(BURIED)
    assert run(book, (1, [subject()]), (2, [subject()])) == [RAISED, NO]


def test_snoozes_are_bounded() -> None:
    book, snooze = AlarmBook(), Snooze(NOW + MINUTE, "a", "known")
    assert all(book.snooze(("buried", str(number)), snooze) for number in range(MOST_SNOOZES))
    assert not book.snooze(("buried", "x"), snooze)
    assert book.snooze(("buried", "1"), snooze), "it is changed"
    book.update([], NOW + MINUTE)
    assert book.snoozes == {}, "they are over, whether there is such an alarm or not"


def test_alarms_are_bounded_and_raised_ones_stay(monkeypatch: pytest.MonkeyPatch) -> None:
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
    found = [subject("buried", key, value=value) for key, value in (("b", 1.0), ("a", 1.0), ("c", 9.0))]
    found += [subject(FAILURES, "f", value=99.0), subject("draining", "n", severity=Severity.INFO)]
    found.append(subject("node-down", "n", severity=Severity.CRITICAL))
    changes = book.update(found, NOW)
    assert [one.subject.key for one in book.all()] == ["n", "c", "a", "b", "f", "n"]
    assert changes.raised[0].subject.rule == "node-down"
    groups = grouped(book.all())
    assert [(group.rule.name, len(group.alarms)) for group in groups][:2] == [("node-down", 1), ("buried", 3)]
    assert (groups[0].severity, groups[0].since) == (Severity.CRITICAL, NOW)

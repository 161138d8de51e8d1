"""Notifications: what is sent, retried and given up."""

from __future__ import annotations

from admin.alarm_book import AlarmBook, Changes
from admin.webhook import MOST_LINES, MOST_TOLD, body_of
from tests.admin.looks import NOW
from tests.admin.test_alarm_book import subject


def changes_of(count: int, name: str = "t") -> Changes:
    return AlarmBook().update([subject(key=f"{name}{number:04}") for number in range(count)], NOW)


def test_a_body_is_bounded() -> None:
    body = body_of(changes_of(MOST_TOLD + 3), "main", is_slack=False)
    assert len(body["alarms"]) == MOST_TOLD
    assert body["left_out"] == 3
    assert len(body["text"].splitlines()) == 1 + MOST_LINES + 1
    assert body["text"].endswith(f"and {MOST_TOLD + 3 - MOST_LINES} more")


def test_slack_gets_text_only_and_no_markup_of_names() -> None:
    body = body_of(changes_of(1, "<!channel>&"), "main", is_slack=True)
    assert list(body) == ["text"]
    assert "&lt;!channel&gt;&amp;0000" in body["text"]

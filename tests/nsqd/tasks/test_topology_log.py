"""The log's lines for topics and channels."""

import logging

import pytest

from nsqd.core.registry import Change, ChangeKind
from nsqd.tasks.topology_log import MOST_LINES, log_changes

CHANGES = {
    Change(ChangeKind.TOPIC_CREATED, "t"): ["TOPIC(t): created"],
    Change(ChangeKind.CHANNEL_CREATED, "t", "c"): ["TOPIC(t): new channel(c)"],
    Change(ChangeKind.CHANNEL_DELETED, "t", "c"): ["TOPIC(t): deleting channel c"],
    Change(ChangeKind.TOPIC_DELETED, "t"): ["TOPIC(t): deleting"],
    Change(ChangeKind.PAUSED, "t"): [],
}


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO)
    return caplog


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_is_a_line(lines: pytest.LogCaptureFixture, change: Change) -> None:
    log_changes([change])
    assert lines.messages == CHANGES[change]


def test_a_turn_has_a_bounded_number_of_lines(lines: pytest.LogCaptureFixture) -> None:
    log_changes([Change(ChangeKind.TOPIC_CREATED, f"t{number}") for number in range(MOST_LINES + 7)])
    assert len(lines.messages) == MOST_LINES + 1
    assert lines.messages[-1] == "TOPICS: 7 more topics and channels were created or deleted"

"""What the log is told of refused clients: enough for an operator, too little for a stranger to fill it."""

import logging

import pytest

from nsqd.auth.asking import MOST_LINES, QUIET, Refusals
from nsqd.protocols.nsq.authorization import AuthRefused, Question
from shared.log import log


def test_a_flood_of_refusals_is_some_lines(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log, "propagate", True)
    refusals = Refusals()
    question = Question("10.0.0.1", False, "", b"hunter2")
    with caplog.at_level(logging.WARNING, log.name):
        for number in range(1000):
            refusals.tell(question, AuthRefused("no"), 100.0 + number * QUIET / 1000)
        assert caplog.messages == ["AUTH: client 10.0.0.1 is refused: no"] * MOST_LINES
        refusals.tell(question, AuthRefused("no"), 100.0 + QUIET)
        refusals.tell(question, AuthRefused("no"), 100.0 + QUIET)
    assert caplog.messages[MOST_LINES:] == [
        "AUTH: client 10.0.0.1 is refused: no (and 990 others before)",
        "AUTH: client 10.0.0.1 is refused: no",
    ]

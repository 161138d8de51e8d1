"""The log about refused clients: enough for an operator, too little for a stranger to fill it."""

import logging

import pytest

from nsqd.auth.queries import MOST_LINES, QUIET, Refusals
from nsqd.protocols.nsq.authorization import AuthRefused, AuthRequest
from shared.log import log


def test_a_flood_of_refusals_is_some_lines(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log, "propagate", True)
    caplog.set_level(logging.INFO, log.name)
    refusals = Refusals()
    request = AuthRequest("10.0.0.1", False, "", b"hunter2")
    for number in range(1000):
        refusals.log_refusal(request, AuthRefused("no"), 100.0 + number * QUIET / 1000)
    assert caplog.messages == ["AUTH: rejected client 10.0.0.1: no"] * MOST_LINES
    for _ in range(2):
        refusals.log_refusal(request, AuthRefused("no"), 100.0 + QUIET)
    assert caplog.messages[MOST_LINES:] == [
        "AUTH: rejected client 10.0.0.1: no (and 990 others before)",
        "AUTH: rejected client 10.0.0.1: no",
    ]

"""The log about refused clients: enough for an operator, too little for a stranger to fill it."""

import logging
from collections.abc import Iterator

import pytest

from nsqd.auth.queries import MOST_LINES, QUIET, Refusals
from nsqd.protocols.nsq.authorization import AuthRefused, AuthRequest
from shared.log import log


class Lines(logging.Handler):
    """A handler that keeps the lines that were logged."""

    def __init__(self) -> None:
        super().__init__()
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.messages.append(record.getMessage())


@pytest.fixture
def lines(monkeypatch: pytest.MonkeyPatch) -> Iterator[Lines]:
    """The log is written here, whatever other tests have done with it."""
    handler = Lines()
    monkeypatch.setattr(log, "handlers", [handler])
    monkeypatch.setattr(log, "propagate", False)
    before = log.level
    log.setLevel(logging.INFO)
    yield handler
    log.setLevel(before)


def test_a_flood_of_refusals_is_some_lines(lines: Lines) -> None:
    refusals = Refusals()
    request = AuthRequest("10.0.0.1", False, "", b"hunter2")
    for number in range(1000):
        refusals.log_refusal(request, AuthRefused("no"), 100.0 + number * QUIET / 1000)
    assert lines.messages == ["AUTH: rejected client 10.0.0.1: no"] * MOST_LINES
    refusals.log_refusal(request, AuthRefused("no"), 100.0 + QUIET)
    refusals.log_refusal(request, AuthRefused("no"), 100.0 + QUIET)
    assert lines.messages[MOST_LINES:] == [
        "AUTH: rejected client 10.0.0.1: no (and 990 others before)",
        "AUTH: rejected client 10.0.0.1: no",
    ]

"""The log's two forms, and that nothing a peer sent forges a line in either."""

import io
import json
import logging
import re
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.log import FORMATS, JsonFormatter, LimitedHandler, NsqFormatter, level_name, log, write
from shared.repeats import BURST, BURST_OF_WARNINGS, WINDOW
from tests.cases import each

NSQ_LINE = re.compile(r"\[nsqd\] \d{4}/\d\d/\d\d \d\d:\d\d:\d\d\.\d{6} (DEBUG|INFO|WARNING|ERROR|FATAL): ")
NOON = 1795262559.719956  # s since the epoch: 2026-11-21T12:02:39.719956Z


def record(text: str, *arguments: object, level: int = logging.INFO, exc_info: object = None) -> logging.LogRecord:
    made = logging.LogRecord("penstock", level, __file__, 1, text, arguments, exc_info)  # type: ignore[arg-type]
    made.created = NOON
    return made


def failure(text: str) -> logging.LogRecord:
    try:
        raise ValueError(text)
    except ValueError:
        return record("it failed", level=logging.CRITICAL, exc_info=sys.exc_info())


def test_both_forms() -> None:
    line = NsqFormatter("[nsqd] ").format(record("TCP: listening on %s", "127.0.0.1:4150"))
    assert NSQ_LINE.match(line)
    assert re.search(r"/\d\d \d\d:\d\d:39\.719956 INFO: TCP: listening on 127\.0\.0\.1:4150$", line)
    line = JsonFormatter("[nsqd] ").format(record("ID: %d", 7))
    assert line == '{"ts": "2026-11-21T12:02:39.719956Z", "level": "INFO", "program": "nsqd", "message": "ID: 7"}'
    for name in ("DEBUG", "INFO", "WARNING", "ERROR", "FATAL"):
        level = getattr(logging, name)
        assert f" {name}: x" in NsqFormatter("").format(record("x", level=level))
        assert json.loads(JsonFormatter("").format(record("x", level=level)))["level"] == name


def test_json_has_the_exception_and_printable_text_stays() -> None:
    line = JsonFormatter("[nsqd] ").format(failure("why"))
    fields = json.loads(line)
    assert list(fields) == ["ts", "level", "program", "message", "exception"]
    assert (fields["level"], fields["message"]) == ("FATAL", "it failed")
    assert fields["exception"].startswith("Traceback (most recent call last):\n")
    assert fields["exception"].endswith("\nValueError: why")
    text = "Grüße, 世界 \\n 100% 🙂"
    assert NsqFormatter("").format(record("%s", text)).endswith(f"INFO: {text}")
    assert json.loads(JsonFormatter("").format(record("%s", text)))["message"] == text


HOSTILE = (
    "a\n[nsqd] 2026/11/20 11:42:39.719956 FATAL: forged", "a\r[nsqd] 2026/11/20 11:42:39.719956 FATAL: forged",
    '"}\n{"level": "FATAL"}', "\x1b[2Jcleared\x1b]0;title\x07", "a\x00b\x7f\x85\x0b\x0c", "\u2028\u2029\u202e reversed",
    "half \ud800",
)  # fmt: skip


@given(st.sampled_from(HOSTILE) | st.text())
def test_whatever_is_quoted_stays_on_its_line_without_control_characters(text: str) -> None:
    for form in FORMATS.values():
        line = form("[nsqd] ").format(record("from %s", text))
        assert len(line.splitlines()) == 1
        assert line.isprintable() or text not in HOSTILE


@each("text", HOSTILE)
def test_an_exceptions_text_forges_no_line(text: str) -> None:
    first, *others = NsqFormatter("[nsqd] ").format(failure(text)).splitlines()
    assert NSQ_LINE.match(first)
    assert others
    assert all(line.startswith("    ") and line.isprintable() for line in others)
    assert len(JsonFormatter("[nsqd] ").format(failure(text)).splitlines()) == 1


class Now:
    time = 0.0

    def __call__(self) -> float:
        return self.time


def limited(stream: io.StringIO, now: Now) -> LimitedHandler:
    handler = LimitedHandler(stream, now)
    handler.setFormatter(NsqFormatter("[nsqd] "))
    return handler


@pytest.fixture
def stream() -> io.StringIO:
    return io.StringIO()


@pytest.fixture
def now() -> Now:
    return Now()


@pytest.fixture
def flooded(stream: io.StringIO, now: Now) -> LimitedHandler:
    handler = limited(stream, now)
    for number in range(BURST + 3):
        handler.handle(record("from %d", number))
    return handler


LEFT_OUT = f" INFO: from {BURST} ... repeated 3 times in 10 s"


def test_the_next_line_is_preceded_by_what_was_left_out(stream: io.StringIO, now: Now, flooded: LimitedHandler) -> None:
    now.time = WINDOW
    flooded.handle(record("another"))
    *_, repeated, last = stream.getvalue().splitlines()
    assert repeated.endswith(LEFT_OUT)
    assert last.endswith(" INFO: another")
    flooded.close()
    assert len(stream.getvalue().splitlines()) == BURST + 2


def test_the_timer_and_the_end_report_lines_left_out(stream: io.StringIO, now: Now, flooded: LimitedHandler) -> None:
    assert flooded._timer.daemon
    flooded._timer.cancel()
    now.time = WINDOW
    flooded._due()  # as the timer does
    assert stream.getvalue().endswith(f"{LEFT_OUT}\n")
    assert flooded._timer is None
    for number in range(BURST + 3):
        flooded.handle(record("from %d", number))
    flooded.close()
    assert stream.getvalue().endswith(f"{LEFT_OUT}\n")
    assert stream.getvalue().count(LEFT_OUT) == 2


def test_no_record_is_made_of_a_frequent_line_that_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    stream, made, real = io.StringIO(), list[object](), logging.LogRecord
    handler = limited(stream, Now())

    def make(*arguments: object) -> logging.LogRecord:
        made.append(arguments)
        return real(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(log, "handlers", [handler])
    monkeypatch.setattr(log, "level", logging.INFO)
    monkeypatch.setattr(logging, "LogRecord", make)
    for number in range(1000):
        write(logging.ERROR, ("here", 1, "from %d"), number)
        write(logging.DEBUG, ("here", 2, "never: %d"), number)
    assert len(stream.getvalue().splitlines()) == BURST_OF_WARNINGS
    assert len(made) == BURST_OF_WARNINGS + 1  # the first that is left out is the example
    handler.close()
    assert f"from {BURST_OF_WARNINGS} ... repeated {1000 - BURST_OF_WARNINGS} times" in stream.getvalue()


@pytest.mark.parametrize(
    ("number", "name"), [(logging.INFO, "info"), (logging.INFO + 1, "warn"), (logging.CRITICAL + 1, "fatal")]
)
def test_any_level_has_a_name(monkeypatch: pytest.MonkeyPatch, number: int, name: str) -> None:
    monkeypatch.setattr(log, "level", number)
    monkeypatch.setattr(log, "_cache", {})
    assert level_name() == name

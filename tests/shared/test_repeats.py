"""Repeated lines of the log: the first ones of a window are written, the others counted, and every count is reported."""

import logging
import sys
from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from shared.repeats import BURST, BURST_OF_WARNINGS, MOST_KINDS, WINDOW, Repeats
from tests.cases import each


def record(text: str, *arguments: object, level: int = logging.INFO, line: int = 1) -> logging.LogRecord:
    return logging.LogRecord("penstock", level, "file.py", line, text, arguments, None)


def failure() -> logging.LogRecord:
    try:
        raise ValueError("why")
    except ValueError:
        return logging.LogRecord("penstock", logging.ERROR, "file.py", 1, "it failed", (), sys.exc_info())


@each("level, burst", [(logging.INFO, BURST), (logging.WARNING, BURST_OF_WARNINGS)])
def test_lines_beyond_the_burst_are_counted(level: int, burst: int) -> None:
    repeats = Repeats()
    admitted = [repeats.admits(record("from %d", number, level=level), 5.0) for number in range(burst + 7)]
    assert admitted == [True] * burst + [False] * 7
    assert repeats.ended(5.0 + WINDOW - 0.001) == []
    (repeated,) = repeats.ended(5.0 + WINDOW)
    assert (repeated.level, str(repeated)) == (level, f"from {burst} ... repeated 7 times in 10 s")
    assert repeats.ended(99.0) == []


def test_a_text_that_varies_is_the_same_line_and_another_call_is_another() -> None:
    repeats = Repeats()
    for number in range(BURST):
        assert repeats.admits(record("from %s", "x" * number), 0.0)
    assert not repeats.admits(record("from %s", "another"), 0.0)
    assert repeats.admits(record("from %s", "another", line=2), 0.0)
    assert repeats.admits(record("to %s", "another"), 0.0)


def test_which_lines_are_written_and_remembered() -> None:
    repeats = Repeats()
    assert [repeats.admits(failure(), 0.0) for _ in range(3)] == [True, False, False]
    assert repeats.admits(failure(), WINDOW)
    repeats = Repeats()
    assert all(repeats.admits(record("x", level=logging.CRITICAL), 0.0) for _ in range(1000))

    repeats = Repeats()
    assert repeats.admits(record("x"), 0.0)
    assert repeats.next_end == float("inf")
    assert repeats.ended(100.0) == []
    assert repeats.flush() == []

    repeats = Repeats()
    for number in range(2 * MOST_KINDS):
        repeats.admits(record(f"format {number}"), 0.0)
    assert len(repeats._windows) <= MOST_KINDS + 1
    assert sum(repeated.count for repeated in repeats.flush()) == MOST_KINDS - BURST
    assert repeats.admits(record("format 0"), WINDOW)


@given(st.lists(st.tuples(st.integers(0, 3), st.floats(0, 3)), max_size=600))
def test_every_line_is_either_written_or_counted(lines: list[tuple[int, float]]) -> None:
    repeats, now, seen, written, counted = Repeats(), 0.0, Counter[str](), Counter[str](), Counter[str]()
    for kind, pause in lines:
        now += pause if kind == 3 else 0.0
        text = f"kind {kind}"
        for repeated in repeats.ended(now):
            counted[repeated.example] += repeated.count
        seen[text] += 1
        written[text] += repeats.admits(record(text, level=logging.WARNING), now)
    for repeated in repeats.flush():
        counted[repeated.example] += repeated.count
    assert written + counted == seen

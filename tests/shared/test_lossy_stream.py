"""A stuck reader of standard error: nothing waits for it, and the lines that it did not get are counted."""

import os
import pty
import socket
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from shared import lossy_stream
from shared.lossy_stream import LossyStream

LINE = "x" * 99 + "\n"
MOST = 10_000  # lines that no pipe, socket or terminal takes without a reader

Ends = tuple[int, int]  # the descriptor that is read, and the one that is written


def report(lines: int) -> str:
    return f"{lines} lost\n"


def a_socket() -> Ends:
    here, there = socket.socketpair()
    return here.detach(), there.detach()


@pytest.fixture(params=[os.pipe, pty.openpty, pytest.param(a_socket, marks=pytest.mark.process)])
def ends(request: pytest.FixtureRequest) -> Iterator[Ends]:
    made = request.param()
    yield made
    for end in made:
        os.close(end)


@pytest.fixture
def pipe() -> Iterator[Ends]:
    made = os.pipe()
    yield made
    for end in made:
        with suppress(OSError):
            os.close(end)


def filled(end: int) -> tuple[LossyStream, int]:
    """A stream whose reader takes nothing, and how many lines were written to it until the first was dropped."""
    stream = LossyStream(end, report)
    written = 0
    while not stream.lost:
        assert written < MOST
        stream.write(LINE)
        written += 1
    return stream, written


def read(end: int) -> str:
    os.set_blocking(end, False)
    found = b""
    try:
        while part := os.read(end, 65536):
            found += part
    except BlockingIOError:
        pass
    return found.decode().replace("\r\n", "\n")  # a terminal adds the carriage returns


def read_until(stream: LossyStream, end: int, done: Callable[[str], bool]) -> str:
    """The text that the reader has found when it is enough. A terminal has room for some lines at a time only."""
    text = read(end)
    while not done(text):
        stream.flush()
        text += read(end)
    return text


def accounted(text: str) -> int:
    """How many lines there are, with those that were reported as lost. Each is whole, or a report."""
    lines = text.splitlines()
    assert {line for line in lines if not line.endswith(" lost")} <= {LINE[:-1], "after"}
    return sum(int(line.removesuffix(" lost")) if line.endswith(" lost") else 1 for line in lines)


def test_a_stuck_reader_gets_whole_lines_and_then_the_number_of_the_others(ends: Ends) -> None:
    stream, written = filled(ends[1])
    for _ in range(1000):
        stream.write(LINE)
    assert stream.lost > 0
    text = read(ends[0])
    stream.write("after\n")
    text += read_until(stream, ends[0], lambda text: stream.lost == 0 and text.endswith("\n"))
    assert accounted(text) == written + 1000 + 1
    assert " lost\n" in text


def test_the_number_is_reported_without_another_line(ends: Ends) -> None:
    stream, written = filled(ends[1])
    text = read_until(stream, ends[0], lambda text: text.endswith(" lost\n"))
    assert accounted(text) == written


def test_other_processes_with_the_same_pipe_may_still_wait(ends: Ends) -> None:
    shared = os.dup(ends[1])  # as a child or the parent has it: the same open file description
    LossyStream(ends[1], report)
    assert os.get_blocking(shared)
    os.close(shared)


def test_a_pipe_of_another_user_does_not_stop_it_either(pipe: Ends, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> int:
        raise PermissionError

    reader, writer = pipe
    with monkeypatch.context() as patched:
        patched.setattr(lossy_stream.os, "open", refuse)
        stream, _ = filled(writer)
    assert os.get_blocking(writer)
    read(reader)
    stream.write("y" * 200_000 + "\n")  # more than the pipe holds: its beginning is taken
    text = read(reader)
    while "\n" not in text.removeprefix("1 lost\n"):
        stream.flush()
        text += read(reader)
    assert text == "1 lost\n" + "y" * 200_000 + "\n"


def test_a_reader_that_is_gone_stops_nothing(pipe: Ends) -> None:
    stream = LossyStream(pipe[1], report)
    os.close(pipe[0])
    print("unread", file=stream, flush=True)
    assert stream.lost == 1


@pytest.mark.parametrize("flushed", [False, True])
def test_a_file_gets_everything(tmp_path: Path, flushed: bool) -> None:
    path = tmp_path / "log"
    with path.open("wb") as file:
        stream = LossyStream(file.fileno(), report)
        for number in range(MOST):
            print("line", number, file=stream, flush=flushed)
        stream.write("half \ud800")
        stream.flush()
    assert path.read_text() == "".join(f"line {number}\n" for number in range(MOST)) + "half \\ud800"


def test_a_full_disk_loses_lines_and_counts_them() -> None:
    with open("/dev/full", "wb") as full:
        stream = LossyStream(full.fileno(), report)
        stream.write("one\ntwo\n")
        stream.write("three\n")
        assert stream.lost == 3


def test_a_half_line_waits_for_its_end(pipe: Ends) -> None:
    stream = LossyStream(pipe[1], report)
    stream.write("one")
    stream.write(" line")
    assert read(pipe[0]) == ""
    stream.write("\nand")
    assert read(pipe[0]) == "one line\n"
    stream.flush()
    assert read(pipe[0]) == "and"

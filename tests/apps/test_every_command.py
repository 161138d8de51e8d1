"""What must hold for each command about one node: no node, Ctrl-C, a poor terminal, odd names."""

import io
import re
import signal
import sys
from pathlib import Path

import httpx
import pytest

from apps.penstock import _OWN, main
from penstock.jobs import Jobs
from tests.cases import each

NODE = ("--nsqd-http-address", "127.0.0.1:1")  # where nothing listens
JOBS = ("--job-address", "127.0.0.1:1")
ODD = "\x1b[2J\x9b\u202e\udcff\n"  # moves the cursor, turns the direction of the line, is not UTF-8
CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]")
LINES = {
    "pub": ("pub t x", "pub t x --header a=b", "pub t x --reply-within 1s"), "put": ("put t x",), "sub": ("sub t c -n 1",),
    "reserve": ("reserve t -n 1",), "bench": ("bench pub --count 1", "bench sub --count 1", "bench jobs --count 1"),
    "schedule": ("schedule add t n x --every 1h", "schedule list", "schedule show t n", "schedule delete t n"),
    "batch": ("batch list", "batch show b", "batch close b", "batch wait b"), "read": ("read t", "read t --all-nodes"),
    "cursors": ("cursors t",), "backup": ("backup copy",), "leave": ("leave",),
    "cluster": ("cluster status", "cluster wait --timeout 0s", "cluster forget --node 1", "cluster promote --node 1"),
}  # fmt: skip
ALL = [line for lines in LINES.values() for line in lines]
ALONE = ("up", "context", "recover", "chaos")  # they ask no single node, and have tests of their own


def words_of(line: str) -> tuple[str, ...]:
    """Return a command line with the address of a node that does not exist."""
    return (*line.split(), *NODE, *(JOBS if line.startswith(("put", "reserve", "bench jobs")) else ()))


def test_the_table_has_each_command() -> None:
    assert LINES.keys() | set(ALONE) == _OWN.keys()


@pytest.fixture(autouse=True)
def in_a_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def run(words: tuple[str, ...]) -> int:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a worker of pytest-xdist ignores it
    try:
        return main(words)
    except SystemExit as end:  # of argparse
        return int(end.code or 0)
    finally:
        signal.signal(signal.SIGINT, before)


@pytest.mark.process
@each("line", ALL)
def test_no_node(line: str, capfd: pytest.CaptureFixture[str]) -> None:
    code = run(words_of(line))
    out, error = capfd.readouterr()
    assert (code, out, error.count("\n")) == (3, "", 1), error
    assert error.startswith("penstock ")
    assert "connection refused" in error
    assert "Errno" not in error


@pytest.mark.process
@each("line", ALL)
def test_ctrl_c(line: str, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*given: object, **more: object) -> None:
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(httpx.Client, "send", interrupted)
    monkeypatch.setattr(Jobs, "__enter__", interrupted)
    assert (run(words_of(line)), *capfd.readouterr()) == (130, "", "")


@pytest.mark.process
@each("line", ALL)
def test_odd_names_on_a_terminal_without_utf8(line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stderr", screen := io.TextIOWrapper(written, "ascii", write_through=True))
    odd = tuple(ODD if word in ("t", "c", "n", "b", "copy") else word for word in line.split())
    assert run((*odd, "--nsqd-http-address", f"127.0.0.1:1{ODD}")) in (1, 2, 3)
    screen.detach()
    shown = written.getvalue().decode("ascii")
    assert (CONTROL.search(shown), shown.count("\n"), "Traceback" in shown) == (None, 1, False), shown

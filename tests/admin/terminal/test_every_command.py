"""What must hold for each command about all nodes: lost nodes, rights, hostile names, poor terminals, Ctrl-C, closed pipes."""

import io
import json
import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from admin.terminal.main import NAMES
from tests.admin.terminal.program import Change, Run, Terminal, post, reported
from tests.cases import each
from tests.daemons import Conversation, sized
from tests.disque_client import Client as Disque
from tests.local_node import LocalNode

FIRST, LAST = "127.0.0.1:4151", "127.0.0.1:4251"
TUBE = "q"
CLIENT, OFFSET = "CLIENT", "OFFSET"  # in a line: the address of the consumer, and the offset of a message
BODIES = "h\xf6stile \x1b[2J\x9b\u202e".encode(), b"\x1b]0;title\x07 \xff"
EVIL = "\x1b[2J\x9b\u202e\ud800\n"  # moves the cursor, begins a sequence, turns the direction of the line
CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]")
LINES = {
    "topics": "topics", "channels": "channels", "tubes": "tubes", "queues": "queues", "clients": "clients",
    "producers": "producers", "status": "status", "nodes": "nodes", "alarms": "alarms", "doctor": "doctor",
    "support-bundle": "support-bundle", "top": "top -n 1", "messages": "messages t c",
    "show": f"show t c {OFFSET} --node {FIRST}",
    "peek": "peek t c", "finish": "finish t c --state ready", "requeue": "requeue t c --state buried --count 9",
    "kick": "kick t c --state buried --all --yes", "bury": "bury t c --state ready", "move": "move t c --state ready --to u",
    "redrive": "redrive t c --state ready --all --yes",
    "create": "create t/d", "delete": "delete t/d --yes", "empty": "empty t/c --yes", "pause": "pause t/c",
    "unpause": "unpause t/c", "config": "config t retention=1h", "drain": f"drain {FIRST} --yes", "undrain": f"undrain {FIRST}",
    "disconnect": f"disconnect t c {CLIENT} --yes", "request": "request GET /stats",
}  # fmt: skip
ALONE = ("show", "drain", "undrain")  # they ask one node
STATES = ("status", "alarms", "doctor")  # their exit code is the state


def test_the_table_has_each_command() -> None:
    assert sorted(LINES) == sorted(NAMES)


@pytest.fixture(scope="module")
def nodes() -> list[LocalNode]:
    nodes = [LocalNode(f"-node-id={number}") for number in range(2)]
    for node in nodes:
        Disque(node.connect("DISQUE")).do("ADDJOB", TUBE, "job", 0)
    return nodes


@pytest.fixture(autouse=True)
def surroundings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("platform.platform", lambda: "Linux-6.1")  # it starts uname
    monkeypatch.chdir(tmp_path)


def run_all(terminal: Run, nodes: list[LocalNode], *more: str) -> dict[str, tuple[int, str, str]]:
    """Run all commands of the table on nodes with t/c, which has a client and messages, and t/d. Returns the results."""
    for node in nodes:
        post(node, "/topic/create", topic="t", retention="1h")
        for channel in ("c", "d"):
            post(node, "/channel/create", topic="t", channel=channel)
        post(node, "/node/undrain")
        for body in BODIES * 2:
            post(node, "/pub", body, topic="t")
    nodes[0].advance(10_000_000)
    for path in Path().glob("penstock-*.tar.gz"):
        path.unlink()
    with Conversation(nodes[0], b"  V2PUB t\n" + sized(BODIES[0]) + b"SUB t c\n") as client:
        assert client.frame() == client.frame() == (0, b"OK")
        stats: Any = nodes[0].client.get("/stats?format=json&topic=t&channel=c").json()
        [known] = stats["topics"][0]["channels"][0]["clients"]
        listed: Any = nodes[0].client.get("/channel/messages?topic=t&channel=c&state=ready").json()
        values = {CLIENT: known["remote_address"], OFFSET: str(listed["messages"][0]["offset"])}
        return {
            name: terminal(*(values.get(word, word) for word in line.split()), *more) for name, line in LINES.items()
        }


FORMS = ((), ("--json",))


def test_all_nodes_answer(terminal: Terminal, nodes: list[LocalNode]) -> None:
    for name, (code, out, error) in run_all(terminal, nodes).items():
        assert code == (1 if name in ("status", "alarms") else 0), (name, out, error)  # topic t has an alarm
        assert "incomplete" not in error


@each("more", FORMS)
def test_one_of_two_nodes_hangs(terminal: Terminal, nodes: list[LocalNode], more: tuple[str, ...]) -> None:
    terminal.network.slow = {LAST}
    for name, (code, out, error) in run_all(terminal, nodes, *more).items():
        assert code == (0 if name in ALONE else 2 if name in STATES else 1), (name, out, error)
        assert (f"penstock: incomplete: http://{LAST}" in error) == (name not in ALONE)
        assert error.count("penstock") == (name not in ALONE)
        assert out
        if more:
            assert all(isinstance(json.loads(line), dict) for line in out.splitlines())


@each("more", FORMS)
def test_no_daemon_answers(terminal: Terminal, more: tuple[str, ...]) -> None:
    terminal.network.has_lookupd = False
    for name, line in LINES.items():
        code, out, error = terminal(*line.split(), *more)
        assert (code, out, error.count("\n")) == (3, "", 1), error
        assert error.startswith(f"penstock {name}: ")
        assert "start a set with `penstock up`, or name yours: penstock context add" in error


def test_a_token_without_rights_on_one_node(terminal: Terminal, nodes: list[LocalNode]) -> None:
    refusal = httpx.Response(403, json={"message": "FORBIDDEN"})
    terminal.network.change = lambda address, path, answer: refusal if address == LAST and path != "/ping" else answer
    for name, (code, out, error) in run_all(terminal, nodes).items():
        assert code == (0 if name in ALONE else 1), (name, out, error)
        assert (f"penstock: incomplete: http://{LAST}" in error) == (name not in ALONE), name
        assert ("`penstock auth can` says what the token may do" in error) == (name not in ALONE)


def hostile(value: Any) -> Any:
    """Return JSON with EVIL at the end of each text."""
    if isinstance(value, dict):
        return {name: hostile(one) for name, one in value.items()}
    if isinstance(value, list):
        return [hostile(one) for one in value]
    return f"{value}{EVIL}" if isinstance(value, str) else value


def lying(address: str, path: str, answer: httpx.Response) -> httpx.Response:
    """Return the answer of a node that is hostile in every text."""
    if address != FIRST or not answer.content.startswith((b"{", b"[")):
        return answer
    return httpx.Response(answer.status_code, content=json.dumps(hostile(answer.json())).encode())


def refusing(address: str, path: str, answer: httpx.Response) -> httpx.Response:
    """Return the answer of a node that refuses all with a hostile reason."""
    return httpx.Response(500, json={"message": EVIL}) if address == FIRST else answer


@each("encoding, change, more", [
    ("utf-8", None, ()), ("utf-8", lying, ()), ("ascii", lying, ("--json",)), ("ascii", refusing, ()),
])  # fmt: skip
def test_nothing_from_outside_reaches_the_terminal_unescaped(
    terminal: Terminal, nodes: list[LocalNode], encoding: str, change: Change | None, more: tuple[str, ...],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setenv("NO_COLOR", "1")
    terminal.network.change = change
    with screen(encoding) as printed:
        results = run_all(terminal, nodes, *more)
    for name, (_, out, error) in results.items():
        assert (out, CONTROL.search(error)) == ("", None), (name, error)
    shown = printed()
    assert CONTROL.search(shown) is None, [line for line in shown.splitlines() if CONTROL.search(line)]
    if more:
        assert all(isinstance(json.loads(line), dict) for line in shown.splitlines())


@each("requests", [0, 1, 3])
def test_ctrl_c_ends_each_command(terminal: Terminal, nodes: list[LocalNode], requests: int) -> None:
    def run(*words: str) -> tuple[int, str, str]:
        terminal.network.requests_left = requests
        result = terminal(*words)
        if terminal.network.requests_left < 0:
            interrupted[words[0]] = result
        return result

    interrupted: dict[str, tuple[int, str, str]] = {}
    run_all(run, nodes)
    assert len(interrupted) >= (len(NAMES) if not requests else 10)
    for name, (code, _, error) in interrupted.items():
        assert (code, error) == (130, ""), name


def test_the_reader_of_a_pipe_that_ends_ends_each_command_quietly(
    terminal: Terminal, nodes: list[LocalNode], monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(*words: str) -> tuple[int, str, str]:
        reading, writing = os.pipe()
        os.close(reading)
        with monkeypatch.context() as patch, open(writing, "w") as pipe:
            patch.setattr(sys, "stdout", pipe)
            return terminal(*words)

    for name, (code, _, error) in run_all(run, nodes).items():
        assert (code, "rror" in error, "Traceback" in error) == (0, False, False), (name, error)


def test_a_context_file_that_others_can_read_is_refused(
    terminal: Terminal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "penstock/contexts.toml"
    path.parent.mkdir()
    path.write_text('current = "a"\n[contexts.a]\nnsqd_http_address = ["127.0.0.1:4151"]\n')
    path.chmod(0o644)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    for name, line in LINES.items():
        why = f"{path}: all users of this machine can read it: run chmod o= on it"
        assert terminal(*line.split()) == (1, "", f"penstock {name}: {why}\n")


def test_odd_names_on_the_command_line(terminal: Terminal) -> None:
    odd = EVIL.replace("\ud800", "\udcff")  # a byte that is not UTF-8
    for name, line in LINES.items():
        words = [odd if word in ("t", "t/c", "t/d", FIRST, CLIENT, "/stats") else word for word in line.split()]
        words += [odd] if words == [name] else []
        code, out, error = terminal(*words)
        assert (code in (0, 1, 2), CONTROL.search(out + error)) == (True, None), (name, code, error)
        assert "Traceback" not in error


def test_alarms_and_findings_are_whole_on_a_narrow_terminal(
    terminal: Terminal, nodes: list[LocalNode], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setenv("NO_COLOR", "1")
    terminal.network.change = reported("/storage", refusal="the disk is full, and this text is longer than a line")
    for command in ("alarms", "doctor"):
        with screen("utf-8") as printed:
            terminal(command)
        shown = " ".join(printed().split())
        assert "the disk is full, and this text is longer than a line" in shown
        assert "Free space: publishing resumes by itself" in shown


@contextmanager
def screen(encoding: str) -> Iterator[Callable[[], str]]:
    """Let standard output be a terminal. Yields the function that returns what it shows."""

    class Screen(io.TextIOWrapper):
        def isatty(self) -> bool:
            return True

    written, before = io.BytesIO(), sys.stdout
    sys.stdout = shown = Screen(written, encoding, write_through=True)
    try:
        yield lambda: written.getvalue().decode(encoding)
    finally:
        sys.stdout = before
        shown.detach()

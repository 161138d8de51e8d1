"""`penstock chaos` without a set: what it prints for wrong input, and which options `penstock up` passes to every node."""

import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from apps import chaos, daemon_set
from apps.penstock import main
from apps.penstock import parser as _parser
from apps.up import OWN_OPTIONS
from tests.cases import each

NODES = [{"name": name, "state": "running", "http_port": 1} for name in ("nsqd", "nsqd-2", "nsqd-3")]


class FakeSet:
    """A set that notes what it is asked for."""

    def __init__(self, **answer: Any) -> None:
        self.asked: list[tuple[str, str, float]] = []
        self._answer = {"nodes": NODES, "lookupd_port": 4160, "admin_port": 4171} | answer

    def ask(self, data: Path, command: str, name: str = "", seconds: float = 0) -> dict[str, Any]:
        self.asked.append((command, name, seconds))
        return self._answer


def run(arguments: str) -> int:
    return main(["chaos", *arguments.split()])


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeSet:
    made = FakeSet()
    monkeypatch.setattr(chaos, "ask", made.ask)
    return made


def test_a_node_has_a_number_and_a_name(fake: FakeSet, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("1", "nsqd-2"):
        assert run(f"kill {name} --for 1m30s") == 0
        assert fake.asked[-2:] == [("status", "", 0), ("kill", "nsqd-2", 90)]
        assert capsys.readouterr().out == (
            "nsqd-2 (node 1) was killed with SIGKILL, and is held down, for 1m30s. To undo it earlier: penstock chaos start 1\n"
            "Watch: http://127.0.0.1:4171/cluster\n"
        )
    assert run("freeze 0 --json --data elsewhere") == 0
    assert json.loads(capsys.readouterr().out) == {
        "command": "freeze", "node": 0, "name": "nsqd", "seconds": 0.0, "others": [],
        "undo": "penstock chaos thaw 0 --data elsewhere", "watch": "http://127.0.0.1:4171/cluster",
    }  # fmt: skip


@each("words, undo", [
    ("kill 1", "penstock chaos start 1"), ("freeze nsqd-2 --data a'b", """penstock chaos thaw 1 --data 'a'"'"'b'"""),
    ("partition 1", "penstock chaos heal 1"),
    ("partition 1 --from 0 --from nsqd-3", "penstock chaos heal 1 --from 0 --from nsqd-3"),
    ("partition 1 --from 0 --lookupd", "penstock chaos heal 1"),
])  # fmt: skip
def test_what_undoes_it(
    fake: FakeSet, words: str, undo: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chaos, "_ask", lambda *_, **__: None)
    assert run(words) == 0
    assert capsys.readouterr().out.splitlines()[0].endswith(f". To undo it: {undo}")


@pytest.mark.parametrize(("words", "why"), [
    ("kill 3", "'3' is not a node of this set; its nodes are nsqd (node 0), nsqd-2 (node 1), nsqd-3 (node 2)"),
    ("kill nsqadmin", "'nsqadmin' is not a node of this set"), ("thaw -- -1", "'-1' is not a node of this set"),
    ("partition 1 --from 9", "'9' is not a node of this set"),
    ("partition 1 --from 1", "nsqd-2 (node 1) cannot be partitioned from itself"),
    ("partition 1 --lookupd --for 1s", "a partition with --lookupd does not end by itself: leave out --for"),
    pytest.param("partition 1", "nsqd-2 (node 1) at 127.0.0.1:1 does not answer: ", marks=pytest.mark.process),
])  # fmt: skip
def test_what_is_not_possible(fake: FakeSet, words: str, why: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(words) == 1
    assert f"penstock chaos: {why}" in capsys.readouterr().err
    assert fake.asked == [("status", "", 0)]


@each("words, answer, why", [
    ("kill 1", {"error": "nsqd-2 is already down"}, "nsqd-2 is already down"),
    ("kill 1", {"nodes": [{}]}, "not one of this version's penstock up"),
    ("kill 1", {"nodes": 1}, "not one of this version's penstock up"),
    ("kill 1", {"admin_port": None}, "not one of this version's penstock up"),
    ("partition 0", {"nodes": NODES[:1]}, "nsqd (node 0) is the only node of this set"),
    ("partition 0", {"nodes": [NODES[0] | {"state": "frozen"}, NODES[1]]}, "nsqd (node 0) is not running: it is frozen"),
])  # fmt: skip
def test_what_the_set_refuses(
    words: str, answer: dict[str, Any], why: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chaos, "ask", FakeSet(**answer).ask)
    assert run(words) == 1
    assert why in capsys.readouterr().err


def test_without_a_set_it_says_how_to_start_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(f"kill 1 --data {tmp_path}") == 1
    error = capsys.readouterr().err
    assert str(tmp_path) in error
    assert "`penstock up --nodes 3 --chaos`" in error
    assert "--data" in error


CHAOS = ["", "kill", "maim 1", "kill 1 --for", "kill 1 --for 60", "freeze 1 --for 0s", "partition 1 --for 25h",
         "thaw 1 --for 1s", "kill 1 --from 2"]  # fmt: skip
SET = ["", "=1", "-replicas=1", "Replicas=1", "a b=1", "node-id=7", "data-path=/x", "cluster-peer=x:1"]


@each("words", [*(["chaos", *words.split()] for words in CHAOS), *(["up", f"--set={setting}"] for setting in SET)])
def test_wrong_arguments_and_options_that_belong_to_the_set(words: list[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        _parser().parse_args(words)
    assert ended.value.code == 2


def test_options_go_to_every_node_and_to_nothing_else() -> None:
    arguments = _parser().parse_args(["up", "--set", "failover-after=3s", "--set", "debug-routes", "--set", "x="])
    assert arguments.set == ["-failover-after=3s", "-debug-routes", "-x="]
    lookupd, one, two, admin = daemon_set.Plan(Path("data"), 2, 0, 0, arguments.set).daemons()
    assert one.flags[-3:] == two.flags[-3:] == tuple(arguments.set)
    assert not {*arguments.set} & {*lookupd.flags, *admin.flags}
    node = daemon_set.Plan(Path("data"), 2, 0, 4149).daemons()[1]
    assert {flag[1:].partition("=")[0] for flag in node.flags} == {*OWN_OPTIONS}


def test_a_set_says_how_to_break_it_if_that_is_allowed() -> None:
    freeze = "chaos freeze 0 --for 30s"
    for data, end in ((None, ""), (Path("data"), freeze), (Path("a b"), f"{freeze} --data 'a b'")):
        said = daemon_set.welcome(daemon_set.Plan(Path("data"), 2, 0).daemons(), data)
        found = next((one for one in said.splitlines() if one.startswith("Break a node")), "")
        assert found.endswith(end)
        assert bool(found) is (data is not None)


@each("error", [httpx.ReadError("reset"), httpx.WriteError("reset"), httpx.RemoteProtocolError("over")])
def test_a_node_that_begins_another_log_is_asked_again(
    fake: FakeSet, error: httpx.HTTPError, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    answers = iter([error, httpx.Response(503, text="STARTING"), *[httpx.Response(200, text="{}")] * 5])

    def request(*_: object, **__: object) -> httpx.Response:
        answer = next(answers)
        if isinstance(answer, httpx.HTTPError):
            raise answer
        return answer

    monkeypatch.setattr(httpx, "request", request)
    monkeypatch.setattr(chaos.time, "sleep", lambda seconds: None)
    assert run("heal 1") == 0
    assert "is no longer partitioned" in capsys.readouterr().out
    monkeypatch.setattr(httpx, "request", lambda *_, **__: (_ for _ in ()).throw(httpx.ConnectError("refused")))
    assert run("heal 1") == 1  # it is down
    assert "does not answer: refused" in capsys.readouterr().err

"""`penstock drain`, `undrain`, `disconnect`, `request` on two nodes in the test's process."""

import json
from types import SimpleNamespace

import pytest

from admin.terminal import node_actions
from tests.admin.terminal.program import Terminal, post
from tests.daemons import Conversation
from tests.local_node import LocalNode

FIRST, SECOND = "127.0.0.1:4151", "127.0.0.1:4251"


def test_drain_says_what_is_left_and_waits_until_nothing_is(nodes: list[LocalNode], terminal: Terminal) -> None:
    post(nodes[1], "/topic/create", topic="t")
    post(nodes[1], "/channel/create", topic="t", channel="c")
    post(nodes[1], "/pub", b"x", topic="t")
    code, out, error = terminal("drain", SECOND, "--dry-run")
    assert (code, out) == (0, "")
    assert error == f"would drain {SECOND}: it takes no new messages; 1 message ready, 0 in flight\n"
    assert terminal("drain", SECOND)[0] == 2
    assert terminal("drain", "host-4251", "--yes", "--json")[1].startswith(
        f'{{"node": "{SECOND}", "state": "draining", "depth": 1'
    )
    post(nodes[1], "/channel/empty", topic="t", channel="c")
    code, out, _ = terminal("drain", SECOND, "--wait")  # it drains already
    assert (code, out.splitlines()[1].split()[:2]) == (0, [SECOND, "drained"])
    assert "takes messages" in terminal("undrain", SECOND)[1]
    assert terminal("drain", "nowhere")[0] == 1


def test_a_drain_that_someone_else_ends_has_failed(
    nodes: list[LocalNode], terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    post(nodes[1], "/schedule", b"x", topic="t", name="s", every="1h")

    async def undrain(seconds: float) -> None:
        nodes[1].broker.drain(False)

    monkeypatch.setattr(node_actions, "asyncio", SimpleNamespace(sleep=undrain))
    code, out, error = terminal("drain", SECOND, "--wait", "--yes")
    assert (code, out) == (1, "")
    assert "no longer drains" in error


def test_disconnect_says_how_many_messages_come_again(nodes: list[LocalNode], terminal: Terminal) -> None:
    post(nodes[1], "/pub", b"x", topic="t")
    with Conversation(nodes[1], b"  V2SUB t c\nRDY 1\n") as consumer:
        assert consumer.frame() == (0, b"OK")
        assert consumer.message().body == b"x"
        [client] = terminal.rows("clients", "t")
        code, out, error = terminal("disconnect", "t", "c", client["remote_address"], "--dry-run")
        assert (code, out, ": 1 message in flight to be delivered again\n" in error) == (0, "", True)
        code, out, _ = terminal("disconnect", "t", "c", client["remote_address"], "--yes")
        assert (code, out.splitlines()[1].split()[-1]) == (0, "1")
    assert "no consumer at 10.0.0.9:5" in terminal("disconnect", "t", "c", "10.0.0.9:5")[2]


def test_a_request_to_all_nodes(nodes: list[LocalNode], terminal: Terminal) -> None:
    assert terminal("request", "GET", "/ping") == (0, f"{FIRST}: OK\n{SECOND}: OK\n", "")
    assert terminal("request", "POST", "/topic/create", "topic=t", "--node", SECOND)[0] == 0
    code, out, _ = terminal("request", "GET", "/topic/config", "topic=t", "--node", SECOND, "--json")
    assert (code, json.loads(out)["answer"]["topic"]) == (0, "t")
    code, out, error = terminal("request", "GET", "/topic/config", "topic=t")
    assert (code, SECOND in out, f"http://{FIRST}/topic/config answered 404" in error) == (1, True, True)
    assert terminal("request", "GET", "ping")[0] == 2

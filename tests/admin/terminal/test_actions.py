"""`penstock create`, `delete`, `empty`, `pause`, `unpause`, `config` on two nodes in the test's process."""

import pytest

from tests.admin.terminal.program import Terminal, post
from tests.cases import each
from tests.local_node import LocalNode

DIRECT = ("--nsqd-http-address", "127.0.0.1:4151", "--nsqd-http-address", "127.0.0.1:4251")


@pytest.fixture
def filled(nodes: list[LocalNode]) -> list[LocalNode]:
    for node in nodes:
        post(node, "/topic/create", topic="t")
        post(node, "/channel/create", topic="t", channel="c")
        post(node, "/pub", b"x", topic="t")
    return nodes


def test_a_node_of_the_context_without_an_answer_is_named_though_no_nsqlookupd_names_it(
    filled: list[LocalNode], terminal: Terminal
) -> None:
    terminal.network.hidden.add("127.0.0.1:4251")
    terminal.network.down.add("127.0.0.1:4251")
    expected = ("--lookupd-http-address", "127.0.0.1:4161", *DIRECT)
    for words in (
        ("pause", "t/c"),
        ("unpause", "t"),
        ("config", "t", "rate=5"),
        ("empty", "t/c", "--yes"),
        ("delete", "t", "--yes"),
    ):
        code, out, error = terminal(*words, *expected)
        assert (code, out != "", "127.0.0.1:4251/info: connection refused" in error.lower()) == (1, True, True), (
            words,
            error,
        )


def test_what_drops_messages_says_how_many_and_asks(filled: list[LocalNode], terminal: Terminal) -> None:
    code, out, error = terminal("delete", "t", "--dry-run")
    assert (code, out) == (0, "")
    assert error == "would delete topic t on 2 nodes: 1 channel, 2 messages, 0 consumers connected\n"
    code, out, error = terminal("empty", "t/c")
    assert (code, out) == (2, "")
    assert "would drop all messages of channel t/c on 2 nodes: 2 messages, 0 consumers connected: give --yes" in error
    assert [row["depth"] for row in terminal.rows("channels", "t")] == [2]
    assert terminal("empty", "t/c", "--yes") == (0, "channel t/c: empty done by 2 daemons\n", "")
    assert [row["depth"] for row in terminal.rows("channels", "t")] == [0]
    assert terminal("delete", "t/c", "--yes")[0] == 0
    assert terminal("channels", "t")[1] == ""
    assert terminal("delete", "t", "--yes", "--json")[1] == (
        '{"action": "delete", "topic": "t", "channel": "", "daemons": 3}\n'  # with nsqlookupd
    )
    assert terminal("topics")[1] == ""


def test_a_pause_on_all_nodes(filled: list[LocalNode], terminal: Terminal) -> None:
    assert terminal("pause", "t/c", "--for", "10m") == (0, "channel t/c: pause done by 2 daemons\n", "")
    for node in filled:
        [pause] = node.client.get("/pauses").json()["pauses"]
        assert (pause["topic"], pause["channel"], pause["by"] != "", pause["until"] > 0) == ("t", "c", True, True)
    assert terminal("unpause", "t/c")[0] == 0
    assert terminal.rows("channels", "t")[0]["paused"] is False
    assert terminal("pause", "t", "--dry-run")[2] == "would pause topic t on 2 nodes\n"


def test_create_on_all_nodes(nodes: list[LocalNode], terminal: Terminal) -> None:
    assert terminal("create", "early/worker")[:2] == (0, "channel early/worker: create done by 3 daemons\n")
    assert terminal("config", "early", "retention=24h")[0] == 0
    assert terminal("create", "new/worker", *DIRECT)[:2] == (0, "channel new/worker: create done by 2 daemons\n")
    assert [row["channel"] for row in terminal.rows("channels", "new", *DIRECT)] == ["worker"]


def test_settings(filled: list[LocalNode], terminal: Terminal) -> None:
    code, out, error = terminal("config", "t", "retention=24h", "max_attempts=7")
    assert (code, error) == (0, "")
    assert [line.split() for line in out.splitlines()[1:]] == [
        ["retention", "24h0m0s", "all"],
        ["max_attempts", "7", "all"],
    ]
    post(filled[1], "/topic/config", topic="t", max_attempts="9")
    rows = {(row["setting"], row["value"], row["node"]) for row in terminal.rows("config", "t")}
    assert {("max_attempts", "7", "127.0.0.1:4151"), ("max_attempts", "9", "127.0.0.1:4251")} <= rows
    assert (
        terminal("config", "t", "retention=default", "--dry-run")[2]
        == "would set retention=default of topic t on 2 nodes\n"
    )


@each("words, code, why", [
    (("pause", "gone"), 1, "topic gone was not found"), (("delete", "t/gone", "--yes"), 1, "channel t/gone was not found"),
    (("pause", "a b"), 2, "is not TOPIC or TOPIC/CHANNEL"), (("empty", "t/"), 2, "is not TOPIC or TOPIC/CHANNEL"),
    (("create", "\x1b[2J"), 2, "is not TOPIC or TOPIC/CHANNEL"), (("config", "t", "color=red"), 2, "expected NAME=VALUE"),
    (("config", "t", "retention=soon"), 2, "retention must be a duration"), (("pause", "t", "--for", "0s"), 2, "above 0"),
])  # fmt: skip
def test_wrong_arguments(
    filled: list[LocalNode], terminal: Terminal, words: tuple[str, ...], code: int, why: str
) -> None:
    found = terminal(*words)
    assert found[:2] == (code, "")
    assert why in " ".join(found[2].split())

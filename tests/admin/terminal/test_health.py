"""`penstock status`, `nodes`, `alarms`, over two nodes in the test's process: the screens, and the exit codes."""

import pytest

from tests.admin.terminal.program import Terminal, post
from tests.local_node import LocalNode

SECOND = "127.0.0.1:4251"
EXPECTING = ("--lookupd-http-address", "127.0.0.1:4161", "--nsqd-http-address", SECOND)  # the node, even if it is lost


@pytest.fixture
def waiting(nodes: list[LocalNode]) -> None:
    """A channel with a message and no consumer."""
    post(nodes[0], "/topic/create", topic="t")
    post(nodes[0], "/channel/create", topic="t", channel="c")
    post(nodes[0], "/pub", b"x", topic="t")


def test_all_is_well(nodes: list[LocalNode], terminal: Terminal) -> None:
    code, out, error = terminal("status")
    assert (code, error) == (0, "")
    assert out == (
        "State:    WHOLE\n"
        "Nodes:    2 of 2 registered nodes up, 1 of 1 nsqlookupd\n"
        "Topics:   0 with 0 channels, 0 consumers\n"
        "Backlog:  0 ready, 0 in flight, 0 deferred, 0 buried\n"
        "Alarms:   none\n"
    )
    assert terminal("alarms") == (0, "", "no alarms\n")
    assert terminal("status", "--check")[:2] == (
        0, "PENSTOCK OK - 2 of 2 nodes up, 0 alarms | depth=0 in_flight=0 deferred=0 buried=0 alarms=0\n",
    )  # fmt: skip


@pytest.mark.usefixtures("waiting")
def test_a_warning(terminal: Terminal) -> None:
    code, out, error = terminal("status")
    assert (code, error) == (1, "")
    assert out.startswith("State:    DEGRADED\n")
    assert "warning: Channel without consumer: t/c: 1 message waiting" in out
    code, out, _ = terminal("alarms")
    shown = "warning   channel-without-consumer  t/c      1 message waiting, the oldest"
    assert (code, out.splitlines()[1].startswith(shown)) == (1, True)
    code, out, _ = terminal("alarms", "--json")
    assert code == 1
    assert '"rule": "channel-without-consumer"' in out
    assert '"action": "Start the consumers.' in out
    code, out, _ = terminal("status", "--json")
    assert (code, '"state": "degraded"' in out) == (1, True)


def test_a_lost_node_is_critical(nodes: list[LocalNode], terminal: Terminal) -> None:
    terminal.network.down.add(SECOND)
    code, out, error = terminal("status", *EXPECTING)
    assert code == 2
    assert out.startswith("State:    AT RISK\nNodes:    1 of 2 up")
    assert f"critical: Node down: {SECOND}: no answer. Its counts are not known." in out  # and not: it held nothing
    assert error.startswith("penstock: incomplete: ")
    code, out, error = terminal("status", "--check", *EXPECTING)
    assert (code, error) == (2, "")
    assert out.startswith("PENSTOCK CRITICAL - 1 of 2 nodes up, 1 alarm: 127.0.0.1:4251: ")
    assert out.count("\n") == 1
    code, out, _ = terminal("nodes", *EXPECTING)
    assert code == 1
    [row] = [line for line in out.splitlines() if line.startswith(SECOND)]
    assert row.split()[1] == "down"


def test_a_lost_nsqlookupd_is_an_alarm_and_the_nodes_of_the_context_are_asked(
    nodes: list[LocalNode], terminal: Terminal
) -> None:
    terminal.network.has_lookupd = False
    code, out, error = terminal("alarms", *EXPECTING, "--nsqd-http-address", "127.0.0.1:4151")
    assert (code, "lookupd-down" in out, "127.0.0.1:4161" in error) == (2, True, True)
    assert "Start it again. It keeps no state" in out
    post(nodes[0], "/pub", b"x", topic="t")
    post(nodes[0], "/channel/create", topic="t", channel="c")
    addresses = (*EXPECTING, "--nsqd-http-address", "127.0.0.1:4151")
    for words in (("channels", "t"), ("peek", "t", "c"), ("finish", "t", "c", "--state", "ready")):
        code, out, error = terminal(*words, *addresses)
        assert (code, bool(out), "127.0.0.1:4161" in error) == (1, True, True)


def test_nodes(nodes: list[LocalNode], terminal: Terminal) -> None:
    post(nodes[1], "/pub", b"x", topic="t")
    rows = terminal.rows("nodes")
    assert [(row["node"], row["state"], row["topics"], row["depth"]) for row in rows] == [
        ("127.0.0.1:4151", "up", 0, 0), (SECOND, "up", 1, 1),
    ]  # fmt: skip
    post(nodes[1], "/node/drain")
    code, out, _ = terminal("nodes")
    assert (code, out.splitlines()[2].split()[-1]) == (0, "draining")

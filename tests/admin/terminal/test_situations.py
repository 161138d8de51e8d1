"""Bad situations of an operator, with the terminal alone: what it shows, and what the operator does.

Nodes are LocalNodes, one of which is lost, hangs, or reports what a real disk, clock or cluster would make it report.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import httpx
import pytest

from tests.admin.terminal.program import LOOKUPD, Terminal, post
from tests.daemons import Conversation, sized
from tests.local_node import LocalNode
from tests.shared.cluster.test_health import led
from tests.shared.cluster.test_health import node as member
from tests.shared.cluster.test_state import record

FIRST, SECOND = "127.0.0.1:4151", "127.0.0.1:4251"
NODES = ("--nsqd-http-address", FIRST, "--nsqd-http-address", SECOND)
EXPECTING = ("--lookupd-http-address", LOOKUPD, *NODES)  # the context of an operator who wants to see lost nodes
S, MINUTE = 1_000_000_000, 60_000_000_000  # ns
ALARM_CODES = {"critical": 2, "warning": 1}


@pytest.fixture(autouse=True)
def filled(nodes: list[LocalNode]) -> list[LocalNode]:
    """Both nodes have orders/mail with three messages."""
    for node in nodes:
        post(node, "/topic/create", topic="orders", retention="1h")
        post(node, "/channel/create", topic="orders", channel="mail")
        for body in (b"a", b"b", b"c"):
            post(node, "/pub", body, topic="orders")
    return nodes


def alarm(terminal: Terminal, rule: str, *more: str) -> str:
    """Return the problem and the action of an alarm, which `penstock alarms` and `status` show."""
    code, out, _ = terminal("alarms", *more)
    [row] = [line for line in out.splitlines() if line.split()[1:2] == [rule]]
    assert code >= ALARM_CODES[row.split()[0]]
    [action] = [line for line in out.splitlines() if line.startswith(f"{rule}: ")]
    problem = row.split(maxsplit=3)[3]
    return f"{row.split()[0]} {row.split()[2]}: {problem.strip()}\n{action}"


@contextmanager
def between_checks(terminal: Terminal, happen: Callable[[], None]) -> Iterator[None]:
    """Let something happen after the first check of --over."""
    checks = 0

    def change(address: str, path: str, answer: httpx.Response) -> httpx.Response:
        nonlocal checks
        if (address, path) == (FIRST, "/topics/figures"):  # words: ok
            checks += 1
            if checks == 1:
                happen()
        return answer

    terminal.network.change = change
    yield
    assert checks > 1


def test_a_node_hangs(terminal: Terminal) -> None:
    terminal.network.slow.add(SECOND)
    found = alarm(terminal, "node-down")
    assert found.startswith(f"critical {SECOND}: it runs, but has not answered. ")
    assert "If it does not recover, stop the process, and start it again." in found
    assert "stop the process" in terminal("doctor")[1]
    code, out, error = terminal("channels", "orders")
    assert (code, out.split()[-6:-5], f"{SECOND}/stats did not answer within 5 s" in error) == (1, ["0"], True)


def test_every_message_fails(nodes: list[LocalNode], terminal: Terminal) -> None:
    post(nodes[0], "/topic/config", topic="orders", max_attempts="2")
    for _ in range(17):
        post(nodes[0], "/pub", b"x", topic="orders")
    with Conversation(nodes[0], b"  V2SUB orders mail\n") as consumer:
        assert consumer.frame() == (0, b"OK")

        def fail() -> None:
            consumer.send(b"RDY 20\n")
            for _ in range(40):
                consumer.send(b"REQ %s 0\n" % consumer.message().id)
            nodes[0].advance(S)

        with between_checks(terminal, fail):
            found = alarm(terminal, "buried-growing", "--over", "1ms")
        assert found.startswith("critical orders/mail: 20 buried in ")
        assert "Kick them once the consumer is fixed." in found
        assert "orders/mail: 20 buried" in alarm(terminal, "buried")  # a single check sees what was buried
        [row] = terminal.rows("channels", "orders")
        assert (row["buried"], row["requeued"]) == (20, 40)
        [client] = terminal.rows("clients", "orders", "mail")
        assert (client["requeued"], client["finished"]) == (40, 0)
    out = terminal("messages", "orders", "mail", "--state", "buried", "-n", "1")[1]
    assert out.splitlines()[1].split()[-1] == "requeued"  # the reason
    assert "would kick 20 of 20 buried in orders/mail on 1 node" in terminal(
        "kick", "orders", "mail", "--state", "buried", "--all", "--dry-run"
    )[2]  # fmt: skip
    assert terminal("kick", "orders", "mail", "--state", "buried", "--all", "--yes")[1] == "20 kicked\n"


def test_a_client_publishes_to_a_topic_that_no_channel_takes(nodes: list[LocalNode], terminal: Terminal) -> None:
    with Conversation(nodes[0], b"  V2PUB flood\n" + sized(b"x")) as publisher:
        assert publisher.frame() == (0, b"OK")
        [client] = terminal.rows("producers", "flood")
        found = alarm(terminal, "topic-without-channel")
        assert f"flood: 1 message and no channel; most from {client['remote_address']}\n" in found
        assert "stop the producer" in found


def test_nsqlookupd_was_restarted(nodes: list[LocalNode], terminal: Terminal) -> None:
    terminal.network.hidden.add(SECOND)  # it has not registered again yet
    [row] = [line for line in terminal("nodes", *EXPECTING)[1].splitlines() if line.startswith(SECOND)]
    assert row.split()[1] == "degraded"
    assert row.endswith("registered with 0 of 1 reachable nsqlookupd")
    terminal.network.hidden.clear()
    _, out, error = terminal("alarms", *EXPECTING)
    assert ("lookupd-down" in out, "node-unregistered" in out, error) == (False, False, "")


def test_a_pause_is_forgotten(nodes: list[LocalNode], terminal: Terminal) -> None:
    assert terminal("pause", "orders/mail")[0] == 0
    assert "Paused:   orders/mail\n" in terminal("status")[1]  # at once
    assert terminal.rows("channels", "orders")[0]["paused"] is True
    for node in nodes:
        node.advance(61 * MINUTE)
    found = alarm(terminal, "paused")
    assert "orders/mail: paused for 1.0 h, 6 messages waiting" in found
    assert "Unpause it" in found
    assert "Add consumers" not in terminal("alarms")[1]
    assert terminal("unpause", "orders/mail")[0] == 0
    assert "Paused:" not in terminal("status")[1]


def test_another_node_leads_the_log_of_a_lost_one(terminal: Terminal) -> None:
    terminal.network.down.add(SECOND)
    lost = record(1, False, suspected=True, http_address=SECOND)
    state = member(0, [lost], [], led=[led(0), led(1)], away=[1])
    terminal.network.answers[f"{FIRST}/cluster"] = httpx.Response(200, json=state)
    [row] = [line for line in terminal("nodes", *EXPECTING)[1].splitlines() if line.startswith(SECOND)]
    assert row.endswith("node 0 leads its log")
    found = alarm(terminal, "node-down", *EXPECTING)
    assert found.startswith(f"warning {SECOND}: no answer. Node 0 leads its log now and delivers its messages.")
    code, out, _ = terminal("status", *EXPECTING)
    assert "Cluster:  c: at risk, not safe to lose a node\n" in out
    assert out.count("is complete at its leader, node 0, alone") == 2  # one for each log, and not again as alarms
    assert "of them about the cluster\n  warning: Node down: " in out
    assert code == 2

"""`penstock topics`, `channels`, `tubes`, `clients`, `producers`, over two nodes in the test's process."""

from typing import Any

import httpx
import pytest

from tests.admin.terminal.program import Terminal, post
from tests.daemons import Conversation, sized
from tests.disque_client import Client as Disque
from tests.local_node import LocalNode


@pytest.fixture
def filled(nodes: list[LocalNode]) -> list[LocalNode]:
    """Both nodes with orders/mail: three messages on the first, one on the second; and b without a channel on the first."""
    for node, bodies in zip(nodes, ((b"1", b"2", b"3"), (b"4",)), strict=True):
        post(node, "/topic/create", topic="orders")
        post(node, "/channel/create", topic="orders", channel="mail")
        for body in bodies:
            post(node, "/pub", body, topic="orders")
    post(nodes[0], "/pub", b"x", topic="b")
    return nodes


def test_topics_are_summed_up_over_the_nodes(filled: list[LocalNode], terminal: Terminal) -> None:
    assert terminal("topics") == (
        0,
        "TOPIC   CHANNELS  CLIENTS  DEPTH  IN FLIGHT  DEFERRED  BURIED  MESSAGES  PAUSED\n"
        "b              0        0      1          0         0       0         1  no\n"
        "orders         1        0      4          0         0       0         4  no\n",
        "",
    )
    assert [row["topic"] for row in terminal.rows("topics", "--sort", "depth")] == ["orders", "b"]
    assert [row["topic"] for row in terminal.rows("topics", "ORD")] == ["orders"]
    assert [row["topic"] for row in terminal.rows("topics", "-n", "1")] == ["b"]


def test_channels(filled: list[LocalNode], terminal: Terminal) -> None:
    post(filled[1], "/channel/pause", topic="orders", channel="mail")
    [row] = terminal.rows("channels")
    assert row.pop("oldest") > 0
    assert row == (
        {"topic": "orders", "channel": "mail", "depth": 4, "clients": 0, "in_flight": 0, "deferred": 0, "buried": 0,
         "requeued": 0, "timed_out": 0, "messages": 4, "paused": True}
    )  # fmt: skip
    assert terminal("channels", "b") == (0, "", "no channels\n")
    code, out, error = terminal("channels", "nowhere")
    assert (code, out) == (1, "")
    assert "topic nowhere was not found: see penstock topics" in error


def test_channels_of_nodes_that_answer_in_another_form(filled: list[LocalNode], terminal: Terminal) -> None:
    client = {"client_id": "c", "ready_count": 3}
    channel: Any = {"channel_name": "mail", "depth": 5, "client_count": 2, "paused": True, "clients": [client]}
    old = {"status_code": 200, "data": {"topics": [{"topic_name": "orders", "channels": [channel]}]}}
    terminal.network.answers["127.0.0.1:4151/stats"] = httpx.Response(200, json=old)
    [row] = terminal.rows("channels")
    assert (row["depth"], row["clients"], row["messages"], row["paused"]) == (6, 2, 1, True)
    assert row["oldest"] > 0  # of the other node
    [row] = terminal.rows("clients")
    assert (row["topic"], row["channel"], row["client_id"], row["ready"]) == ("orders", "mail", "c", 3)
    channel["depth"] = 1 << 63
    terminal.network.answers["127.0.0.1:4151/stats"] = httpx.Response(200, json=old)
    code, out, error = terminal("channels")
    assert code == 1
    assert "mail" in out
    assert "incomplete: 127.0.0.1:4151/stats answered something else" in error


@pytest.mark.parametrize(("command", "expected"), [("topics", 1), ("channels", 1), ("clients", 1)])
def test_nodes_that_all_refuse_are_reported_in_one_line(
    command: str, expected: int, filled: list[LocalNode], terminal: Terminal
) -> None:
    for port in (4151, 4251):
        for path in ("/stats", "/topics/figures", "/topics/rows"):
            terminal.network.answers[f"127.0.0.1:{port}{path}"] = httpx.Response(500, text="no")
    code, out, error = terminal(command)
    assert code == expected
    assert not out
    assert "127.0.0.1:4251/" in error
    assert "answered 500" in error


def test_tubes_have_the_sums_of_all_nodes(nodes: list[LocalNode], terminal: Terminal) -> None:
    clients = [Disque(node.connect("DISQUE")) for node in nodes]
    for client, count in zip(clients, (2, 1), strict=True):
        for number in range(count):
            client.do("ADDJOB", "mail", str(number), 0)
    [row] = terminal.rows("tubes")
    assert (row["tube"], row["ready"], row["jobs"], row["paused"]) == ("mail", 3, 3, "none")
    assert row["oldest"] > 0
    assert terminal("queues", "mail", "--pause", "out", "--by", "ann")[:2] == (
        0,
        "TUBE  PAUSED  NODES\nmail  out         2\n",
    )
    assert terminal.rows("queues", "mail")[0]["paused"] == "out"
    assert clients[0].get("mail") == []
    code, _, error = terminal("queues", "gone")
    assert (code, error) == (1, "penstock queues: queue gone was not found: see penstock queues\n")
    assert terminal("queues", "--pause", "in")[0] == 2


def test_a_lost_node_that_only_the_context_names_is_reported(nodes: list[LocalNode], terminal: Terminal) -> None:
    addresses = ("--lookupd-http-address", "127.0.0.1:4161", "--nsqd-http-address", "127.0.0.1:4251")
    terminal.network.down.add("127.0.0.1:4251")
    for command in ("tubes", "topics", "channels"):
        code, _, error = terminal(command, *addresses)
        assert (code, "penstock: incomplete: http://127.0.0.1:4251/" in error) == (1, True)
    terminal.network.down.add("127.0.0.1:4151")
    assert terminal("tubes", *addresses)[:2] == (3, "")


@pytest.mark.long
def test_ten_thousand_topics(nodes: list[LocalNode], terminal: Terminal) -> None:
    for number in range(10_000):
        nodes[number % 2].broker.topic(f"t{number:04}").channel("c")
    for node in nodes:
        node.advance(1_000_000_000)
    assert [len(terminal(command)[1].splitlines()) for command in ("topics", "channels")] == [10_001, 10_001]
    assert [row["topic"] for row in terminal.rows("topics", "t99", "-n", "2")] == ["t9900", "t9901"]
    assert len(terminal("top", "-n", "1")[1].splitlines()) == 21
    assert "Topics:   10,000 with 10,000 channels" in terminal("status")[1]


def test_clients_and_producers(filled: list[LocalNode], terminal: Terminal) -> None:
    with (
        Conversation(filled[1], b"  V2SUB orders mail\nRDY 1\n") as consumer,
        Conversation(filled[0], b"  V2PUB b\n" + sized(b"z")) as producer,
    ):
        assert consumer.frame() == producer.frame() == (0, b"OK")
        assert consumer.message().body == b"4"
        [row] = terminal.rows("clients", "orders", "mail")
        assert (row["topic"], row["channel"], row["in_flight"], row["node"]) == ("orders", "mail", 1, "127.0.0.1:4251")
        rows = [
            (row["topic"], row["messages"], row["node"])
            for row in terminal.rows("producers")
            if row["client_id"] != "HTTP"
        ]
        assert rows == [("b", 1, "127.0.0.1:4151")]
        rows = [
            (row["client_id"], row["remote_address"], row["messages"]) for row in terminal.rows("producers", "orders")
        ]
        assert rows == [("HTTP", "127.0.0.1", 3), ("HTTP", "127.0.0.1", 1)]


def test_a_node_with_two_addresses_counts_once(filled: list[LocalNode], terminal: Terminal) -> None:
    terminal.network.nodes["alias:4151"] = filled[0]
    info = {"broadcast_address": "127.0.0.1", "http_port": 4151, "tcp_port": 4150, "hostname": "host-4151"}
    terminal.network.answers["alias:4151/info"] = httpx.Response(200, json=info)
    terminal.network.hidden.add("alias:4151")
    addresses = ("--lookupd-http-address", "127.0.0.1:4161", "--nsqd-http-address", "alias:4151")
    assert [row["depth"] for row in terminal.rows("topics", "orders", *addresses)] == [4]

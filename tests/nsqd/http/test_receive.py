"""/channel/receive, finish, requeue and touch: long polls, clients that disconnect, kills, both forms, rights and bad input."""

import base64
import json
from pathlib import Path
from random import Random
from typing import Any

import httpx
import msgpack
import pytest

from nsqd.http.receive import MOST_BODY, MOST_WAIT
from shared.auth.tokens import digest
from shared.http.errors import HttpError
from shared.http.exchange import Exchange
from tests.auth_files import bearer, token, write
from tests.cases import each
from tests.effort import seeds
from tests.local_node import SECOND, LocalNode, MemorySocket
from tests.nsqd.http.asking import ask, consumer, drained, get, post, reply_of
from tests.nsqd.http.raw import parse

STRANGE = "0007000000000001" + "f" * 24
BINARY = bytes(range(256))


def receive(node: LocalNode, topic: str, **arguments: object) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = post(node, "/channel/receive", topic=topic, channel="c", **arguments).json()[
        "messages"
    ]
    return found


def act(node: LocalNode, verb: str, topic: str, body: str = "", **arguments: object) -> Any:
    return reply_of(ask(node, "POST", f"/channel/{verb}", body, topic=topic, channel="c", **arguments))


def counts(node: LocalNode, topic: str) -> tuple[int, int, int]:
    """Return the number of messages ready, of those in flight, and of clients of channel `c`."""
    node.broker.check()
    (channel,) = get(node, "/stats", format="json", topic=topic)["topics"][0]["channels"]
    return channel["depth"], channel["in_flight_count"], channel["client_count"]


def begin(node: LocalNode, topic: str, **arguments: object) -> MemorySocket:
    """Return a connection on which a request for messages waits."""
    sock = node.connect("HTTP")
    query = "&".join(f"{name}={value}" for name, value in {"topic": topic, "channel": "c", **arguments}.items())
    sock.sendall(f"POST /channel/receive?{query} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
    node.advance(SECOND // 10)
    return sock


def end(waiting: MemorySocket) -> Any:
    """Return the JSON with which such a request is answered."""
    return json.loads(parse(b"".join(iter(lambda: waiting.recv(65536), b""))).body)


def test_a_message_over_its_life(node: LocalNode) -> None:
    assert receive(node, "life") == []  # makes topic and channel
    headers = {"X-Nsq-Header-Trace": "7"}
    node.client.post("/pub", params={"topic": "life"}, content=b"text \xc3\xa4", headers=headers).raise_for_status()
    post(node, "/pub", BINARY, topic="life")
    text, binary = receive(node, "life", max=10)
    assert text == {
        "id": text["receipt"][:16], "receipt": text["receipt"], "timestamp": text["timestamp"], "attempts": 1,
        "headers": {"trace": "7"}, "body": "text \u00e4",
    }  # fmt: skip
    assert base64.b64decode(binary["body_base64"]) == BINARY
    assert "body" not in binary
    assert counts(node, "life") == (0, 2, 1)
    assert act(node, "requeue", "life", receipt=text["receipt"]) == {"requeued": 1, "expired": []}
    (again,) = receive(node, "life", timeout="2s")
    assert (again["id"], again["attempts"], again["headers"]) == (text["id"], 2, {"trace": "7"})
    assert act(node, "touch", "life", receipt=again["receipt"], timeout="10s") == {"touched": 1, "expired": []}
    node.advance(9 * SECOND)
    assert counts(node, "life") == (0, 2, 2)
    both = [binary["receipt"], again["receipt"], text["receipt"]]
    assert act(node, "finish", "life", json.dumps(both)) == {"finished": 2, "expired": [text["receipt"]]}
    assert act(node, "finish", "life", "\r\n".join(both)) == (410, "RECEIPT_EXPIRED")
    assert counts(node, "life") == (0, 0, 0)


def test_msgpack_has_bodies_as_bytes(node: LocalNode) -> None:
    receive(node, "packed")
    post(node, "/pub", BINARY, topic="packed")
    answer = node.client.post(
        "/channel/receive", params={"topic": "packed", "channel": "c"}, headers={"Accept": "application/msgpack"}
    )
    (message,) = msgpack.unpackb(answer.content)["messages"]
    assert (message["body"], message["attempts"]) == (BINARY, 1)
    assert act(node, "finish", "packed", receipt=message["receipt"]) == {"finished": 1, "expired": []}


def test_a_request_waits_for_a_message(node: LocalNode) -> None:
    with begin(node, "wait", wait="20s") as waiting:
        assert counts(node, "wait") == (0, 0, 1)
        assert 'nsqd_receives{state="waiting"} 1.0\n' in node.client.get("/metrics").text
        post(node, "/pub", b"x", topic="wait")
        (message,) = end(waiting)["messages"]
    assert message["body"] == "x"
    began = node.clock.now
    assert receive(node, "wait", wait="20s") == []
    assert 20 * SECOND <= node.clock.now - began < 21 * SECOND
    assert counts(node, "wait") == (0, 1, 1)


def test_a_client_that_disconnects_while_it_waits_takes_no_message(node: LocalNode) -> None:
    waiting = begin(node, "gone", wait="60s", max=10)
    waiting.close()
    node.advance(SECOND)
    assert counts(node, "gone") == (0, 0, 0)
    post(node, "/pub", b"x", topic="gone")
    assert [one["attempts"] for one in receive(node, "gone")] == [1]


def test_an_answer_for_which_there_is_no_room_takes_no_message(
    node: LocalNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    receive(node, "room")
    post(node, "/pub", b"x", topic="room")
    with monkeypatch.context() as patch:
        patch.setattr(Exchange, "hold", _raise_busy)
        refused = ask(node, "POST", "/channel/receive", topic="room", channel="c")
    assert reply_of(refused) == (503, "BUFFER_BUDGET_EXCEEDED")
    assert counts(node, "room") == (1, 0, 0)


def _raise_busy(exchange: Exchange, size: int) -> None:
    if size:
        raise HttpError(503, "BUFFER_BUDGET_EXCEEDED")


def test_consumers_over_tcp_and_http_share_the_messages(node: LocalNode) -> None:
    with consumer(node, "both", ready=1) as client:
        post(node, "/mpub", b"1\n2\n3", topic="both")
        first = client.message()
        assert len(receive(node, "both", max=10)) == 2
        assert counts(node, "both") == (0, 3, 2)
        receipt = first.id.decode() + "f" * 24
        assert act(node, "finish", "both", receipt=receipt) == (410, "RECEIPT_EXPIRED")


def test_a_deleted_channel_ends_the_wait(node: LocalNode) -> None:
    with begin(node, "deleted", wait="20s") as waiting:
        post(node, "/channel/delete", topic="deleted", channel="c")
        assert end(waiting) == {"message": "CHANNEL_NOT_FOUND"}


def test_a_paused_channel_and_a_node_that_drains(node: LocalNode) -> None:
    receive(node, "paused")
    post(node, "/pub", b"x", topic="paused")
    post(node, "/channel/pause", topic="paused", channel="c")
    assert receive(node, "paused", wait="1s") == []
    post(node, "/channel/unpause", topic="paused", channel="c")
    node.broker.drain(True)
    try:
        (message,) = receive(node, "paused")
        assert act(node, "finish", "paused", receipt=message["receipt"]) == {"finished": 1, "expired": []}
    finally:
        node.broker.drain(False)


def test_a_receipt_expires_with_a_kill_and_the_attempt_counts() -> None:
    node = LocalNode()
    receive(node, "t")
    post(node, "/mpub", b"1\n2\n3", topic="t")
    first, second, _ = receive(node, "t", max=3)
    assert act(node, "finish", "t", receipt=first["receipt"]) == {"finished": 1, "expired": []}
    node = node.killed()
    assert act(node, "finish", "t", receipt=second["receipt"]) == (410, "RECEIPT_EXPIRED")
    again = receive(node, "t", max=10)
    assert [one["body"] for one in again] == ["2", "3"]
    for _ in range(2):
        act(node, "requeue", "t", receipt=again[0]["receipt"])
        (again[0],) = receive(node, "t")
    node = node.killed()
    assert {one["body"]: one["attempts"] for one in receive(node, "t", max=2)}["2"] == 5
    node.broker.check()


@each("seed", seeds(2))
def test_what_was_answered_survives_power_cuts(seed: int) -> None:
    random, node = Random(seed), LocalNode()
    receive(node, "t")
    published, finished = set[str](), set[str]()
    for number in range(6):
        bodies = {f"{number}.{place}" for place in range(5)}
        post(node, "/mpub", "\n".join(bodies), topic="t")
        published |= bodies
        for message in receive(node, "t", max=random.randint(1, 9)):
            if random.random() < 0.7 and act(node, "finish", "t", receipt=message["receipt"])["finished"]:
                finished.add(message["body"])
        node = LocalNode(disk=node.disk.crash(random), clock=node.clock.after(0, 1000 * SECOND, rebooted=True))
    left = receive(node, "t", max=100)
    assert sorted(one["body"] for one in left) == sorted(published - finished)


def test_messages_on_disk_come_without_a_wait() -> None:
    node = LocalNode("-mem-budget", "262144")
    receive(node, "t")
    bodies = [b"%d " % number + bytes(2000) for number in range(500)]
    for start in range(0, 500, 50):
        post(node, "/mpub", b"\n".join(bodies[start : start + 50]), topic="t")
    found: list[str] = []
    while messages := receive(node, "t", max=100):
        found += [one["body"] for one in messages]
        act(node, "finish", "t", "\n".join(one["receipt"] for one in messages))
    assert found == [body.decode() for body in bodies]


def test_many_receipts_in_one_request(node: LocalNode) -> None:
    receive(node, "many")
    post(node, "/mpub", b"x\n" * 1000, topic="many")
    receipts = [one["receipt"] for one in receive(node, "many", max=1000)]
    assert len(receipts) == 1000
    assert act(node, "finish", "many", "\n".join(receipts * 2)) == (413, "BODY_TOO_BIG")
    assert act(node, "touch", "many", "\n".join(receipts)) == {"touched": 1000, "expired": []}
    assert act(node, "finish", "many", "\n".join(receipts[1:] + receipts[500:600])) == {"finished": 999, "expired": []}
    node.advance(61 * SECOND)
    assert counts(node, "many") == (1, 0, 0)
    assert drained(node, "many", "c", 1) == [b"x"]


@each("path, body, arguments, answer", [
    ("receive", "", {"max": 0}, (400, "INVALID_ARG_MAX")), ("receive", "", {"max": 1001}, (400, "INVALID_ARG_MAX")),
    ("receive", "", {"max": "9" * 5000}, (400, "INVALID_ARG_MAX")),
    ("receive", "", {"wait": f"{MOST_WAIT + 1}ns"}, (400, "INVALID_ARG_WAIT")),
    ("receive", "", {"timeout": "15m1ns"}, (400, "INVALID_ARG_TIMEOUT")),
    ("receive", "", {"timeout": "0"}, (400, "INVALID_ARG_TIMEOUT")),
    ("receive", "", {"topic": "no name"}, (400, "INVALID_ARG_TOPIC")),
    ("receive", "", {"channel": "c" * 65}, (400, "INVALID_ARG_CHANNEL")),
    ("receive", "x" * (MOST_BODY + 1), {}, (413, "BODY_TOO_BIG")),
    ("finish", "", {}, (400, "MISSING_ARG_RECEIPT")), ("finish", "[]", {}, (400, "MISSING_ARG_RECEIPT")),
    ("finish", "[" * MOST_BODY, {}, (400, "MISSING_ARG_RECEIPT")), ("finish", "\u00e9", {}, (400, "INVALID_RECEIPT")),
    ("finish", STRANGE.upper(), {}, (400, "INVALID_RECEIPT")), ("finish", f"{STRANGE} x", {}, (400, "INVALID_RECEIPT")),
    ("finish", "", {"receipt": STRANGE + "0"}, (400, "INVALID_RECEIPT")),
    ("finish", "x" * (MOST_BODY + 1), {}, (413, "BODY_TOO_BIG")),
    ("finish", f"{STRANGE}\n{STRANGE}", {}, (410, "RECEIPT_EXPIRED")),
    ("touch", STRANGE, {"topic": "unknown"}, (404, "TOPIC_NOT_FOUND")),
    ("requeue", STRANGE, {"channel": "unknown"}, (404, "CHANNEL_NOT_FOUND")),
    ("requeue", STRANGE, {"delay": "1h1ns"}, (400, "INVALID_ARG_DELAY")),
    ("touch", STRANGE, {"timeout": "16m"}, (400, "INVALID_ARG_TIMEOUT")),
])  # fmt: skip
def test_bad_input(node: LocalNode, path: str, body: str, arguments: dict[str, Any], answer: tuple[int, str]) -> None:
    receive(node, "bad")
    given = {"topic": "bad", "channel": "c"} | arguments
    assert reply_of(ask(node, "POST", f"/channel/{path}", body, **given)) == answer


def test_limits_of_the_node(monkeypatch: pytest.MonkeyPatch) -> None:
    node = LocalNode("-max-channel-consumers", "2", "-max-channels", "2", "-max-rdy-count", "5")

    def refused(channel: str = "c", **arguments: object) -> Any:
        return reply_of(ask(node, "POST", "/channel/receive", topic="t", channel=channel, **arguments))

    assert refused(max=6) == (400, "INVALID_ARG_MAX")
    with begin(node, "t", wait="20s"), begin(node, "t", wait="20s"):
        assert refused() == (503, "TOO_MANY_CONSUMERS")
        assert refused("d") == {"messages": []}
        assert refused("e") == (503, "TOO_MANY_CHANNELS")
        monkeypatch.setattr("nsqd.core.receives.MOST_WAITING", 2)
        assert refused("d") == (503, "TOO_MANY_RECEIVES")
    node.advance(SECOND)
    assert refused() == {"messages": []}


def test_a_request_ends_with_the_right_of_its_sender(tmp_path: Path) -> None:
    file = tmp_path / "auth.toml"
    write(file, "consumer")
    node = LocalNode("-auth-file", str(file))
    with node.connect("HTTP") as sock:
        head = f"Host: localhost\r\nAuthorization: {bearer('consumer')['Authorization']}\r\n\r\n"
        sock.sendall(f"POST /channel/receive?topic=t&channel=c&wait=60s HTTP/1.1\r\n{head}".encode())
        node.advance(SECOND)
        assert node.broker.receives.counts()["waiting"] == 1
        write(file, "viewer")
        node.advance(5 * SECOND)
        assert sock.recv(1) == b""
    assert node.broker.receives.counts()["waiting"] == 0


def test_only_authorization_servers_know_who_may_consume() -> None:
    node = LocalNode("-auth-http-address", "127.0.0.1:1")
    refused = ask(node, "POST", "/channel/receive", topic="t", channel="c")
    assert reply_of(refused) == (403, "AUTH_FILE_REQUIRED")


def test_an_identity_has_as_many_messages_in_flight_as_its_limits_allow(tmp_path: Path) -> None:
    file = tmp_path / "auth.toml"
    roles = [("producer", ""), ("consumer", "limits = { in_flight = 3 }\n"), ("viewer", "")]
    entry = '[[token]]\nname = "{0}"\nsha256 = "{1}"\nroles = ["{0}"]\n'
    file.write_text("".join(entry.format(role, digest(token(role).encode())) + more for role, more in roles))
    file.chmod(0o600)
    node = LocalNode("-auth-file", str(file))

    def send(name: str, path: str, body: bytes = b"", **arguments: object) -> httpx.Response:
        params = {"topic": "t", **{key: str(value) for key, value in arguments.items()}}
        return node.client.post(path, params=params, content=body, headers=bearer(name))

    assert send("producer", "/channel/receive", channel="c").status_code == 403
    assert send("consumer", "/channel/receive", channel="c").json() == {"messages": []}
    send("producer", "/mpub", b"1\n2\n3\n4\n5").raise_for_status()
    messages = send("consumer", "/channel/receive", channel="c", max=2).json()["messages"]
    messages += send("consumer", "/channel/receive", channel="c", max=5).json()["messages"]
    assert [one["body"] for one in messages] == ["1", "2", "3"]
    refused = send("consumer", "/channel/receive", channel="c")
    assert reply_of(refused) == (429, "TOO_MANY_IN_FLIGHT")
    used = node.client.get("/identities", headers=bearer("viewer")).json()["identities"]
    assert [(one["in_flight"], one["refused"]) for one in used if one["name"] == "consumer"] == [(3, 1)]
    finish = {"channel": "c", "receipt": messages[0]["receipt"]}
    assert send("producer", "/channel/finish", **finish).status_code == 403
    assert send("consumer", "/channel/finish", **finish).json() == {"finished": 1, "expired": []}
    assert len(send("consumer", "/channel/receive", channel="c", max=5).json()["messages"]) == 1

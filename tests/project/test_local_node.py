"""The node within a test's process: what clients see of it is what they see of a daemon, except for the time that it takes."""

import pytest

from tests.daemons import OK, Conversation, sized
from tests.local_node import LocalNode

SECOND = 1_000_000_000
REQUEST = b"GET /info HTTP/1.1\r\nHost: localhost\r\n"  # the HTTP server answers it, and the reactor /ping


@pytest.fixture
def node() -> LocalNode:
    return LocalNode("-max-msg-size", "100")


def test_http_and_tcp_reach_the_same_broker(node: LocalNode) -> None:
    assert node.client.post("/pub?topic=t", content=b"first").text == "OK"
    with Conversation(node, b"  V2SUB t c\nRDY 1\nPUB t\n" + sized(b"second")) as client:
        assert client.frame() == OK
        answers = [client.frame(), client.frame()]
        assert OK in answers
        (message,) = [data for kind, data in filter(None, answers) if kind == 2]
        assert message.endswith(b"first")
        client.send(b"FIN " + message[10:26] + b"\n")
        assert client.message().body == b"second"
    topic = node.client.get("/stats?format=json&topic=t").json()["topics"][0]
    assert (topic["message_count"], topic["channels"][0]["depth"]) == (2, 0)


def test_one_connection_serves_many_requests_and_an_answer_is_seen_when_it_arrives(node: LocalNode) -> None:
    for _ in range(3):
        assert node.client.get("/ping").text == "OK"
        assert node.client.get("/info").json()["version"] == "1.3.0"
        assert node.client.post("/pub?topic=t", content=bytes(101)).status_code == 413
        assert node.client.get("/nothing").status_code == 404
    for _ in range(20):
        began = node.clock.now
        assert node.client.get("/info").status_code == 200
        assert node.clock.now - began < 10 * SECOND // 1000  # up to 3 ms each way, and not when something else is due


def test_time_passes_only_while_a_client_waits(node: LocalNode) -> None:
    with Conversation(node, b"  V2IDENTIFY\n" + sized(b"{}")) as idle, node.connect("HTTP") as slow:
        assert idle.frame() == OK
        began = node.clock.now
        slow.sendall(REQUEST)
        assert slow.recv(1) == b""  # a head must be complete after 10 s
        assert node.clock.now - began == pytest.approx(10 * SECOND, rel=0.01)
        assert idle.socket.makefile("rb").read(19) == b"\0\0\0\x0f\0\0\0\0_heartbeat_"  # after 30 s
        assert node.clock.now - began == pytest.approx(30 * SECOND, rel=0.01)
        patient = node.connect("HTTP")
        patient.settimeout(5)
        with pytest.raises(TimeoutError):
            patient.recv(1)
        assert node.clock.now - began == pytest.approx(35 * SECOND, rel=0.01)


def test_what_was_published_outlives_a_kill(node: LocalNode) -> None:
    assert node.client.post("/pub?topic=t", content=b"kept").text == "OK"
    again = node.killed()
    with Conversation(again, b"  V2SUB t c\nRDY 1\n") as client:
        assert client.frame() == OK
        assert client.message().body == b"kept"


def test_a_bug_in_a_handler_reaches_the_test(node: LocalNode, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node.log, "wake", None)
    node.bugs.append(ZeroDivisionError("planted"))
    with pytest.raises(ZeroDivisionError, match="planted"):
        node.client.get("/info")

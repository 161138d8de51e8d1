"""The node within a test's process: what clients see of it is what they see of a daemon, except for the time that it takes."""

import pytest

from tests.daemons import OK, Conversation, sized
from tests.local_node import LocalNode

SECOND = 1_000_000_000
REQUEST = b"GET /info HTTP/1.1\r\nHost: localhost\r\n"  # the HTTP server answers it, and the reactor /ping


@pytest.fixture
def node() -> LocalNode:
    return LocalNode("-max-msg-size", "100")


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


def test_a_bug_in_a_handler_reaches_the_test(node: LocalNode, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node.log, "wake", None)
    node.bugs.append(ZeroDivisionError("planted"))
    with pytest.raises(ZeroDivisionError, match="planted"):
        node.client.get("/info")

"""Identities whose auth file limits them: what NSQ's protocol and HTTP do to those that publish too much."""

from pathlib import Path
from typing import Any

import pytest

from shared.auth.tokens import digest
from tests.auth_files import bearer, token
from tests.daemons import OK, Conversation, sized
from tests.local_node import SECOND, LocalNode

ENTRY = '[[token]]\nname = "{0}"\nsha256 = "{1}"\nroles = ["{2}"]\n'
PUB = b"PUB t\n" + sized(b"x")


class Limited:
    """A node with a producer `slow` that may have limits, one that has none, and a viewer."""

    def __init__(self, file: Path, limits: str) -> None:
        self._file = file
        self.limit(limits)
        self.node = LocalNode("-auth-file", str(file))
        self.client = self.node.client

    def limit(self, limits: str) -> None:
        people = ("viewer", "viewer"), ("free", "producer"), ("slow", "producer")
        entries = [ENTRY.format(name, digest(token(name).encode()), role) for name, role in people]
        self._file.write_text("".join(entries) + (f"limits = {limits}\n" if limits else ""))
        self._file.chmod(0o600)

    def connect(self, name: str) -> Conversation:
        conversation = Conversation(self.node, b"  V2AUTH\n" + sized(token(name).encode()))
        frame = conversation.frame()
        assert b'"identity":"%s"' % name.encode() in frame[1]
        return conversation

    def use_of(self, name: str) -> dict[str, Any]:
        answer = self.client.get("/identities", headers=bearer("viewer")).json()
        return next(one for one in answer["identities"] if one["name"] == name)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "auth.toml"


def test_a_producer_that_sends_too_much_slows_no_other(file: Path) -> None:
    limited = Limited(file, "{ messages = 10 }")
    with limited.connect("slow") as slow, limited.connect("free") as free:
        slow.socket.settimeout(0.5)
        with pytest.raises(TimeoutError):  # the node has stopped to read
            slow.send((b"PUB slow\n" + sized(bytes(1000))) * 2000)
        for _ in range(500):  # each waits for its answer
            free.send(b"PUB free\n" + sized(b"x"))
            assert free.frame() == OK
        used, other = limited.use_of("slow"), limited.use_of("free")
    assert (other["messages"], other["throttled"]) == (500, 0)
    assert used["throttled"] > 0
    assert used["throttled_ms"] > 0
    assert used["messages"] < 500  # what one read brought; the others are on their way
    assert (used["connections"], used["bytes"]) == (1, 1000 * used["messages"])


def test_http_says_429_and_publishes_nothing(file: Path) -> None:
    limited = Limited(file, "{ messages = 100 }")
    client = limited.client
    burst = client.post("/mpub?topic=t", content=b"x\n" * 10_000, headers=bearer("slow"))
    assert burst.text == "OK"  # more than there is, but nothing was used before
    for route in ("/pub?topic=t", "/pub?topic=t&defer=5", "/mpub?topic=t", "/mpub?topic=t&binary=1"):
        body = b"\0\0\0\1\0\0\0\1x" if "binary" in route else b"x"
        for _ in range(2):
            refused = client.post(route, content=body, headers=bearer("slow"))
            assert (refused.status_code, refused.json()) == (429, {"message": "TOO_MANY_MESSAGES"})
            assert refused.headers["retry-after"] == "99"  # the first second was free
    assert client.post("/pub?topic=t", content=b"x", headers=bearer("free")).text == "OK"
    used = limited.use_of("slow")
    assert (used["messages"], used["bytes"], used["refused"]) == (10_000, 10_000, 8)
    topic = client.get("/stats?format=json&topic=t", headers=bearer("viewer")).json()["topics"][0]
    assert topic["message_count"] == 10_001
    limited.node.advance(98 * SECOND)
    assert client.post("/pub?topic=t", content=b"x", headers=bearer("slow")).headers["retry-after"] == "1"
    limited.node.advance(SECOND)
    assert client.post("/pub?topic=t", content=b"x", headers=bearer("slow")).text == "OK"


def test_limits_change_with_the_file(file: Path) -> None:
    limited = Limited(file, "{ messages = 1 }")
    with limited.connect("slow") as slow:
        slow.send(PUB * 100)
        assert [slow.frame() for _ in range(100)] == [OK] * 100
        slow.send(PUB * 1000)
        limited.node.advance(10 * SECOND)
        assert limited.use_of("slow")["messages"] == 100  # the next one is read in a minute and a half
        began = limited.node.clock.now
        limited.limit("")
        assert [slow.frame() for _ in range(1000)] == [OK] * 1000
        assert limited.node.clock.now - began < 2 * SECOND
        throttled = limited.use_of("slow")["throttled"]
        limited.limit("{ messages = 1 }")
        limited.node.advance(SECOND)
        slow.send(PUB * 100)
        limited.node.advance(SECOND)
        assert limited.use_of("slow")["throttled"] > throttled


def test_metrics_name_identities_where_there_is_an_auth_file(file: Path) -> None:
    client, plain = Limited(file, "{ messages = 100 }").client, LocalNode().client
    client.post("/pub?topic=t", content=b"12345", headers=bearer("slow")).raise_for_status()
    text = client.get("/metrics").text
    assert 'nsqd_identity_messages_total{identity="slow"} 1.0\n' in text
    assert 'nsqd_identity_message_bytes_total{identity="slow"} 5.0\n' in text
    assert client.get("/identities").status_code == 401
    assert "nsqd_identity" not in plain.get("/metrics").text
    assert plain.get("/identities").status_code == 404

"""Buried messages over HTTP: listed in pages with their reasons, kicked and finished by their ids or by number."""

import base64
from typing import Any

import httpx
import pytest

from tests.cases import each
from tests.daemons import OK, Conversation, Message
from tests.local_node import SECOND, LocalNode

IN = {"topic": "t", "channel": "c"}


class Buried:
    """A node on which three messages have been handed back twice each, and so were given up."""

    def __init__(self) -> None:
        self.node = LocalNode("-max-attempts", "2")
        assert self.node.client.post("/mpub?topic=t", content=b"one\ntwo\nthree").text == "OK"
        self.last: list[Message] = []
        with self.consume() as client:
            for _ in range(6):
                message = client.message()
                client.send(b"REQ " + message.id + b" 0\n")
                if message.attempts == 2:
                    self.last.append(message)
            self.node.advance(SECOND)
        assert self.stats()["buried_count"] == 3

    def consume(self) -> Conversation:
        client = Conversation(self.node, b"  V2SUB t c\nRDY 1\n")
        assert client.frame() == OK
        return client

    def stats(self) -> dict[str, Any]:
        return self.node.client.get("/stats?format=json").json()["topics"][0]["channels"][0]

    def list(self, **arguments: str | int) -> dict[str, Any]:
        return self.node.client.get("/channel/buried", params=IN | arguments).json()

    def act(self, verb: str, **arguments: str | int) -> Any:
        return self.node.client.post(f"/channel/buried/{verb}", params=IN | arguments).json()


@pytest.fixture
def buried() -> Buried:
    return Buried()


def test_what_is_delivered_too_often_is_kept_with_its_reason(buried: Buried) -> None:
    last, stats = buried.last, buried.stats()
    assert (stats["depth"], stats["in_flight_count"], stats["deferred_count"], stats["requeue_count"]) == (0, 0, 0, 6)
    answer = buried.list(body="true")
    assert answer["buried_count"] == 3
    assert [base64.b64decode(message["body"]) for message in answer["messages"]] == [m.body for m in last]
    assert [message["id"] for message in answer["messages"]] == [m.id.decode() for m in last]
    first = answer["messages"][0]
    assert (first["attempts"], first["failures"], first["reason"]) == (2, 2, "requeued")
    assert first["body_size"] == len(last[0].body)
    assert first["timestamp"] == last[0].timestamp < first["buried_at"]


def test_a_kicked_message_is_delivered_as_if_it_were_new(buried: Buried) -> None:
    last = buried.last[1]
    assert buried.act("kick", id=last.id.decode()) == {"kicked": 1}
    with buried.consume() as client:
        message = client.message()
        assert (message.id, message.attempts, message.body) == (last.id, 1, last.body)
        client.send(b"FIN " + message.id + b"\n")
        buried.node.advance(SECOND)
        assert buried.stats()["in_flight_count"] == 0
    assert buried.act("kick", id=last.id.decode()) == {"kicked": 0}
    assert buried.act("kick", count=1) == {"kicked": 1}
    assert [message["id"].encode() for message in buried.list()["messages"]] == [buried.last[2].id]
    assert buried.act("kick", count=10) == {"kicked": 1}
    assert "buried_count" not in buried.stats()


@pytest.fixture(scope="module")
def client() -> httpx.Client:
    client = LocalNode().client
    client.post("/topic/create", params=IN).raise_for_status()
    client.post("/channel/create", params=IN).raise_for_status()
    return client


@each("verb, arguments, status, message", [
    ("kick", IN, 400, "MISSING_ARG_ID"), ("kick", IN | {"id": "short"}, 400, "INVALID_ID"),
    ("finish", {"topic": "t", "channel": "nowhere", "count": "1"}, 404, "CHANNEL_NOT_FOUND"),
    ("finish", {"topic": "nowhere", "channel": "c", "count": "1"}, 404, "TOPIC_NOT_FOUND"),
])  # fmt: skip
def test_wrong_requests_about_dead_letters(
    client: httpx.Client, verb: str, arguments: dict[str, str], status: int, message: str
) -> None:
    answer = client.post(f"/channel/buried/{verb}", params=arguments)
    assert (answer.status_code, answer.json()) == (status, {"message": message})

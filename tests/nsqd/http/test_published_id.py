"""/pub with id=true: the id is the message's, whatever else is published in the same turn and however."""

import http.client
from typing import Any, cast

import httpx

from tests.local_node import LocalNode
from tests.nsqd.http.asking import get
from tests.nsqd.http.test_messages import publish

FLAGS = ("-mem-queue-size", "2")

HEADER = "x-nsq-message-id"


def pub(node: LocalNode, body: str, headers: dict[str, str] | None = None, **arguments: str) -> httpx.Headers:
    answer = node.client.post("/pub", params=arguments, content=body, headers=headers)
    assert (answer.status_code, answer.text) == (200, "OK")
    return answer.headers


def bodies(node: LocalNode, topic: str, state: str = "ready") -> dict[str, str]:
    shown = get(node, "/channel/messages", topic=topic, channel="c", state=state, limit=1000)
    return {one["id"]: one["body"] for one in shown["messages"]}


def test_however_it_is_published(node: LocalNode) -> None:
    publish(node, "t")
    ways: list[tuple[str, dict[str, str], dict[str, str]]] = [
        ("plain", {}, {}), ("keyed", {"key": "k"}, {}), ("headed", {}, {"X-Nsq-Header-Kind": "k"}),
        ("only", {"channel": "c"}, {}), ("at once", {"defer": "0"}, {}), ("later", {"defer": "900000"}, {}),
    ]  # fmt: skip
    ids = {body: pub(node, body, headers, topic="t", id="true", **more)[HEADER] for body, more, headers in ways}
    assert {body: name for name, body in (bodies(node, "t") | bodies(node, "t", "deferred")).items()} == ids
    assert all(len(name) == 16 and int(name, 16) for name in ids.values())


def test_who_does_not_ask_and_what_has_none(node: LocalNode) -> None:
    assert HEADER not in pub(node, "x", topic="none")
    assert HEADER not in pub(node, "x", topic="none", id="false")
    assert HEADER in pub(node, "x", topic="none", id="true", key="k")
    again = pub(node, "x", topic="none", id="true", key="k")
    assert (again["x-nsq-duplicates"], HEADER in again) == ("1", False)
    shown = [HEADER in pub(node, "x", topic="small#ephemeral", id="true") for _ in range(3)]
    assert shown == [True, True, False]  # there is no channel, and room for two
    refused = node.client.post("/pub?topic=none&id=true&defer=x", content=b"x")
    assert (refused.status_code, HEADER in refused.headers) == (400, False)


def test_many_at_once_in_the_same_turns(node: LocalNode) -> None:
    publish(node, "busy")
    clients = [node.connect("HTTP") for _ in range(40)]
    shown: dict[str, str] = {}
    for start in range(0, 240, 40):
        for number, client in enumerate(clients, start):
            more = ["&id=true", "", f"&key={number}", f"&id=true&key={number}"][number % 4]
            head = (
                f"POST /pub?topic=busy{more} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(str(number))}\r\n\r\n"
            )
            client.sendall(f"{head}{number}".encode())
        for client in clients:
            client.land()
        for number, client in enumerate(clients, start):
            answer = http.client.HTTPResponse(cast(Any, client))
            answer.begin()
            assert (answer.status, answer.read()) == (200, b"OK")
            shown[answer.headers.get(HEADER, "")] = str(number)
    shown.pop("")
    assert len(shown) == 120
    found = bodies(node, "busy")
    assert len(found) == 240
    assert shown.items() <= found.items()

"""/pub with id=true on a real nsqd: the id is the message's, whatever else is published in the same turn and however."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest

from tests.daemons import Daemon

pytestmark = pytest.mark.process
SHARED_FLAGS = ("-mem-queue-size", "2")

HEADER = "x-nsq-message-id"


def pub(node: Daemon, body: str, headers: dict[str, str] | None = None, **arguments: str) -> httpx.Response:
    answer = httpx.post(f"http://{node.http}/pub", params=arguments, content=body, headers=headers)
    assert (answer.status_code, answer.text) == (200, "OK")
    return answer


def bodies(node: Daemon, topic: str, state: str = "ready") -> dict[str, str]:
    """Return the bodies of a channel's messages by message id."""
    params = {"topic": topic, "channel": "c", "state": state, "limit": "1000"}
    told: Any = httpx.get(f"http://{node.http}/channel/messages", params=params).raise_for_status().json()
    return {one["id"]: one["body"] for one in told["messages"]}


def made(node: Daemon, topic: str) -> None:
    httpx.post(f"http://{node.http}/topic/create?topic={topic}").raise_for_status()
    httpx.post(f"http://{node.http}/channel/create?topic={topic}&channel=c").raise_for_status()


def test_however_it_is_published(shared: Daemon) -> None:
    made(shared, "t")
    ways: list[tuple[str, dict[str, str], dict[str, str]]] = [
        ("plain", {}, {}),
        ("keyed", {"key": "k"}, {}),
        ("headed", {}, {"X-Nsq-Header-Kind": "k"}),
        ("only", {"channel": "c"}, {}),
        ("at once", {"defer": "0"}, {}),
        ("later", {"defer": "900000"}, {}),
    ]
    ids = {
        body: pub(shared, body, headers, topic="t", id="true", **more).headers[HEADER] for body, more, headers in ways
    }
    assert {body: name for name, body in (bodies(shared, "t") | bodies(shared, "t", "deferred")).items()} == ids
    assert all(len(name) == 16 and int(name, 16) for name in ids.values())


def test_a_topic_is_made_for_it(shared: Daemon) -> None:
    first = pub(shared, "first", topic="new", id="1").headers[HEADER]
    made(shared, "new")
    assert bodies(shared, "new") == {first: "first"}


def test_who_does_not_ask_and_what_has_none(shared: Daemon) -> None:
    assert HEADER not in pub(shared, "x", topic="none").headers
    assert HEADER not in pub(shared, "x", topic="none", id="false").headers
    assert HEADER in pub(shared, "x", topic="none", id="true", key="k").headers
    again = pub(shared, "x", topic="none", id="true", key="k")
    assert (again.headers["x-nsq-duplicates"], HEADER in again.headers) == ("1", False)
    told = [HEADER in pub(shared, "x", topic="small#ephemeral", id="true").headers for _ in range(3)]
    assert told == [True, True, False]  # there is no channel, and room for two
    refused = httpx.post(f"http://{shared.http}/pub?topic=none&id=true&defer=x", content=b"x")
    assert (refused.status_code, HEADER in refused.headers) == (400, False)


def test_many_at_once_in_the_same_turns(shared: Daemon) -> None:
    made(shared, "busy")

    async def publish() -> dict[str, str]:
        limits = httpx.Limits(max_connections=40)
        async with httpx.AsyncClient(base_url=f"http://{shared.http}", limits=limits, timeout=30) as client:

            async def one(number: int) -> tuple[str, str]:
                more = [{"id": "true"}, {}, {"key": f"{number}"}, {"id": "true", "key": f"{number}"}][number % 4]
                answer = await client.post("/pub", params={"topic": "busy", **more}, content=f"{number}")
                assert answer.status_code == 200
                return answer.headers.get(HEADER, ""), f"{number}"

            return dict(await asyncio.gather(*map(one, range(600))))

    told = asyncio.run(publish())
    told.pop("")
    assert len(told) == 300
    found = bodies(shared, "busy")
    assert len(found) == 600
    assert told.items() <= found.items()

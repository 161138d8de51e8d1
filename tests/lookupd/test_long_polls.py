"""Long polls of /lookup: what ends them, and what does not."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace

import httpx
import pytest

from lookupd import long_polls
from lookupd.long_polls import Registrations
from lookupd.producers import Peer
from lookupd.registry import Registry
from tests.cases import each
from tests.lookupd.test_http import NODE1, NODE2, SECOND, T0, Lookupd

Get = Callable[[str], Awaitable[httpx.Response]]


def converse(lookupd: Lookupd, conversation: Callable[[Get], Awaitable[None]]) -> None:
    """Run a conversation of several requests at a time."""

    async def run() -> None:
        lookupd.bridge._loop = None
        transport = httpx.ASGITransport(lookupd.app)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            await asyncio.wait_for(conversation(client.get), 10)

    asyncio.run(run())
    assert not lookupd.bugs
    assert not lookupd.handlers.long_polls
    assert not lookupd.registry._watches
    lookupd.registry.check()


async def until_waiting(lookupd: Lookupd, count: int) -> None:
    """Wait until `count` polls wait, and the registry knows of them."""
    while len(lookupd.handlers.long_polls) != count or not lookupd.registry._watches:
        await asyncio.sleep(0)


def disconnect(lookupd: Lookupd, peer: Peer) -> None:
    lookupd.registry.disconnect(peer)


def fall_silent(lookupd: Lookupd, peer: Peer) -> None:
    lookupd.now += 301 * SECOND


@each(
    "change",
    [
        disconnect, fall_silent,
        lambda lookupd, peer: lookupd.producer(NODE2, "t"),
        lambda lookupd, peer: lookupd.registry.register(peer, "t", "d"),
        lambda lookupd, peer: lookupd.registry.unregister_topic(peer, "t"),
        lambda lookupd, peer: lookupd.registry.unregister_channel(peer, "t", "c#ephemeral"),
        lambda lookupd, peer: lookupd.registry.tombstone("t", NODE1.node, lookupd.now),
        lambda lookupd, peer: lookupd.registry.create_channel("t", "e"),
        lambda lookupd, peer: lookupd.registry.delete_channel("t", "c#ephemeral"),
        lambda lookupd, peer: lookupd.registry.delete_topic("t"),
    ],
)  # fmt: skip
def test_a_change_of_the_topic_answers_its_polls_and_no_others(change: Callable[[Lookupd, Peer], object]) -> None:
    lookupd = Lookupd()
    peer = lookupd.producer(NODE1, "t c#ephemeral", "u")
    lookupd.now += 300 * SECOND - 1_000_000  # in 1 ms more the producer is silent

    async def conversation(get: Get) -> None:
        before = (await get("/lookup?topic=t&wait=0s")).json()
        assert before.keys() == {"channels", "producers", "version"}
        polls = [asyncio.ensure_future(get(f"/lookup?topic=t&wait=60s&version={before['version']}")) for _ in range(2)]
        other = asyncio.ensure_future(get(f"/lookup?topic=other&wait=60s&version={Registrations([], None).version}"))
        await until_waiting(lookupd, 3)
        lookupd.registry.register(peer, "t")  # known already
        change(lookupd, peer)
        answers = [(await poll).json() for poll in polls]
        assert answers[0] == answers[1]
        assert answers[0]["version"] != before["version"]
        assert answers[0] == (await get("/lookup?topic=t&wait=60s&version=old")).json()
        assert not other.done()
        lookupd.registry.close()  # the daemon stops
        assert (await other).status_code == 404
        assert (await get(f"/lookup?topic=t&wait=60s&version={answers[0]['version']}")).json() == answers[0]

    converse(lookupd, conversation)


def test_the_first_node_of_an_unknown_topic_and_a_producer_that_pings_again_answer_polls() -> None:
    lookupd = Lookupd()

    async def conversation(get: Get) -> None:
        unknown = await get("/lookup?topic=t&wait=1ms")
        assert (unknown.status_code, unknown.json()["message"]) == (404, "TOPIC_NOT_FOUND")
        assert (await get(f"/lookup?topic=t&wait=1ms&version={unknown.json()['version']}")).text == unknown.text
        poll = asyncio.ensure_future(get(f"/lookup?topic=t&wait=60s&version={unknown.json()['version']}"))
        await until_waiting(lookupd, 1)
        peer = lookupd.producer(NODE1, "t")
        assert [one["hostname"] for one in (await poll).json()["producers"]] == ["host1"]
        lookupd.now += 301 * SECOND
        silent = (await get("/lookup?topic=t&wait=0s")).json()
        assert silent["producers"] == []
        poll = asyncio.ensure_future(get(f"/lookup?topic=t&wait=60s&version={silent['version']}"))
        await until_waiting(lookupd, 1)
        lookupd.registry.ping(peer, lookupd.now)
        assert len((await poll).json()["producers"]) == 1

    converse(lookupd, conversation)


def test_time_ends_silence_and_tombstones() -> None:
    registry = Registry(300 * SECOND, 45 * SECOND)
    peer = registry.identify(NODE1, T0)
    registry.register(peer, "t")

    def constant_for(now: int) -> int:
        return registry.watch("t", lambda: None, now)

    assert constant_for(T0 + 10 * SECOND) == 290 * SECOND + 1
    registry.tombstone("t", NODE1.node, T0 + 10 * SECOND)
    assert constant_for(T0 + 20 * SECOND) == 35 * SECOND
    assert constant_for(T0 + 301 * SECOND) > 3600 * SECOND, "only a ping changes it"
    registry.close()
    assert constant_for(T0) == 0


def test_polls_are_bounded_and_a_client_that_disconnects_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(long_polls, "MOST_POLLS_PER_HOST", 1)
    lookupd = Lookupd()
    target = f"/lookup?topic=t&wait=60s&version={Registrations([], None).version}"

    async def conversation(get: Get) -> None:
        poll = asyncio.ensure_future(get(target))
        await until_waiting(lookupd, 1)
        refused = await get(target)
        assert (refused.status_code, refused.json()) == (503, {"message": "TOO_MANY_POLLS"})
        assert (await get("/lookup?topic=t&wait=0s")).status_code == 404
        lookupd.registry.close()
        await poll

    converse(lookupd, conversation)
    lookupd = Lookupd()

    async def disconnection(get: Get) -> None:
        messages = iter([{"type": "http.request", "body": b""}, {"type": "http.disconnect"}])

        async def receive() -> dict[str, object]:
            message: dict[str, object] = next(messages)
            if message["type"] == "http.disconnect":
                await until_waiting(lookupd, 1)
            return message

        async def send(message: object) -> None:
            raise AssertionError("it is gone")

        path, _, query = target.partition("?")
        scope = {"type": "http", "method": "GET", "path": path, "query_string": query.encode(), "scheme": "http",
                 "headers": [(b"host", b"127.0.0.1")], "server": ("127.0.0.1", 1), "client": ("10.0.0.9", 9)}  # fmt: skip
        await lookupd.app(scope, receive, send)  # type: ignore[arg-type]

    converse(lookupd, disconnection)


@each("query", ["wait=61s", "wait=x", "wait=", "wait=1s&version=" + 65 * "v"])
def test_bad_arguments(query: str) -> None:
    answer = Lookupd().get(f"/lookup?topic=t&{query}")
    name = "VERSION" if "version" in query else "WAIT"
    assert (answer.status_code, answer.json()) == (400, {"message": f"INVALID_ARG_{name}"})


def test_equal_states_have_one_version_at_any_nsqlookupd() -> None:
    versions = {
        Registrations(["c"], [NODE1, NODE2]).version,
        Registrations(["c"], [NODE2, replace(NODE1, remote_address="10.0.0.1:6")]).version,
    }
    assert len(versions) == 1
    others = [Registrations([], None), Registrations([], []), Registrations(["c"], []), Registrations(["c"], [NODE1])]
    assert len({one.version for one in others} | versions) == 5

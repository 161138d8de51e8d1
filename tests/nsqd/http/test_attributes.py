"""Headers, keys and sequences of messages: where HTTP shows them, what it refuses, and what a killed node remembers."""

import io
import json
from typing import Any

import httpx
import msgpack
import pytest

from tests.cases import each
from tests.daemons import OK, RESPONSE, Conversation, several, sized
from tests.local_node import SECOND, LocalNode


@pytest.fixture(scope="module")
def client() -> httpx.Client:
    return LocalNode("-retention", "1h").client


def post(client: httpx.Client, path: str, content: bytes = b"", **more: Any) -> int:
    """Return the number of messages of the request that were repeated."""
    answer = client.post(path, content=content, **more)
    assert answer.status_code == 200
    return int(answer.headers.get("x-nsq-duplicates", 0))


def read(client: httpx.Client, arguments: str) -> list[dict[str, Any]]:
    answer = client.get(f"/topic/read?{arguments}")
    assert answer.status_code == 200, answer.text
    lines = [json.loads(line) for line in answer.text.splitlines()]
    return [{name: value for name, value in line.items() if name not in ("id", "timestamp")} for line in lines]


def listed(client: httpx.Client, topic: str) -> dict[str, dict[str, Any]]:
    answer = client.get(f"/channel/messages?topic={topic}&channel=c&state=ready").raise_for_status()
    names = ("headers", "key", "producer", "sequence")
    return {one["body"]: {name: one[name] for name in names if name in one} for one in answer.json()["messages"]}


def test_attributes_are_shown_where_messages_are_read_back_and_listed(client: httpx.Client) -> None:
    for topic in ("headed", "elsewhere"):
        post(client, f"/topic/create?topic={topic}")
        post(client, f"/channel/create?topic={topic}&channel=c")
    post(client, "/pub?topic=headed", b"plain")
    two = [("X-Nsq-Header-TraceParent", b"00-ab-cd-01"), ("x-nsq-header-n", "\u00e4".encode())]
    post(client, "/pub?topic=headed&key=k1", b"one", headers=two)
    post(client, "/mpub?topic=headed&producer=p&sequence=41", b"two\nthree", headers={"X-Nsq-Header-n": ""})
    headers = {"traceparent": "00-ab-cd-01", "n": "\u00e4"}
    shown: list[dict[str, Any]] = [
        {"offset": 0, "body": "plain"},
        {"offset": 1, "body": "one", "headers": headers, "key": "k1"},
        {"offset": 2, "body": "two", "headers": {"n": ""}, "producer": "p", "sequence": 41},
        {"offset": 3, "body": "three", "headers": {"n": ""}, "producer": "p", "sequence": 42},
    ]
    assert (read(client, "topic=headed"), read(client, "topic=headed&from=3")) == (shown, shown[3:])
    answer = client.get("/topic/read?topic=headed&to=3", headers={"Accept": "application/msgpack"})
    batches = list(msgpack.Unpacker(io.BytesIO(answer.content)))
    assert [(first, count, more) for first, count, _, *more in batches] == [
        (0, 1, []),
        (1, 1, [{"headers": headers, "key": "k1"}]),
        (2, 1, [{"headers": {"n": ""}, "producer": "p", "sequence": 41}]),
    ]
    assert list(listed(client, "headed")) == ["plain", "one", "two", "three"]
    assert listed(client, "headed")["three"] == {"headers": {"n": ""}, "producer": "p", "sequence": 42}
    post(client, "/channel/messages/move?topic=headed&channel=c&state=ready&count=4&to=elsewhere")
    assert listed(client, "elsewhere") == {
        "plain": {}, "one": {"headers": headers}, "two": {"headers": {"n": ""}}, "three": {"headers": {"n": ""}},
    }  # fmt: skip


def header(name: str, value: bytes = b"x") -> tuple[str, bytes]:
    return f"X-Nsq-Header-{name}", value


@each("path", ["pub", "mpub"])
@each("arguments, headers, message", [
    ({"key": "k", "producer": "p", "sequence": "1"}, [], "INVALID_KEY"),
    ({"producer": "p"}, [], "MISSING_ARG_SEQUENCE"), ({"sequence": "1"}, [], "MISSING_ARG_PRODUCER"),
    ({"producer": "p", "sequence": str(2**62)}, [], "INVALID_SEQUENCE"),
    ({}, [header(str(number)) for number in range(33)], "TOO_MANY_HEADERS"),
    ({}, [header("a", b"x" * 8192)], "TOO_MANY_HEADERS"),
    ({}, [header("a", b"1"), ("x-nsq-header-A", b"2")], "INVALID_HEADER"), ({}, [header("")], "INVALID_HEADER"),
    ({}, [header("a", b"\xff")], "INVALID_HEADER"), ({"group": ""}, [], "INVALID_GROUP"),
    ({"group": "g" * 129}, [], "INVALID_GROUP"), ({"group": "g"}, [header("Group", b"h")], "INVALID_HEADER"),
    ({"group": "g"}, [header(str(number)) for number in range(32)], "TOO_MANY_HEADERS"),
    *(({"ttl": bad}, [], "INVALID_TTL") for bad in ("", "5", "0s", "-1s", "1" * 40 + "s")),
    *(({"priority": bad}, [], "INVALID_PRIORITY") for bad in ("", "10", "-1", "high", "0" * 99 + "x")),
    ({"priority": "1"}, [header("Priority", b"1")], "INVALID_HEADER"),
])  # fmt: skip
def test_attributes_that_are_refused(
    client: httpx.Client, path: str, arguments: dict[str, str], headers: list[tuple[str, bytes]], message: str
) -> None:
    answer = client.post(f"/{path}", params={"topic": "nothing", **arguments}, content=b"x", headers=headers)
    assert (answer.status_code, answer.json()) == (400, {"message": message})
    assert client.get("/topic/read?topic=nothing").status_code == 404


def test_the_most_attributes_are_taken(client: httpx.Client) -> None:
    many = [header(f"{number:02}", b"x" * 254) for number in range(32)]  # 8192 bytes with their names
    arguments = {"topic": "most", "producer": "p" * 128, "sequence": str(2**62 - 1)}
    post(client, "/pub", b"x", params=arguments, headers=many)
    (shown,) = read(client, "topic=most")
    assert (len(shown["headers"]), shown["producer"], shown["sequence"]) == (32, "p" * 128, 2**62 - 1)
    post(client, "/pub?topic=most&key=" + "k" * 128, b"x", headers=[header("a", b"x" * 8191)])


def test_a_group_is_in_order_for_consumers_that_see_no_headers_also_over_a_kill() -> None:
    node = LocalNode()
    post(node.client, "/topic/create?topic=t&ordering=group")
    post(node.client, "/channel/create?topic=t&channel=c")
    post(node.client, "/mpub?topic=t&group=g", b"1\n2")
    post(node.client, "/pub?topic=t", b"3", headers=[header("Group", b"g")])
    post(node.client, "/pub?topic=t&group=h", b"4")
    for body in (b"1", b"2", b"3"):
        with Conversation(node, hello() + b"SUB t c\nRDY 9\n") as client:
            frames = [frame[1] for _ in range(4) if (frame := client.frame()) is not None and frame[0] != RESPONSE]
            assert sorted(frame[26:] for frame in frames) == [body, b"4"]
            client.send(b"".join(b"FIN %s\n" % frame[10:26] for frame in frames if frame[26:] == body))
            client.send(b"CLS\n")
            assert client.frame() is not None
        node = node.killed()


def test_the_most_urgent_message_comes_first_however_its_priority_came_also_over_a_kill() -> None:
    node = LocalNode()
    post(node.client, "/topic/create?topic=t&ordering=priority")
    post(node.client, "/channel/create?topic=t&channel=c")
    post(node.client, "/mpub?topic=t", b"usual\nalso usual")
    post(node.client, "/mpub?topic=t&priority=9", b"last")
    post(node.client, "/pub?topic=t", b"second", headers=[header("Priority", b"1")])
    post(node.client, "/pub?topic=t", b"no priority", headers=[header("Priority", b"urgent")])
    post(node.client, "/pub?topic=t&priority=0", b"first")
    for _ in range(2):
        with Conversation(node, hello() + b"SUB t c\nRDY 6\n") as client:
            frames = [frame[1] for _ in range(8) if (frame := client.frame()) is not None and frame[0] != RESPONSE]
        order = [b"first", b"second", b"usual", b"also usual", b"no priority", b"last"]
        assert [frame[26:] for frame in frames] == order
        node = node.killed()


@each("is_delayed", [False, True])
def test_a_channel_has_the_jobs_of_beanstalkd_by_their_pri_also_from_disk(is_delayed: bool) -> None:
    node = LocalNode()
    post(node.client, "/topic/create?topic=t&ordering=priority")
    post(node.client, "/channel/create?topic=t&channel=c")
    pris = [4294967295, 268435456, 1048576, 65536, 131071, 65535, 4095, 255, 15, 1, 0]
    with node.connect("BEANSTALK") as worker, worker.makefile("rb") as answers:
        for pri in pris:
            worker.sendall(b"use t\r\nput %d %d 9 %d\r\n%d\r\n" % (pri, is_delayed, len(str(pri)), pri))
            assert (answers.readline(), answers.readline()[:8]) == (b"USING t\r\n", b"INSERTED")
    post(node.client, "/pub?topic=t" + "&defer=1000" * is_delayed, b"a message")
    node.advance(2 * SECOND)
    expected = [
        "0",
        "15",
        "1",
        "255",
        "4095",
        "65535",
        "65536",
        "131071",
        "a message",
        "1048576",
        "4294967295",
        "268435456",
    ]
    for _ in range(2):
        with Conversation(node, hello() + b"SUB t c\nRDY 99\n") as client:
            frames = [frame[1] for _ in range(14) if (frame := client.frame()) is not None and frame[0] != RESPONSE]
        assert [frame[26:].decode() for frame in frames] == expected
        node = node.killed()


def hello(**asked: bool) -> bytes:
    fields = {"feature_negotiation": True, "output_buffer_size": -1, **asked}
    return b"  V2IDENTIFY\n" + sized(json.dumps(fields).encode())


@pytest.mark.parametrize("durability", ["always", "interval", "os"])
def test_a_kill_between_publish_and_retry_gives_one_message(durability: str) -> None:
    flags = ("-durability", durability, "-retention", "1h")
    node, identify = LocalNode(*flags), json.dumps({"feature_negotiation": True, "deduplication": True}).encode()
    for life in range(3):
        again = life > 0
        assert post(node.client, "/pub?topic=t&key=k1", b"one") == again
        assert post(node.client, "/mpub?topic=t&producer=p&sequence=0", b"two\nthree") == 2 * again
        assert post(node.client, "/mpub?topic=t&producer=p&sequence=1", b"three\nfour") == 1 + again
        assert post(node.client, "/pub?topic=t&key=k2&defer=600000", b"later") == again
        with Conversation(node, b"  V2IDENTIFY\n" + sized(identify)) as client:
            client.send(b"PUB t k1\n" + sized(b"one") + b"PUB t k3\n" + sized(b"five"))
            client.send(b"MPUB t q 7\n" + several(b"six", b"seven"))
            assert [client.frame() for _ in range(4)][1:] == [OK] * 3
        bodies = [line["body"] for line in read(node.client, "topic=t")]
        assert sorted(bodies) == sorted(["one", "two", "three", "four", "later", "five", "six", "seven"])
        assert f"nsqd_duplicates_total {[2, 10][again]}.0" in node.client.get("/metrics").text
        node = node.killed(*flags)

"""Headers over TCP: a client that asked for them in IDENTIFY publishes and receives them, all others see what NSQ sends."""

import json
from struct import pack

import msgpack

from penstock.protocol import nsq
from penstock.protocol.headers import MOST_PACKED_BYTES, pack_headers, split_headers
from tests.cases import each
from tests.nsqd.core.node import MS, Node, ids
from tests.nsqd.protocols.nsq.wire import ERROR, MESSAGE, Wire, body, mpub

WITH_HEADERS = 3
TRACE = (("traceparent", "00-ab-cd-01"), ("city", "Zürich"))


def client(node: Node | None = None, **identify: object) -> Wire:
    wire = Wire(node)
    asked = {"feature_negotiation": True, "headers": True} | identify
    wire.send(b"IDENTIFY\n" + body(json.dumps(asked).encode()))
    return wire


def consumer(node: Node, **identify: object) -> Wire:
    wire = client(node, output_buffer_size=-1, **identify)
    wire.send(b"SUB t c\nRDY 10\n")
    wire.frames()
    return wire


def delivered(wire: Wire) -> list[tuple[tuple[tuple[str, str], ...], bytes, int]]:
    """Headers, body and attempts of the messages that came."""
    found = []
    for kind, data in wire.frames():
        attempts, content = int.from_bytes(data[8:10]), data[26:]
        headers, content = split_headers(content) if kind == WITH_HEADERS else ((), content)
        assert kind in (MESSAGE, WITH_HEADERS)
        found.append((headers, content, attempts))
    return found


def test_identify_confirms_it_and_without_it_the_commands_are_unknown() -> None:
    assert json.loads(client().replies()[0])["headers"] is True
    assert "headers" not in json.loads(client(headers=False).replies()[0])
    for wire in (client(headers=False), client(feature_negotiation=False), Wire()):
        wire.frames()
        wire.send(nsq.with_headers(nsq.pub("t", b"x"), TRACE))
        assert wire.frames() == [(ERROR, b"E_INVALID invalid command HPUB")]


def test_each_way_of_publishing_has_headers_and_clients_get_them_only_if_they_asked() -> None:
    node = Node()
    asked, other = consumer(node), client(node, output_buffer_size=-1, headers=False)
    other.send(b"SUB t d\nRDY 10\n")
    other.frames()
    producer = client(node, deduplication=True)
    producer.replies()
    commands = [
        nsq.pub("t", b"plain"), nsq.pub("t", b"one"), nsq.dpub("t", 0, b"two"), nsq.mpub("t", [b"three", b"four"]),
        nsq.pub("t", b"once", ("p", 7)), nsq.pub("t", b"once", ("p", 7)),
    ]  # fmt: skip
    for number, command in enumerate(commands):
        producer.send(nsq.with_headers(command, TRACE) if number else command)
    assert producer.replies() == [b"OK"] * 6
    bodies = [b"one", b"two", b"three", b"four", b"once"]
    assert delivered(asked) == [((), b"plain", 1), *((TRACE, one, 1) for one in bodies)]
    assert [(kind, data[26:]) for kind, data in other.frames()] == [(MESSAGE, one) for one in (b"plain", *bodies)]


def test_a_message_that_comes_back_and_a_delayed_one_have_their_headers() -> None:
    node = Node()
    wire = consumer(node)
    wire.send(nsq.with_headers(nsq.pub("t", b"back"), TRACE))
    (data,) = [data for kind, data in wire.frames() if kind == WITH_HEADERS]
    wire.send(b"REQ %b 0\n" % data[10:26])
    assert delivered(wire) == [(TRACE, b"back", 2)]
    wire.send(nsq.with_headers(nsq.dpub("t", 50, b"late"), TRACE))
    assert wire.replies() == [b"OK"]
    node.advance(50 * MS)
    assert delivered(wire) == [(TRACE, b"late", 1)]


def test_a_command_may_come_in_any_pieces() -> None:
    wire = client()
    wire.replies()
    commands = [nsq.pub("t", b"one"), nsq.dpub("t", 5, b"two"), nsq.mpub("t", [b"three", b"four"])]
    for byte in b"".join(nsq.with_headers(command, TRACE) for command in commands):
        wire.send(bytes([byte]))
    assert wire.replies() == [b"OK"] * 3
    assert wire.node.broker.topics["t"].offsets.end == 4


MANY = tuple((f"n{number}", "") for number in range(33))


@each("headers, why", [
    (b"\x00\x00\x00\x00", b"PUB invalid headers size 0"), (b"\xff\xff\xff\xff", b"PUB invalid headers size -1"),
    (pack(">i", MOST_PACKED_BYTES + 1), b"PUB headers too big %d > %d" % (MOST_PACKED_BYTES + 1, MOST_PACKED_BYTES)),
    (body(b"\xc1"), b"headers are not valid: "), (body(b"\x90\x90"), b"headers are not valid: "),
    (body(msgpack.packb({"a": "b"})), b"headers are not valid: "), (body(msgpack.packb([["a"]])), b"headers are not valid: "),
    (body(msgpack.packb([["a", 1]])), b"headers are not valid: "), (body(b"[" * 4000), b"headers are not valid: "),
    (body(b"\x91" * 4000), b"headers are not valid: "), (body(b"\xdd\xff\xff\xff\xff"), b"headers are not valid: "),
    (pack_headers((("A", "x"),)), b"headers are not valid: "), (pack_headers((("", "x"),)), b"headers are not valid: "),
    (pack_headers((("a b", "x"),)), b"headers are not valid: "), (pack_headers((("a", "x\ny"),)), b"headers are not valid: "),
    (pack_headers((("a", "1"), ("a", "2"))), b"headers are not valid: "), (pack_headers(MANY), b"headers are not valid: "),
    (pack_headers((("a", "x" * 8192),)), b"headers are not valid: "),
])  # fmt: skip
def test_headers_that_are_not_valid_end_the_connection(headers: bytes, why: bytes) -> None:
    wire = client()
    wire.replies()
    wire.send(b"HPUB t\n" + headers + body(b"x"))
    ((kind, error),) = wire.frames()
    assert (kind, error[: 14 + len(why)]) == (ERROR, b"E_BAD_MESSAGE " + why)
    assert wire.peer.closing
    assert "t" not in wire.node.broker.topics


def test_what_is_wrong_behind_the_headers_is_the_commands_own_error() -> None:
    for command in (b"PUB", b"DPUB", b"MPUB"):
        errors = []
        for prefix, headers in ((b"", b""), (b"H", pack_headers(TRACE))):
            wire = client()
            wire.replies()
            wire.send(prefix + command + b" t 5\n" + headers + body(b""))
            errors += wire.frames()
        assert errors[0] == errors[1]
        assert errors[0][0] == ERROR


def test_a_batch_of_headers_does_not_exceed_the_room_of_a_consumer() -> None:
    node = Node()
    wire = client(node)
    wire.replies()
    long = (("n", "x" * 8000),)
    wire.send(nsq.with_headers(mpub(b"t", *[b"x"] * 200), long))
    extents = [extent for first in (0, 199) if (extent := node.broker.topics["t"].journal.read(first)) is not None]
    assert all(len(extent.frames) * extent.longest_headers < 2 << 20 for extent in extents)


@each(
    "command, error",
    [
        (nsq.pub("t", b"x"), b"E_PUB_FAILED PUB failed BATCH_DONE"),
        (nsq.dpub("t", 5, b"x"), b"E_DPUB_FAILED DPUB failed BATCH_DONE"),
        (nsq.mpub("t", [b"x", b"y"]), b"E_MPUB_FAILED MPUB failed BATCH_DONE"),
        (nsq.mpub("t", [b"x"] * 9000), b"E_MPUB_FAILED MPUB failed BATCH_DONE"),
    ],
)
def test_headers_make_messages_members_of_a_batch_and_one_that_is_done_refuses_them(
    command: bytes, error: bytes
) -> None:
    node = Node()
    wire, batches = client(node), node.broker.context.batches
    wire.replies()
    wire.send(nsq.with_headers(nsq.mpub("t", [b"1", b"2"]), (("batch", "b"),)))
    assert wire.replies() == [b"OK"]
    assert batches.known["b"].count == 2
    batches._finish("b", 0, 1)
    wire.send(nsq.with_headers(command, (("batch", "b"),)))
    node.turn()
    assert wire.frames() == [(ERROR, error)]


def test_the_header_unique_is_a_key_while_its_message_is_pending() -> None:
    node = Node()
    wire = client(node, deduplication=True)
    wire.replies()
    once = (("unique", "k"),)
    topic = node.broker.topic("t")
    for command in (nsq.pub("t", b"1"), nsq.pub("t", b"2"), nsq.dpub("t", 5, b"3"), nsq.pub("t", b"4", ("p", 7))):
        wire.send(nsq.with_headers(command, once))
    wire.send(nsq.pub("t", b"5", ("p", 7)) + b"PUB t k\n" + body(b"6"))  # which had no number, and another kind of key
    assert (wire.replies(), topic.offsets.end, topic.intake.duplicate_count) == ([b"OK"] * 6, 3, 3)
    consumer, inbox = node.subscribe("t", "c", ready=9)
    consumer.finish(ids(inbox.take()))
    wire.send(nsq.with_headers(nsq.pub("t", b"again"), once))
    assert (wire.replies(), topic.offsets.end) == ([b"OK"], 4)


@each("command, unique", [
    (nsq.mpub("t", [b"x", b"y"]), "k"), (nsq.pub("t", b"x"), ""), (nsq.pub("t", b"x"), "a b"),
    (nsq.pub("t", b"x", ("p", 1)), "k" * 129),
    (b"PUB t other\n" + body(b"x"), "k"),
])  # fmt: skip
def test_a_header_unique_that_is_refused(command: bytes, unique: str) -> None:
    wire = client(deduplication=True)
    wire.replies()
    wire.send(nsq.with_headers(command, (("unique", unique),)))
    ((kind, error),) = wire.frames()
    assert (kind, error.partition(b" failed ")[2]) == (ERROR, b"INVALID_UNIQUE")

"""The extension of PUB, DPUB and MPUB by keys and sequences, a feature of IDENTIFY."""

import json

from tests.cases import each
from tests.nsqd.core.node import Node
from tests.nsqd.protocols.nsq.wire import ERROR, Wire, body, mpub


def producer(node: Node | None = None, **identify: object) -> Wire:
    wire = Wire(node)
    asked = {"feature_negotiation": True, "deduplication": True} | identify
    wire.send(b"IDENTIFY\n" + body(json.dumps(asked).encode()))
    return wire


def published(node: Node) -> tuple[int, int]:
    """Messages, and those that were repeated."""
    topic = node.broker.topics["t"]
    return topic.offsets.end, topic.intake.duplicate_count


def test_identify_confirms_it_and_without_it_further_arguments_are_ignored() -> None:
    assert json.loads(producer().replies()[0])["deduplication"] is True
    assert "deduplication" not in json.loads(producer(deduplication=False).replies()[0])
    assert producer(feature_negotiation=False).replies() == [b"OK"]
    assert producer(deduplication="yes").frames() == [(ERROR, b"E_BAD_BODY IDENTIFY failed to decode JSON body")]
    wire = Wire()
    wire.send((b"PUB t k\n" + body(b"x")) * 2 + (b"DPUB t 0 p q r\n" + body(b"x")) * 2 + mpub(b"t k", b"x") * 2)
    assert wire.replies() == [b"OK"] * 6
    assert published(wire.node) == (6, 0)


def test_a_repeated_message_is_answered_and_not_published() -> None:
    wire = producer()
    wire.replies()
    wire.send(b"PUB t k1\n" + body(b"x") + b"PUB t k1\n" + body(b"x"))
    wire.send(b"PUB t k1\n" + body(b"x") + b"PUB t k2\n" + body(b"x"))
    assert wire.replies() == [b"OK"] * 4
    assert published(wire.node) == (2, 2)
    wire.send(b"DPUB t 5 k1\n" + body(b"x") + b"DPUB t 0 k3\n" + body(b"x") + b"DPUB t 5 k4\n" + body(b"x"))
    assert wire.replies() == [b"OK"] * 3
    assert published(wire.node) == (4, 3)
    wire.send(mpub(b"t all", b"x", b"y") + mpub(b"t all", b"x", b"y") + mpub(b"t p 10", *[b"x"] * 5))
    wire.send(mpub(b"t p 12", *[b"x"] * 5) + b"PUB t p 16\n" + body(b"x") + b"PUB t p 17\n" + body(b"x"))
    assert wire.replies() == [b"OK"] * 6
    assert published(wire.node) == (4 + 2 + 5 + 2 + 1, 3 + 2 + 3 + 1)
    assert wire.peer.pub_counts == {"t": 14}


def test_another_connection_knows_it_too_also_an_mpub_that_comes_in_pieces() -> None:
    one = producer()
    two = producer(one.node)
    for wire in (one, two):
        wire.send(b"PUB t k\n" + body(b"x"))
        for byte in mpub(b"t l", b"one", b"three"):
            wire.send(bytes([byte]))
    assert published(one.node) == (3, 3)


@each("words", [b"p x", b"p -1", b"p 1 2", b"", b"p ", b" 1", b"\xc3\xa4", b"k" * 129, b"p %d" % 2**62, b"p\t1 1"])
@each("command", [b"PUB t ", b"DPUB t 5 ", b"MPUB t "])
def test_words_that_make_no_sense_end_the_connection(command: bytes, words: bytes) -> None:
    wire = producer()
    wire.replies()
    wire.send(command + words + b"\n" + body(b"x"))
    name = command.split()[0]
    assert wire.frames() == [(ERROR, b"E_INVALID %s wants a key, or a producer and a sequence" % name)]
    assert wire.peer.closing
    assert "t" not in wire.node.broker.topics

"""An MPUB of very many messages is read and published in slices over several turns, and answered once."""

import struct

import pytest

from nsqd.protocols.nsq.batch import SLICE
from nsqd.protocols.nsq.settings import Settings
from tests.cases import each
from tests.nsqd.protocols.nsq.wire import Wire, body, mpub

MANY = 3 * SLICE + 7
LIMITS = Settings(max_body_size=5 << 20)


@pytest.fixture
def wire() -> Wire:
    return Wire(settings=LIMITS)


def turn(wire: Wire, data: bytes = b"") -> int:
    """One turn, in which `data` arrives. Returns how many messages were published in it."""
    topic = wire.node.broker.topics.get("t")
    before = topic.intake.message_count if topic is not None else 0
    wire.peer.receive(data, wire.node.now)
    wire.node.turn()
    topic = wire.node.broker.topics.get("t")
    return (topic.intake.message_count if topic is not None else 0) - before


@each("alike, known", [(True, True), (False, False)], wire=lambda: Wire(settings=LIMITS))
def test_each_turn_publishes_a_slice_and_the_last_one_answers(wire: Wire, alike: bool, known: bool) -> None:
    if known:  # whole in the buffer and of one size: the fast path
        wire.send(b"PUB t\n" + body(b"first"))
        assert wire.replies() == [b"OK"]
    bodies = [b"xyz" if alike or number % 2 else b"xy" for number in range(MANY)]
    published = [turn(wire, mpub(b"t", *bodies) + b"NOP\n" + b"PUB t\n" + body(b"behind"))]
    while wire.peer.has_more:
        assert wire.replies() == []
        published.append(turn(wire))
    assert max(published) <= SLICE + 1
    assert sum(published) == MANY + 1
    assert wire.replies() == [b"OK", b"OK"]
    assert wire.peer.pub_counts == {"t": MANY + 1 + known}
    assert turn(wire, mpub(b"t", *[b"xyz"] * (SLICE // 4)) * 9) == SLICE  # many that are large together
    while wire.peer.has_more:
        assert turn(wire) <= SLICE
    assert wire.replies() == [b"OK"] * 9
    size = sum(map(len, bodies)) + len(b"behind") + known * len(b"first") + 9 * (SLICE // 4) * len(b"xyz")
    assert wire.node.broker.topics["t"].intake.message_bytes == size
    wire.node.broker.check()


def test_nothing_of_a_bad_one_is_published(wire: Wire) -> None:
    whole = mpub(b"t", *[b"x"] * MANY)
    turn(wire, whole[:-5] + struct.pack(">i", 0) + b"x")
    while wire.peer.has_more:
        turn(wire)
    assert wire.replies() == [b"E_BAD_MESSAGE MPUB invalid message(%d) body size 0" % (MANY - 1)]
    assert wire.node.broker.topics["t"].intake.message_count == 0


def test_reading_takes_slices_too(wire: Wire) -> None:
    turn(wire, mpub(b"t", *[b"x", b"xy"] * MANY)[:-1])
    turns = 0
    while wire.peer.has_more:
        turn(wire)
        turns += 1
    assert turns >= 2 * MANY // SLICE
    assert wire.replies() == []
    turn(wire, b"y")  # the last byte
    assert turn(wire) == SLICE


def test_a_topic_that_can_no_longer_be_published_to_is_an_error(wire: Wire) -> None:
    wire.send(b"PUB t\n" + body(b"first"))
    turn(wire, mpub(b"t", *[b"x"] * MANY))
    wire.node.broker.drain(True)
    while wire.peer.has_more:
        turn(wire)
    assert wire.replies() == [b"OK", b"E_MPUB_FAILED MPUB failed DRAINING"]
    assert wire.peer.closing


def batch_mpub(words: bytes, count: int) -> bytes:
    return mpub(b"t" + words, *[b"x"] * count)


def hello(wire: Wire) -> None:
    text = b'{"feature_negotiation":true,"deduplication":true}'
    wire.send(b"IDENTIFY\n" + struct.pack(">i", len(text)) + text)
    wire.replies()


@each("words, again", [(b" key", MANY), (b" producer 100", 0)], wire=lambda: Wire(settings=LIMITS))
def test_a_broken_one_may_be_sent_again(wire: Wire, words: bytes, again: int) -> None:
    hello(wire)
    turn(wire, batch_mpub(words, MANY))
    intake = wire.node.broker.topics["t"].intake
    while not intake.message_count:
        turn(wire)
    wire.peer.disconnected()  # a part is published: the client says it again
    assert not wire.peer.has_more
    assert wire.replies() == []
    part = intake.message_count
    assert 0 < part <= 2 * SLICE < MANY
    for _ in range(2):
        other = Wire(wire.node, LIMITS)
        hello(other)
        assert other.send(batch_mpub(words, MANY)).replies() == [b"OK"]
        assert intake.message_count == (part + MANY if again else MANY)
    assert intake.duplicate_count == (MANY if again else part + MANY)
    assert again or intake.dedup.producers["producer"] == 100 + MANY - 1
    wire.node.broker.check()


def test_failed_fins_end_a_clients_turn(wire: Wire) -> None:
    wire.send(b"SUB t c\n")
    wire.peer.receive(b"FIN 0123456789abcdef\n" * 5000, wire.node.now)
    assert wire.peer.has_more
    turns = 1
    while wire.peer.has_more:
        turn(wire)
        turns += 1
    assert turns >= 5000 // 512
    assert wire.replies() == [b"OK"] + [b"E_FIN_FAILED FIN 0123456789abcdef failed ID not in flight"] * 5000

"""Deduplicated publish in the core: keys with their window, producers with their numbers, and what carries attributes."""

from nsqd.core.message.attributes import Attributes, is_word, read_sequence, unpack
from nsqd.core.sequence.dedup import Dedup, DedupLimits, Remembered
from nsqd.core.timing.pause import NOT_KNOWN
from tests.cases import each
from tests.nsqd.core.node import MS, SECOND, Node, bodies
from tests.nsqd.storage.sim_node import SimNode

LIMITS = DedupLimits(window=10, keys=3, producers=2)


def key(text: str) -> Attributes:
    return Attributes(key=text)


def by(producer: str, sequence: int) -> Attributes:
    return Attributes(producer=producer, sequence=sequence)


def test_a_key_is_known_for_the_window_and_no_more_keys_and_producers_than_allowed() -> None:
    seen = Dedup(LIMITS, Remembered())
    assert seen.admit(key("a"), 1, 100) == 0
    assert seen.admit(key("a"), 1, 110) == 1  # knowing it again does not make it younger
    assert seen.admit(key("a"), 1, 111) == 0
    assert seen.admit(key("a"), 5, 121) == 5  # all of them together
    seen = Dedup(LIMITS, Remembered())
    for name in "abcd":
        assert seen.admit(key(name), 1, 100) == 0
    assert list(seen.keys) == ["b", "c", "d"], "the oldest goes"
    assert seen.admit(key("a"), 1, 100) == 0
    for name in ("p", "q", "p", "r"):
        seen.admit(by(name, 1), 1, 0)
    assert list(seen.producers) == ["p", "r"], "the one that was silent for longest goes"
    seen = Dedup(LIMITS, Remembered())
    seen.restore({"a": 80, "b": 95, "c": 96, "d": 97, "e": 98}, {"p": 1, "q": 2, "r": 3}, {}, 100)
    assert (list(seen.keys), dict(seen.producers)) == (["c", "d", "e"], {"q": 2, "r": 3})


def test_old_keys_are_forgotten_some_at_a_time_and_a_node_remembers_so_much() -> None:
    seen = Dedup(DedupLimits(window=10, keys=10_000, producers=2), Remembered())
    for number in range(1000):
        seen.admit(key(f"k{number}"), 1, 100)
    assert seen.admit(key("k999"), 1, 111) == 0
    assert 700 < len(seen.keys) < 1000
    assert seen.admit(key("k999"), 1, 112) == 1
    seen.expire_keys(112)
    assert list(seen.keys) == ["k999"]
    total = Remembered()
    one, other = Dedup(LIMITS, total), Dedup(LIMITS, total)
    for name in "abc":
        one.admit(key(name), 1, 100)
        one.admit(by(name, 1), 1, 100)
    other.admit(key("d"), 1, 100)
    assert (list(one.keys), list(other.keys), total.keys) == (["a", "b", "c"], [], 3)
    one.clear()
    assert (total.keys, total.producers) == (0, 0)
    assert [other.admit(key(name), 1, 100) for name in "dd"] == [0, 1]


def test_a_producers_numbers_are_known_up_to_the_last_and_gaps_are_its_own_business() -> None:
    seen = Dedup(LIMITS, Remembered())
    assert seen.admit(by("p", 0), 3, 0) == 0  # 0, 1, 2
    assert seen.admit(by("p", 0), 3, 0) == 3
    assert seen.admit(by("p", 1), 4, 0) == 2  # 3 and 4 are new
    assert seen.admit(by("p", 100), 1, 10**12) == 0
    assert seen.admit(by("p", 50), 1, 10**15) == 1  # however old
    assert seen.admit(by("q", 50), 1, 0) == 0


def test_what_is_published_twice_is_delivered_once_also_with_a_delay() -> None:
    node = Node()
    _, inbox = node.subscribe("t", "c", 100)
    topic = node.broker.topic("t")
    assert topic.intake.publish_with([b"1"], key("k")) == 0
    assert topic.intake.publish_with([b"1"], key("k")) == 1  # in the same turn
    node.turn()
    assert topic.intake.publish_with([b"1"], key("k")) == 1
    assert topic.intake.publish_with([b"2", b"3"], by("p", 7)) == 0
    assert topic.intake.publish_with([b"3", b"4"], by("p", 8)) == 1
    node.turn()
    assert bodies(inbox.take()) == [b"1", b"2", b"3", b"4"]
    assert (topic.intake.message_count, topic.intake.message_bytes, topic.intake.duplicate_count) == (4, 4, 3)
    node.broker.check()
    node = Node()
    _, inbox = node.subscribe("t", "c", 100)
    topic = node.broker.topic("t")
    assert topic.intake.publish_with([b"1"], key("k"), node.now + SECOND) == 0
    assert topic.intake.publish_with([b"1"], key("k")) == 1
    node.advance(999 * MS)
    assert inbox.take() == []
    node.advance(200 * MS)
    assert bodies(inbox.take()) == [b"1"]
    node.broker.check()


def test_messages_that_an_emptied_topic_has_dropped_are_not_pending() -> None:
    node, unique = SimNode(), Attributes(key="k", while_pending=True)
    topic = node.broker.topic("t")
    topic.channel("c")
    topic.publish([b"in the same extent"], 1)
    node.turn()
    topic.pause(NOT_KNOWN)
    for _ in range(2):
        assert topic.publish_with([b"x"], unique) == 0
        assert topic.pending_id("k")
        node.turn()
        topic.empty()
        assert not topic.pending_id("k")


def test_a_part_of_the_messages_keeps_the_bytes_of_the_attributes() -> None:
    attributes = Attributes((("a", "ä"), ("b", "")), producer="p", sequence=5)
    packed = attributes.pack(1000)
    assert unpack(packed, 1000) == attributes
    assert unpack(packed, 1003) == attributes.behind(3)
    assert attributes.behind(3).as_dict() == {"headers": {"a": "ä", "b": ""}, "producer": "p", "sequence": 8}
    assert unpack(key("k").pack(9), 11) == key("k")
    pending = Attributes(key="k", while_pending=True)
    assert unpack(pending.pack(9), 11) == pending
    assert pending.as_dict() == {"key": "k", "unique": "pending"}
    assert not unpack(b"", 5)
    assert Attributes().as_dict() == {}


@each("text", ["", "a b", "a\n", "ä", "\x7f", "x" * 129])
def test_what_cannot_be_a_key(text: str) -> None:
    assert not is_word(text)
    assert is_word("x" * 128)
    assert is_word("!~{}")


@each(
    "text, number",
    [("0", 0), ("007", 7), (str(2**62 - 1), 2**62 - 1), (str(2**62), None), ("-1", None), ("", None), ("1.5", None)]
    + [("9" * 5000, None), ("٣", None)],
)
def test_a_sequence_is_a_bounded_number(text: str, number: int | None) -> None:
    assert read_sequence(text) == number

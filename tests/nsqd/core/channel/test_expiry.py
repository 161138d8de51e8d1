"""Messages that are too old: never delivered, dropped or buried, with and without consumers, over restarts."""

import pytest

from nsqd.core.channel import expiry
from nsqd.core.channel.buried import EXPIRED
from nsqd.core.message.attributes import NONE, Attributes, ttl_in
from nsqd.core.sequence.extent import Extent
from nsqd.storage import stored_extent
from shared.retry import Retry
from shared.topic_config import MOST, NO_TOPIC, OnBury, OnExpire, Ordering, Switch, TopicConfig
from tests.cases import each
from tests.nsqd.core.channel.test_groups import of_group
from tests.nsqd.core.node import MS, SECOND, Node, bodies, ids
from tests.nsqd.storage.log.test_replay import publish, start, subscribe
from tests.nsqd.storage.sim_disk import SimDisk

BRIEF = TopicConfig(ttl=5 * SECOND)


def filled(config: TopicConfig = BRIEF) -> Node:
    """Return a node whose channel has eight messages, published a second apart."""
    node = Node()
    node.broker.topic("t").configure(config)
    node.channel("t", "c")
    for number in range(8):
        node.publish("t", b"%d" % number)
        node.advance(SECOND)
    node.advance(10 * MS)
    return node


def test_the_scan_drops_what_is_too_old_also_without_consumers() -> None:
    node = filled()
    channel = node.channel("t", "c")
    assert channel.depth + channel.dropped_count == 8
    assert 4 <= channel.depth <= 6
    node.advance(7 * SECOND)
    assert (channel.depth, channel.dropped_count, node.held()) == (0, 8, 0)
    assert channel.next_due() is None
    node.broker.check()


@each("attributes", [NONE, Attributes((("ttl", "5s"),))])
def test_many_messages_that_are_too_old_go_over_several_scans(
    attributes: Attributes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(expiry, "MIXED_AT_ONCE" if attributes else "DROPPED_AT_ONCE", 20)
    node = Node()
    topic, channel = node.broker.topic("t"), node.channel("t", "c")
    topic.configure(TopicConfig() if attributes else BRIEF)
    topic.publish_with([b"x"] * 20, attributes)
    topic.publish_with([b"x"] * 20, attributes, node.now + 99 * SECOND)  # the channel passes them over
    topic.publish_with([b"x"], attributes)
    node.turn()
    node.now += 6 * SECOND
    node.turn()
    assert channel.dropped_count == 20
    node.advance(100 * MS)
    assert (channel.dropped_count, channel.depth) == (21, 0)
    node.broker.check()


@each("on_expire", [OnExpire.DROP, OnExpire.BURY])
def test_a_consumer_gets_only_what_is_young_enough(on_expire: OnExpire) -> None:
    node = filled(TopicConfig(ttl=5 * SECOND, on_expire=on_expire))
    client, inbox = node.subscribe("t", "c", 9)
    assert bodies(inbox.take()) == [b"4", b"5", b"6", b"7"]
    letters = client.channel.buried.after(None, 9)
    if on_expire is OnExpire.BURY:
        assert [(letter.ordinal, letter.reason) for _, letter in letters] == [(one, EXPIRED) for one in range(4)]
    else:
        assert (letters, client.channel.dropped_count) == ([], 4)
    node.broker.check()


@each("config", [
    BRIEF, TopicConfig(ttl=5 * SECOND, retry=Retry(6 * SECOND, 6 * SECOND)),
    TopicConfig(ttl=5 * SECOND, ordering=Ordering.GROUP),
])  # fmt: skip
def test_a_message_that_comes_back_too_late_goes(config: TopicConfig) -> None:
    node = filled(config)
    node.broker.topics["t"].intake.publish_with([b"new"], of_group("g"))
    client, inbox = node.subscribe("t", "c", 1)
    (taken,) = inbox.take()
    client.requeue(taken.id, 0 if config.retry else 6 * SECOND, node.now)
    node.advance(7 * SECOND)
    assert not [one for one in inbox.take() if one.attempts > 1]
    node.broker.check()


def test_a_group_continues_after_a_message_that_is_too_old() -> None:
    node = Node()
    topic = node.broker.topic("t")
    topic.configure(TopicConfig(ttl=5 * SECOND, ordering=Ordering.GROUP))
    client, inbox = node.subscribe("t", "c", 1)
    for body in (b"old", b"young"):
        topic.intake.publish_with([body], of_group("g"))
        node.turn()
        node.advance(3 * SECOND)
    (taken,) = inbox.take()
    client.requeue(taken.id, 0, node.now)
    node.turn()
    assert bodies(inbox.take()) == [b"young"]


@each("on_expire", [OnExpire.DROP, OnExpire.BURY])
@each("on_bury", [*OnBury])
def test_messages_of_groups_that_are_taken_together_end_one_by_one(on_expire: OnExpire, on_bury: OnBury) -> None:
    node = Node()
    topic = node.broker.topic("t")
    topic.configure(TopicConfig(ordering=Ordering.GROUP, on_expire=on_expire, on_bury=on_bury))
    topic.channel("c")
    for body in (b"a1 old", b"b1", b"c1 old", b"d1", b"a2", b"b2 old", b"c2", b"b3"):
        headers = ("group", body[:1].decode()), *([("ttl", "1s")] if b"old" in body else [])
        topic.intake.publish_with([body], Attributes(headers))
    node.turn()
    node.advance(2 * SECOND)
    client, inbox = node.subscribe("t", "c", 9)
    came: list[bytes] = []
    while taken := inbox.take():
        came += bodies(taken)
        client.finish(ids(taken))
        node.turn()
    held = on_expire is OnExpire.BURY and on_bury is OnBury.HOLD
    assert sorted(came) == ([b"b1", b"d1"] if held else [b"a2", b"b1", b"b3", b"c2", b"d1"])
    node.broker.check()


@each("config", [TopicConfig(ordering=Ordering.GROUP), TopicConfig(fair=Switch.ON), TopicConfig(group_rate=100)])
def test_messages_of_no_group_that_are_taken_together_with_others_end_one_by_one(config: TopicConfig) -> None:
    node = Node()
    topic = node.broker.topic("t")
    topic.configure(config)
    topic.channel("c")
    for body in (b"a1", b"1 old", b"2", b"b1 old", b"3"):
        headers = (("group", body[:1].decode()),) if body[:1].isalpha() else ()
        topic.intake.publish_with([body], Attributes((*headers, *([("ttl", "1s")] if b"old" in body else []))))
    node.turn()
    node.advance(2 * SECOND)
    _, inbox = node.subscribe("t", "c", 9)
    assert bodies(inbox.take()) == [b"a1", b"2", b"3"]
    node.broker.check()


def test_a_message_with_a_ttl_that_was_held_back_is_not_delivered_late_together_with_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(stored_extent, "EXTENT_MESSAGES", 2)
    node = Node()
    topic = node.broker.topic("t")
    topic.configure(TopicConfig(ordering=Ordering.GROUP))
    client, inbox = node.subscribe("t", "c", 9)
    for body in (b"a1", b"b1", b"c1", b"a2", b"b2 old", b"c2 old"):
        headers = ("group", body[:1].decode()), *([("ttl", "1s")] if b"old" in body else [])
        topic.intake.publish_with([body], Attributes(headers))
    node.turn()
    node.advance(2 * SECOND)
    client.channel.expiry = None  # as if the messages were retained, and the channel made after a restart
    client.finish(ids(inbox.take()))
    node.turn()
    assert bodies(inbox.take()) == [b"a2"]


def test_old_messages_among_young_ones_are_found() -> None:
    node = filled()
    topic = node.broker.topics["t"]
    wall = node.broker.wall
    topic.append_past([(wall - age * SECOND, b"%d ago" % age) for age in (1, 9, 2, 3, 20)], None)
    _, inbox = node.subscribe("t", "c", 20)
    assert [one.body for one in inbox.take() if b"ago" in one.body] == [b"1 ago", b"2 ago", b"3 ago"]


def test_a_ttl_that_is_set_later_or_longer_holds_for_what_is_there() -> None:
    node = filled(TopicConfig())
    topic, channel = node.broker.topics["t"], node.channel("t", "c")
    topic.configure(TopicConfig(ttl=3 * SECOND).with_channel("d", TopicConfig(ttl=60 * SECOND)))
    topic.channel("d")
    node.publish("t", b"8")
    node.advance(4 * SECOND)
    assert (channel.depth, topic.channels["d"].depth) == (0, 1)
    topic.configure(TopicConfig())
    assert channel.next_due() is None


def test_what_is_on_disk_only_goes_by_whole_extents_after_a_restart() -> None:
    node = start(SimDisk())
    topic = node.broker.topic("t")
    topic.configure(BRIEF)
    topic.channel("a")
    for number in range(3 * stored_extent.EXTENT_MESSAGES):
        topic.publish([b"%d" % number], 3)
        if number % 100 == 0:
            node.advance(200 * MS)
    node.turn()
    node = start(node.disk.kill(), wall=node.clock.wall)
    node.advance(2 * SECOND)
    channel = node.broker.topics["t"].channels["a"]
    depth = channel.depth
    assert 0 < depth <= 2 * stored_extent.EXTENT_MESSAGES
    _, inbox = subscribe(node, "t", "a", 10_000)
    taken = inbox.take()
    assert 0 < len(taken) <= depth
    assert min(one.timestamp for one in taken) >= node.clock.wall - 5 * SECOND
    publish(node, b"last")
    assert bodies(inbox.take()) == [b"last"]
    node.broker.check()


def test_how_many_messages_lead() -> None:
    extent = Extent(10, False)
    extent.frames = [b"\0" * 8 + stamp.to_bytes(8, "big") for stamp in (1, 2, 5, 1)]
    assert [extent.leading(at, 14, 103, 100) for at in range(10, 14)] == [(2, True), (1, True), (1, False), (1, True)]
    assert (extent.leading(10, 14, 109, 100), extent.leading(10, 14, 5, 1 << 62)) == ((4, True), (4, False))
    extent.keep_headers(11, 13, of_ttl("94ns").pack(11))
    assert [extent.leading(10, 14, 100, ttl) for ttl in (0, 97)] == [(1, False), (4, True)]


@each("text, ns", [
    ("30s", 30 * SECOND), ("1h30m", 5400 * SECOND), ("1ms", MS), ("", 0), ("soon", 0), ("-5s", 0), ("0", 0), ("7", 0),
    ("1s" * 17, 0), ("9" * 4000 + "s", 0), ("9999999999h", 0),
])  # fmt: skip
def test_the_ttl_in_a_header(text: str, ns: int) -> None:
    assert ttl_in(of_ttl(text).pack(0)) == ns


def of_ttl(text: str) -> Attributes:
    return Attributes(headers=(("ttl", text), ("other", "x")))


def test_the_longest_ttl_is_as_none() -> None:
    node = filled(TopicConfig(ttl=MOST))
    assert len(node.subscribe("t", "c", 9)[1].take()) == 8


@each("channel", ["before", "after"])
@each("ttl", [0, 6 * SECOND])
def test_a_message_has_a_ttl_of_its_own_or_that_of_its_topic_if_it_is_shorter(ttl: int, channel: str) -> None:
    node = Node()
    topic = node.broker.topic("t")
    topic.configure(TopicConfig(ttl=ttl))
    if channel == "before":
        topic.channel("c")
    for text in ("2s", "4s", "", "9s", "3s"):
        topic.intake.publish_with([text.encode()], of_ttl(text))
    node.turn()
    topic.channel("c")
    node.advance(5 * SECOND)
    assert topic.channels["c"].depth == 3  # the last one has expired, and others are before it
    _, inbox = node.subscribe("t", "c", 9)
    assert bodies(inbox.take()) == [b"", b"9s"]
    node.broker.check()


@each("target", ["dead", NO_TOPIC])
@each("has_consumer", [True, False])
def test_what_has_expired_waits_for_the_dead_letter_topic_and_is_buried_without_one(
    target: str, has_consumer: bool
) -> None:
    node = filled(TopicConfig(ttl=5 * SECOND, on_expire=OnExpire.FORWARD, dead_letter=target))
    channel = node.channel("t", "c")
    if has_consumer:
        node.subscribe("t", "c", 1)
    node.advance(7 * SECOND)
    assert (channel.depth, len(channel.buried), channel.dropped_count) == (0, 8 - has_consumer, 0)
    waiting = node.broker.agenda.dead_letters.get(channel, ())
    assert len(waiting) == (len(channel.buried) if target == "dead" else 0)
    node.broker.topics["t"].configure(TopicConfig(ttl=5 * SECOND, dead_letter=target))
    assert not node.broker.agenda.dead_letters
    node.broker.check()


def test_messages_that_are_on_disk_only_are_read_to_be_buried() -> None:
    node = start(SimDisk())
    topic = node.broker.topic("t")
    topic.configure(TopicConfig(ttl=SECOND, on_expire=OnExpire.BURY))
    topic.channel("a")
    topic.publish([b"x"] * 3000, 3000)
    topic.intake.publish_with([b"later"], due=node.clock.now + SECOND)
    topic.publish([b"y"], 1)
    node.turn()
    node = start(node.disk.kill(), wall=node.clock.wall)
    node.eager = True
    channel = node.broker.topics["t"].channels["a"]
    for _ in range(40):
        node.advance(expiry.AGAIN * 2)
    assert (channel.depth, len(channel.buried)) == (1, 3001)  # the delayed one came back
    node.broker.check()


def test_a_message_with_a_ttl_is_a_job_with_one() -> None:
    node = Node()
    node.broker.tubes.made("t")
    topic = node.broker.topics["t"]
    topic.intake.publish_with([b"1", b"2"], of_ttl("1500ms"))
    topic.intake.publish_with([b"3"], of_ttl("1500ms"), node.now + SECOND)
    topic.intake.publish_with([b"4"], of_ttl("soon"))
    node.turn()
    tube = node.broker.tubes.tube("t")
    assert tube is not None
    assert [job.ttl for job in tube.jobs] == [2, 2, 2, 0]
    node.advance(3 * SECOND)
    assert [job.ordinal for job in tube.jobs] == [3]
    node.broker.check()

"""The greatest length of a topic: what each protocol answers at it, and which messages go instead."""

from contextlib import suppress

import pytest

from nsqd.core.channel import actions
from nsqd.core.channel import channel as channels
from nsqd.core.channel.buried import OVERFLOW
from nsqd.core.limits import TopicFull
from nsqd.core.message.attributes import Attributes
from nsqd.core.message.frame import HEADER_SIZE
from nsqd.core.reader import ReaderSettings
from nsqd.core.sequence.put_batch import USUAL
from shared.topic_config import Durability, Ordering, Overflow, TopicConfig
from tests.cases import each
from tests.daemons import OK, Conversation, sized
from tests.local_node import LocalNode
from tests.nsqd.core.node import MS, SECOND, Node, bodies, ids
from tests.nsqd.http.asking import post
from tests.nsqd.storage.sim_disk import SimDisk
from tests.nsqd.storage.sim_node import SimNode

DROPPING = TopicConfig(max_length=3, overflow=Overflow.DROP_OLDEST)


@each("filled_by", ["messages", "delayed", "of two channels", "jobs"])
def test_a_full_topic_refuses_in_the_words_of_each_protocol(filled_by: str) -> None:
    node = LocalNode()
    post(node, "/topic/create", topic="t", max_length="2")
    if filled_by == "of two channels":
        for channel in "cd":
            post(node, "/channel/create", topic="t", channel=channel)
    with (
        node.connect("BEANSTALK") as beanstalk,
        node.connect("DISQUE") as disque,
    ):
        jobs, queued = beanstalk.makefile("rb"), disque.makefile("rb")
        beanstalk.sendall(b"use t\r\n")
        assert jobs.readline() == b"USING t\r\n"
        for _ in range(2):
            if filled_by == "jobs":
                beanstalk.sendall(b"put 0 0 9 1\r\nx\r\n")
                assert jobs.readline().startswith(b"INSERTED")
            else:
                post(node, "/pub", b"x", topic="t", **({"defer": 60_000} if filled_by == "delayed" else {}))
        for command in (
            b"PUB t\n" + sized(b"x"),
            b"DPUB t 9\n" + sized(b"x"),
            b"MPUB t\n" + sized(b"\0\0\0\1" + sized(b"x")),
        ):
            verb, full = command.split()[0], b"TOPIC_FULL: the topic has 2 messages, its max_length"
            with Conversation(node, b"  V2" + command) as nsq:
                assert nsq.frames() == [(1, b"E_%s_FAILED %s failed %s" % (verb, verb, full))]
        for path in ("/pub", "/mpub"):
            refused = node.client.post(path, params={"topic": "t"}, content=b"x")
            assert (refused.status_code, refused.json()) == (429, {"message": "TOPIC_FULL"})
        beanstalk.sendall(b"put 0 0 9 1\r\nx\r\n")
        assert jobs.readline() == b"OUT_OF_MEMORY\r\n"
        disque.sendall(b"ADDJOB t x 0\r\n")
        assert queued.readline() == b"-MAXLEN TOPIC_FULL: the topic has 2 messages, its max_length\r\n"
        post(node, "/topic/config", topic="t", max_length="0")
        with Conversation(node, b"  V2PUB t\n" + sized(b"x")) as nsq:
            assert nsq.frame() == OK
    assert node.broker.refused["topic_full"] >= 7


class Unread(list[object]):
    """A list that can be added to, but not looked at."""

    __iter__ = None  # type: ignore[assignment]


def test_what_is_published_in_a_turn_counts_at_once_and_is_not_looked_at_with_each_publish() -> None:
    node = Node()
    topic = node.broker.topic("t")
    topic.configure(TopicConfig(max_length=9))
    intake = topic.intake
    intake._pending_apart, intake._put_batches = Unread(), Unread()  # type: ignore[assignment]
    for expected in (6, 9):
        intake.publish_with([b"x"], due=node.now + SECOND)
        topic.publish_with([b"x"], Attributes((("a", "b"),)))
        intake.put([b"x"], USUAL)
        if expected == 6:
            topic.publish([b"x"] * 3, 3)
            topic.check_open()
        assert topic.length == expected
    with pytest.raises(TopicFull):
        topic.check_open()
    intake._pending_apart, intake._put_batches = intake._pending_apart[:], intake._put_batches[:]
    node.turn()
    assert (intake.pending_count, topic.length) == (0, 9)


def test_a_topic_takes_exactly_as_many_messages_as_it_may_have_however_seldom_they_are_counted() -> None:
    node = Node()
    topic = node.broker.topic("t")
    client, inbox = node.subscribe("t", "c", 9)
    for most, expected in ((200, 200), (203, 203), (100, 203)):
        topic.configure(TopicConfig(max_length=most))
        while topic.has_room():
            topic.publish([b"x"], 1)
            if not topic.length % 7:
                node.turn()
        assert topic.length == expected
    topic.configure(TopicConfig(max_length=203))
    for message in inbox.take():
        client.finish(message.id)
    while topic.has_room():
        topic.publish([b"y"], 1)
    assert topic.length == 203
    assert topic.intake.pending_count == 9


def test_room_comes_with_what_is_finished_and_buried_messages_need_none() -> None:
    node = Node()
    topic = node.broker.topic("t")
    topic.configure(TopicConfig(max_length=2, max_attempts=1))
    client, inbox = node.subscribe("t", "c", 9)
    for step in range(4):
        node.publish("t", b"x") if not step else node.broker.admit("t").publish([b"x"], 1)
        node.broker.admit("t").publish([b"y"], 1)
        try:
            node.broker.admit("t")
        except TopicFull:
            node.turn()
        else:
            raise AssertionError("it took a third")
        first, second = inbox.take()
        client.finish(first.id)
        client.requeue(second.id, 0, node.now)
    assert len(client.channel.buried) == 4


@each("size, most", [(50, 12), (218, 4), (2000, 0)])
@each("overflow", [*Overflow])
def test_the_bytes_of_messages_are_bounded_by_their_mean_size(size: int, most: int, overflow: Overflow) -> None:
    node = Node()
    topic = node.broker.topic("t")
    topic.configure(TopicConfig(max_bytes=12 * (50 + HEADER_SIZE), overflow=overflow))
    channel = topic.channel("c")
    taken = 0
    for _ in range(20):
        with suppress(TopicFull):
            node.broker.admit("t").publish([b"x" * size], size)
            taken += 1
        node.turn()
    refuses = overflow is Overflow.REFUSE
    assert taken == (max(most, 1) if refuses else 20)  # the first one is always taken
    assert channel.depth == (taken if refuses else most)
    assert (channel.dropped_count > 0, len(channel.buried) > 0) == (
        overflow is Overflow.DROP_OLDEST,
        overflow is Overflow.BURY,
    )
    node.broker.check()


def test_room_for_bytes_comes_back_when_a_large_message_is_finished() -> None:
    node = Node()
    node.broker.topic("t").configure(TopicConfig(max_bytes=1000))
    client, inbox = node.subscribe("t", "c", 9)
    node.publish("t", b"x" * 900)
    node.publish("t", b"y" * 100)
    with pytest.raises(TopicFull, match="about 1000 bytes, its max_bytes"):
        node.broker.admit("t")
    client.finish(inbox.take()[0].id)
    for _ in range(3):
        node.broker.admit("t").publish([b"z"], 1)
        node.turn()


def test_a_long_backlog_is_shortened_over_several_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channels, "DROPPED_MORE", 2)
    monkeypatch.setattr(channels, "DROPPED_AT_ONCE", 5)
    node = Node()
    topic = node.broker.topic("t")
    channel = topic.channel("c")
    for number in range(20):
        node.publish("t", b"%d" % number)
    topic.configure(DROPPING)
    assert (channel.depth, channel.next_due()) == (18, node.now)
    channel.scan(node.now, 100)
    assert channel.depth == 13
    node.publish("t", b"20")
    assert channel.depth < 13
    node.advance(0)
    client, inbox = node.subscribe("t", "c", 9)
    assert (bodies(inbox.take()), channel.next_due()) == ([b"18", b"19", b"20"], client.channel.in_flight.next_due())
    node.broker.check()


@each("of_what", ["plain", "grouped", "by priority", "some in flight", "delayed too", "over a kill"])
def test_a_full_channel_buries_the_newest_messages_and_another_one_takes_them(of_what: str) -> None:
    ordering = {"grouped": Ordering.GROUP, "by priority": Ordering.PRIORITY}.get(of_what)
    node = SimNode(SimDisk(), Durability.ALWAYS)
    topic = node.broker.topic("t")
    topic.configure(TopicConfig(max_length=3, overflow=Overflow.BURY, ordering=ordering))
    channel, other = topic.channel("c"), topic.channel("d")
    other.configure(ReaderSettings())
    if of_what == "delayed too":
        topic.intake.publish_with([b"later"], due=node.clock.now + SECOND)
    client, inbox = node.subscribe("t", "c", 2 if of_what == "some in flight" else 0)
    for number in range(4):
        topic.intake.publish_with([b"%d" % number, b"0"], Attributes(headers=(("group", "g"), ("priority", "0"))))
    node.advance(0)
    if of_what == "over a kill":
        node = SimNode(node.disk.kill(), Durability.ALWAYS, node.clock.after(0, 0, rebooted=False))
        node.eager = True
        topic = node.broker.topics["t"]
        channel, other = topic.channels["c"], topic.channels["d"]
        client, inbox = node.subscribe("t", "c", 0)
    buried = 6 if of_what == "delayed too" else 5
    assert (sum(channel.counts()[:3]), len(channel.buried), sum(other.counts()[:3])) == (3, buried, buried + 3)
    assert {letter.reason for letter in channel.buried.values()} == {OVERFLOW}
    assert actions.kick(channel, channel.buried.oldest(1)) == 1
    client.set_ready(9)
    got: list[bytes] = []
    for _ in range(9):
        node.advance(SECOND)
        taken = inbox.take()
        got += bodies(taken)
        client.finish(ids(taken))
    assert sorted(got) == sorted([b"0", b"0", b"1", *([b"later"] if of_what == "delayed too" else [b"0"])])
    node.broker.check()


def test_a_full_tube_buries_jobs_in_the_words_of_each_protocol() -> None:
    node = LocalNode()
    post(node, "/topic/create", topic="t", max_length="1", overflow="bury")
    with node.connect("BEANSTALK") as beanstalk, node.connect("DISQUE") as disque:
        jobs, queued = beanstalk.makefile("rb"), disque.makefile("rb")
        beanstalk.sendall(b"use t\r\n" + b"put 0 0 9 1\r\nx\r\n" * 2 + b"put 0 0 9 1\r\ny\r\n")
        answers = [jobs.readline().split()[0] for _ in range(4)]
        assert answers == [b"USING", b"INSERTED", b"BURIED", b"BURIED"]
        for put, again in (
            (b"put-grouped g", b"BURIED"), (b"put-batch b", b"BURIED"), (b"put-unique k", b"DUPLICATE"),
            (b"put-unless-pending k", b"DUPLICATE"), (b"put-replicated 1", b"BURIED"), (b"put-replicated 2", b"DRAINING"),
        ):  # fmt: skip
            beanstalk.sendall((put + b" 0 0 9 1\r\nx\r\n") * 2)
            answers = [jobs.readline().split()[0] for _ in range(2)]
            assert answers == [again if again == b"DRAINING" else b"BURIED", again], put
        beanstalk.sendall(b"close-batch b\r\n")
        assert jobs.readline() == b"CLOSED\r\n"
        node.advance(2 * SECOND)
        beanstalk.sendall(b"put-batch b 0 0 9 1\r\nx\r\n")
        assert jobs.readline() == b"BATCH_DONE\r\n"
        post(node, "/topic/pause", topic="t")
        beanstalk.sendall(b"put 0 0 9 1\r\nx\r\n")
        assert jobs.readline() == b"OUT_OF_MEMORY\r\n"
        post(node, "/topic/unpause", topic="t")
        disque.sendall(b"ADDJOB t x 0\r\n")
        assert queued.readline() == b"-MAXLEN TOPIC_FULL: the topic has 1 message, its max_length\r\n"
        with Conversation(node, b"  V2PUB t\n" + sized(b"x")) as nsq:
            assert nsq.frame() == OK
        beanstalk.sendall(b"watch t\r\nreserve\r\ndelete 1\r\nput 0 0 9 1\r\nx\r\n")
        found = b"".join(jobs.readline() for _ in range(4))
        assert found.startswith(b"WATCHING 2\r\nRESERVED ")


@each("states", ["ready", "some in flight", "some delayed", "grouped", "cold"])
def test_the_oldest_ready_messages_of_each_channel_go(states: str) -> None:
    node = Node()
    topic = node.broker.topic("t")
    topic.configure(
        DROPPING
        if states != "grouped"
        else TopicConfig(max_length=3, overflow=Overflow.DROP_OLDEST, ordering=Ordering.GROUP)
    )
    topic.channel("d")
    client, inbox = node.subscribe("t", "c", 2 if states == "some in flight" else 0)
    if states == "some delayed":
        node.publish_deferred("t", b"later", 10 * SECOND)
    for number in range(9):
        node.publish("t", b"%d" % number)
    held = [0, 1] if states == "some in flight" else []
    kept = [8] if held else [7, 8] if states == "some delayed" else [6, 7, 8]
    assert bodies(inbox.take()) == [b"%d" % number for number in held]
    channel = client.channel
    assert (channel.depth, channel.dropped_count) == (len(kept), 9 - len(held) - len(kept))
    node.broker.check()
    client.set_ready(9)
    node.turn()
    taken = inbox.take()
    assert bodies(taken) == [b"%d" % number for number in kept]
    client.finish(ids(taken))
    node.advance(11 * SECOND if states == "some delayed" else MS)
    assert topic.channels["d"].counts().ready == 3
    assert topic.length <= 3 + (states == "some delayed")


def test_a_lower_limit_holds_at_once_and_a_tube_keeps_its_jobs() -> None:
    node = LocalNode()
    with node.connect("BEANSTALK") as client:
        client.sendall(b"use t\r\n" + b"put 0 0 9 1\r\nx\r\n" * 5)
        post(node, "/channel/create", topic="t", channel="c")
        post(node, "/mpub", b"1\n2\n3\n4\n5", topic="t")
        post(node, "/topic/config", topic="t", max_length="2", overflow="drop-oldest")
        stats = node.client.get("/stats?format=json").json()["topics"][0]
        assert stats["channels"][0]["depth"] == 2
        client.sendall(b"stats-tube t\r\n")
        answers = client.makefile("rb")
        assert any(answers.readline() == b"current-jobs-ready: 10\n" for _ in range(12))

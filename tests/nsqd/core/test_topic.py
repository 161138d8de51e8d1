"""The greatest length of a topic: what each protocol answers at it, and which messages go instead."""

from nsqd.core.limits import TopicFull
from shared.topic_config import Ordering, Overflow, TopicConfig
from tests.cases import each
from tests.daemons import OK, Conversation, sized
from tests.local_node import LocalNode
from tests.nsqd.core.node import MS, SECOND, Node, bodies, ids
from tests.nsqd.http.asking import post

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

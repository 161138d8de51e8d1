"""Shards: consumers, operators and limits of a node that owns more than one log."""

from itertools import pairwise

import pytest

from nsqd.core.channel.consumer import ELSEWHERE, SAME_ZONE
from nsqd.core.channel.inflight import NOT_IN_FLIGHT, NOT_OWNER
from nsqd.core.channel.window import BATCH, TURN
from nsqd.core.limits import Limits
from nsqd.core.message.attributes import Attributes
from nsqd.core.message.ids import NoIds
from nsqd.core.registry import Change, ChangeKind
from nsqd.core.sequence.mark import Mark, Promise
from nsqd.core.shards import Attachment, Deletions, promoted_broker
from nsqd.storage.memory import MemoryStore
from shared.topic_config import TopicConfig
from tests.nsqd.core.client import Client
from tests.nsqd.core.node import SECOND, Inbox, Node, bodies, ids
from tests.nsqd.core.promoted import PromotedLog, promote


def test_a_key_stays_unique_while_its_message_is_pending_in_a_promoted_log(node: Node) -> None:
    log, unique = PromotedLog(node, 9), Attributes(key="k", while_pending=True)
    log.channels("t", "c")
    log.publish("t")
    assert log.broker.topics["t"].publish_with([b"x"], unique) == 0
    log.broker.commit()
    log.attach()
    consumer, inbox = node.subscribe("t", "c", ready=1)
    topic = node.broker.topics["t"]
    assert topic.publish_with([b"y"], unique) == 1
    consumer.finish(ids(inbox.take()))
    assert [topic.publish_with([b"z"], unique) for _ in "12"] == [0, 1]


def test_a_log_that_delivers_many_messages_at_once_keeps_its_turn_for_a_short_time(node: Node) -> None:
    consumer, inbox = node.subscribe("t", "c", ready=0)
    node.publish("t", *[b"0"] * 4000)
    for log in (1, 2):
        promote(node, 7 + log, "t", "c", *[b"%d" % log] * 4000)
    consumer.set_ready(BATCH)
    turns: list[tuple[bytes, int]] = []
    for at in range(100):
        node.turn()
        came = inbox.take()
        (body,) = set(bodies(came))
        turns.append((body, at))
        consumer.finish(ids(came))
        node.now += TURN // 5
    logs = [body for body, _ in turns]
    changes = [at for at in range(1, 100) if logs[at] != logs[at - 1]]
    assert {*logs[: changes[2]]} == {b"0", b"1", b"2"}
    assert {later - sooner for sooner, later in pairwise(changes)} == {5}


@pytest.mark.parametrize("goes", ["emptied", "paused", "detached"])
def test_a_channel_that_is_woken_and_has_nothing_left_lets_the_others_deliver(node: Node, goes: str) -> None:
    consumer, inbox = node.subscribe("t", "c", ready=0)
    logs = [promote(node, 8 + origin, "t", "c", b"%d" % origin) for origin in range(3)]
    node.turn()
    consumer.set_ready(1)  # wakes the channel that is next
    (woken,) = [log for log in logs if log.broker.topics["t"].channels["c"] in node.broker.agenda.awake]
    shard = woken.broker.topics["t"].channels["c"]
    if goes == "emptied":
        shard.empty()
    elif goes == "paused":
        woken.broker.pause(shard, True)
    else:
        while woken.attachment.detach_batch(1):
            pass
    node.turn()
    (came,) = bodies(inbox.take())
    assert came != b"%d" % logs.index(woken)


def test_a_failed_command_says_why(node: Node) -> None:
    consumer, _ = node.subscribe("t", "c")
    other, inbox = node.subscribe("t", "c", ready=5)
    promote(node, 8, "t", "c", b"a")
    promote(node, 9, "t", "c", b"b")
    for one in inbox.take():
        assert consumer.finish(one.id) == [(one.id, NOT_OWNER)]
        assert consumer.requeue(one.id, 0, node.now) == NOT_OWNER
        assert consumer.touch(one.id, 1, 1, node.now) == NOT_OWNER
        assert other.finish(one.id * 2) == [(one.id, NOT_IN_FLIGHT)]
        assert other.requeue(one.id, 0, node.now) == NOT_IN_FLIGHT
        assert other.touch(one.id, 1, 1, node.now) == NOT_IN_FLIGHT


def test_topology_and_sampling_hold_for_shards() -> None:
    node = Node(Limits(topology_aware=True))
    channel = node.channel("t", "c")
    near, far, sampled = Inbox(), Inbox(), Inbox()
    Client(channel, near, SECOND, 0, SAME_ZONE).set_ready(2)
    Client(channel, far, SECOND, 0, ELSEWHERE).set_ready(9)
    log = promote(node, 8, "t", "c", b"a", b"b", b"c")
    assert bodies(near.take()) == [b"a", b"b"]
    assert bodies(far.take()) == [b"c"]
    shard = log.broker.topics["t"].channels["c"]
    assert shard.dispatch.deliveries == [2, 0, 1]
    Client(node.channel("s", "c"), sampled, SECOND, 1).set_ready(2000)
    log = promote(node, 9, "s", "c", *[b"%d" % i for i in range(1000)])
    kept = len(sampled.take())
    assert 0 < kept < 100
    assert log.broker.topics["s"].channels["c"].counts() == (0, kept, 0, 0)
    node.broker.check()


def test_topics_and_channels_of_a_promoted_log_are_made_and_reported(node: Node) -> None:
    log = PromotedLog(node, 8)
    log.channels("t", "c", "d")
    config = TopicConfig(retention=5 * SECOND)
    log.broker.topics["t"].configure(config)
    node.broker.fetch_changes()
    log.attach()
    assert node.broker.fetch_changes() == [
        Change(ChangeKind.TOPIC_CREATED, "t"),
        Change(ChangeKind.CHANNEL_CREATED, "t", "c"),
        Change(ChangeKind.CHANNEL_CREATED, "t", "d"),
    ]
    assert log.broker.fetch_changes() == []
    assert node.broker.topics["t"].config == config


def test_what_exists_in_a_promoted_log_is_made_beyond_the_limits() -> None:
    node = Node(Limits(max_topics=1, max_channels=1))
    node.channel("t", "c")
    log = PromotedLog(node, 8)
    log.broker.context.limits = Limits()
    log.channels("u", "c", "d")
    log.attach()
    assert list(node.broker.topics["u"].channels) == ["c", "d"]
    assert not node.broker.registry.is_open
    node.broker.check()


def test_what_was_not_distributed_goes_to_all_channels_of_the_home_topic_or_waits_for_the_first(node: Node) -> None:
    node.channel("t", "c")
    node.channel("t", "d")
    log = PromotedLog(node, 8)
    log.publish("t", b"a", b"b")
    log.publish("u", b"a", b"b")
    log.attach()
    for name in "cd":
        assert bodies(node.subscribe("t", name, ready=5)[1].take()) == [b"a", b"b"]
    assert node.broker.topics["u"].channels == {}
    assert bodies(node.subscribe("u", "c", ready=5)[1].take()) == [b"a", b"b"]
    assert node.subscribe("u", "d", ready=5)[1].take() == []


def test_a_pause_at_home_holds_for_the_shard_and_ends_for_both(node: Node) -> None:
    _, inbox = node.subscribe("t", "c", ready=5)
    channel = node.channel("t", "c")
    node.broker.pause(channel, True, until=1_800_000_000 + 2000)
    log = promote(node, 8, "t", "c", b"a")
    other = PromotedLog(node, 9)
    other.channels("t", "c")
    other.broker.pause(other.broker.topics["t"].channels["c"], True)
    other.publish("t", b"b")
    other.attach()
    assert inbox.take() == []
    node.broker.check()
    assert log.broker.topics["t"].channels["c"].paused == channel.paused
    assert node.broker.end_pauses(1_800_000_000 + 2000, 9) == [("t", "c")]
    node.turn()
    assert {*bodies(inbox.take())} == {b"a", b"b"}


def test_a_topic_that_is_deleted_during_the_attachment_is_not_made_again(node: Node) -> None:
    log = PromotedLog(node, 8)
    for name in "tuv":
        log.channels(name, "c")
    node.channel("v", "c")
    assert log.attach(1)
    for name in "tv":
        node.broker.delete_topic(name)
    while log.attach_batch():
        pass
    assert list(node.broker.topics) == ["u"]
    node.channel("t", "c")  # another topic
    node.turn()


def test_what_is_deleted_while_a_log_is_opened_is_not_made_again(node: Node) -> None:
    for topic in "tuvw":
        node.channel(topic, "c")
    node.channel("u", "d")
    node.channel("w", "e#ephemeral")
    deletions = Deletions(node.broker)
    delete_channel, topics = node.broker.directory.delete_channel, node.broker.topics
    node.broker.delete_topic("t")
    delete_channel(topics["u"], "d")
    node.broker.delete_topic("v")
    node.channel("v", "c")  # another topic of that name
    delete_channel(topics["w"], "e#ephemeral")
    log = PromotedLog(node, 8)
    for topic in "tuvw":
        log.channels(topic, "c", "d")
        log.publish(topic, b"a")
    log.attach(deletions=deletions)
    assert {name: list(topic.channels) for name, topic in topics.items()} == {"u": ["c"], "v": ["c"], "w": ["c", "d"]}
    assert [topics[name].channels["c"].depth for name in "uvw"] == [0, 0, 0]
    assert list(log.broker.topics) == ["u", "w"]
    assert topics["v"].shards == (topics["v"],)
    node.channel("u", "d")
    delete_channel(topics["u"], "d")
    deletions.end()


def test_a_tube_that_goes_with_its_last_user_takes_no_jobs_of_a_log_that_is_being_attached(node: Node) -> None:
    log = PromotedLog(node, 8)
    log.channels("s", "c")
    log.broker.topic("t").is_tubes_own = True
    log.publish("t", b"job")
    log.attach(1)
    node.broker.topic("t").is_tubes_own = True
    node.broker.tubes.attach(node.broker.topics["t"])
    node.broker.tubes.leave_empty("t")
    assert "t" not in node.broker.topics
    while log.attach_batch():
        pass
    assert log.broker.topics["t"].depth == 1
    assert node.broker.topics["t"].shards[1:] == (log.broker.topics["t"],)


class NotingStore(MemoryStore):
    """A store that notes its turns, and promises something in each."""

    def __init__(self) -> None:
        super().__init__(lambda ceiling: True)
        self.turns: list[int] = []
        self.mark = Mark("durable")

    def begin(self, now: int, wall: int) -> str:
        self.turns.append(now)
        return ""

    def commit(self) -> tuple[Promise, ...]:
        return (Promise(self.mark, len(self.turns)),)


def test_a_turn_is_one_of_all_logs_and_replies_wait_for_all_of_them(node: Node) -> None:
    store = NotingStore()
    attachment = Attachment(node.broker, promoted_broker(node.broker, store, NoIds(8, 100)))
    node.broker.begin(node.now + 5, 0)
    assert store.turns == [node.now, node.now + 5]
    assert node.broker.commit() == [Promise(store.mark, 2)]
    attachment.detach_batch(1)
    node.broker.begin(node.now + 6, 0)
    assert len(store.turns) == 2
    assert list(node.broker.commit()) == []

"""Shards: consumers, operators and limits of a node that owns more than one log."""

from itertools import pairwise

import pytest

from nsqd.core.channel.consumer import ELSEWHERE, SAME_ZONE
from nsqd.core.channel.inflight import NOT_IN_FLIGHT, NOT_OWNER
from nsqd.core.channel.window import BATCH, TURN
from nsqd.core.limits import Limits
from nsqd.core.message.ids import NoIds
from nsqd.core.registry import Change, ChangeKind
from nsqd.core.sequence.mark import Mark, Promise
from nsqd.core.shards import Attachment, Deletions, promoted_broker
from nsqd.storage.memory import MemoryStore
from shared.topic_config import TopicConfig
from tests.cases import each
from tests.nsqd.core.client import Client
from tests.nsqd.core.node import MS, SECOND, Inbox, Node, bodies, ids
from tests.nsqd.core.promoted import PromotedLog, promote


def test_a_consumer_gets_the_messages_of_both_logs_under_one_rdy_and_a_new_channel_none(node: Node) -> None:
    consumer, inbox = node.subscribe("t", "c", ready=3)
    node.publish("t", b"own1", b"own2")
    log = promote(node, 8, "t", "c", b"their1", b"their2")
    first = inbox.take()
    assert bodies(first) == [b"own1", b"own2", b"their1"]
    assert consumer.finish(ids(first)) == []
    node.turn()
    assert bodies(inbox.take()) == [b"their2"]
    assert consumer.window.total("finish_count") == 3
    assert node.subscribe("t", "d", ready=5)[1].take() == []
    assert list(log.broker.topics["t"].channels) == ["c"]


@each("ready, shards", [(1, 1), (2, 3), (7, 1)])
def test_with_endless_backlogs_each_log_gets_its_turn(ready: int, shards: int) -> None:
    node = Node()
    node.channel("t", "c")
    node.publish("t", *[b"0-%d" % i for i in range(300)])
    for origin in range(1, shards + 1):
        promote(node, 7 + origin, "t", "c", *[b"%d-%d" % (origin, i) for i in range(300)])
    consumer, inbox = node.subscribe("t", "c", ready=ready)
    served = []
    for _ in range(8 * (shards + 1)):
        came = inbox.take()
        assert 0 < len(came) <= ready
        served.append({body[:1] for body in bodies(came)})
        consumer.finish(ids(came))
        node.turn()
    for at in range(len(served) - shards - 1):
        assert set.union(*served[at : at + shards + 1]) == {b"%d" % log for log in range(shards + 1)}
    node.broker.check()


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


def test_a_shard_that_goes_when_it_is_woken_lets_the_channel_at_home_deliver(node: Node) -> None:
    consumer, inbox = node.subscribe("t", "c", ready=0)
    log = promote(node, 8, "t", "c", b"their")
    node.publish("t", b"own")
    consumer.set_ready(1)
    shard = log.broker.topics["t"].channels["c"]
    assert shard in node.broker.agenda.awake
    while log.attachment.detach_batch(1):
        pass
    node.turn()
    assert bodies(inbox.take()) == [b"own"]


def test_fin_req_and_touch_find_the_log_of_their_message(node: Node) -> None:
    consumer, inbox = node.subscribe("t", "c", ready=10, timeout=SECOND)
    node.publish("t", b"own")
    log = promote(node, 8, "t", "c", b"a", b"b", b"c")
    came = {one.body: one.id for one in inbox.take()}
    shard = log.broker.topics["t"].channels["c"]
    assert consumer.requeue(came[b"a"], 0, node.now) == ""
    assert consumer.finish(came[b"b"] + came[b"own"]) == []
    assert shard.requeue_count == 1
    node.turn()
    again = inbox.take()
    assert [(one.body, one.attempts) for one in again] == [(b"a", 2)]
    node.now += SECOND // 2
    assert consumer.touch(came[b"c"], SECOND, 100 * SECOND, node.now) == ""
    node.advance(SECOND // 2 + 100 * MS)
    assert [(one.body, one.attempts) for one in inbox.take()] == [(b"a", 3)]  # c was touched
    node.advance(SECOND)
    assert {one.body for one in inbox.take()} == {b"a", b"c"}
    assert shard.timeout_count == 3


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


def test_rdy_0_and_a_disconnect_stop_all_logs(node: Node) -> None:
    consumer, inbox = node.subscribe("t", "c", ready=1)
    log = promote(node, 8, "t", "c", b"a", b"b", b"c")
    (first,) = inbox.take()
    consumer.set_ready(0)
    assert inbox.flushes == 1
    consumer.finish(first.id)
    node.turn()
    assert inbox.take() == []
    consumer.set_ready(1)
    node.turn()
    assert len(inbox.take()) == 1
    consumer.leave(node.broker)
    node.turn()
    shard = log.broker.topics["t"].channels["c"]
    assert not shard.consumers
    assert shard.in_flight_count == 1
    node.advance(61 * SECOND)
    assert shard.in_flight_count == 0
    assert shard.depth == 2


def test_a_full_sink_gets_nothing_from_any_log_until_it_has_room(node: Node) -> None:
    consumer, inbox = node.subscribe("t", "c", ready=5)
    inbox.space = 0
    promote(node, 8, "t", "c", b"a")
    node.publish("t", b"b")
    assert inbox.take() == []
    inbox.space = 1 << 20
    consumer.refresh()
    node.turn()
    assert {*bodies(inbox.take())} == {b"a", b"b"}


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


@pytest.mark.parametrize("is_detached", [False, True])
def test_what_waits_at_home_goes_to_all_channels_that_are_made_unless_the_log_is_detached_before(
    node: Node, is_detached: bool
) -> None:
    node.publish("t", b"own")
    log = PromotedLog(node, 8)
    log.channels("t", "c", "d")
    assert log.attach(1)
    if is_detached:
        log.detach()
        assert bodies(node.subscribe("t", "e", ready=1)[1].take()) == [b"own"]
        return
    while log.attach_batch():
        pass
    assert [channel.depth for channel in node.broker.topics["t"].channels.values()] == [1, 1]


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


def test_what_was_not_distributed_waits_until_nsqlookupd_has_named_the_channels(node: Node) -> None:
    node.broker.directory.ask_for_channels = True
    log = PromotedLog(node, 8)
    log.publish("t", b"a")
    log.attach()
    topic = node.broker.topics["t"]
    assert topic.starting
    inboxes = [node.subscribe("t", name, ready=5)[1] for name in "cd"]
    assert [inbox.take() for inbox in inboxes] == [[], []]
    topic.start()
    node.turn()
    assert [bodies(inbox.take()) for inbox in inboxes] == [[b"a"], [b"a"]]


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


def test_a_pause_that_only_the_promoted_log_has_holds_until_its_end_or_until_an_operator_resumes_it(node: Node) -> None:
    inboxes = [node.subscribe(topic, "c", ready=5)[1] for topic in "tu"]
    log = PromotedLog(node, 8)
    for topic, until in (("t", 0), ("u", 1_800_000_000 + 2000)):
        log.channels(topic, "c")
        log.broker.pause(log.broker.topics[topic], True, until=until)
        log.publish(topic, b"a")
    log.attach()
    node.publish("t", b"own")
    assert [bodies(inbox.take()) for inbox in inboxes] == [[b"own"], []]
    node.broker.pause(node.broker.topics["t"], False)
    assert node.broker.end_pauses(1_800_000_000 + 2000, 9) == [("u", "")]
    node.turn()
    assert [bodies(inbox.take()) for inbox in inboxes] == [[b"a"], [b"a"]]


def test_a_channel_that_is_deleted_at_home_goes_in_its_shards(node: Node) -> None:
    _, inbox = node.subscribe("t", "c", ready=1)
    log = promote(node, 8, "t", "c", b"a", b"b")
    inbox.take()
    node.broker.directory.delete_channel(node.broker.topics["t"], "c")
    node.turn()
    assert inbox.gone
    assert log.broker.topics["t"].channels == {}
    _, inbox = node.subscribe("t", "c", ready=5)
    assert inbox.take() == []
    assert node.channel("t", "c").shards == (node.channel("t", "c"),)
    assert node.held() == 0


def test_a_channel_that_is_deleted_during_the_attachment_is_not_made_again(node: Node) -> None:
    log = PromotedLog(node, 8)
    log.channels("t", "c", "d")
    log.publish("t", b"a")
    assert log.attach(1)
    node.channel("t", "d")
    node.broker.directory.delete_channel(node.broker.topics["t"], "d")
    while log.attach_batch():
        pass
    assert list(node.broker.topics["t"].channels) == ["c"]


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


def test_emptying_empties_the_shards(node: Node) -> None:
    consumer, inbox = node.subscribe("t", "c", ready=1)
    log = promote(node, 8, "t", "c", b"a", b"b")
    (first,) = inbox.take()
    node.channel("t", "c").empty()
    node.turn()
    assert consumer.finish(first.id) == [(first.id, NOT_IN_FLIGHT)]
    assert log.broker.topics["t"].channels["c"].counts() == (0, 0, 0, 0)
    node.publish("t", b"next")
    assert bodies(inbox.take()) == [b"next"]


def test_a_configuration_and_an_emptying_of_a_topic_hold_in_all_logs(node: Node) -> None:
    log = PromotedLog(node, 8)
    log.publish("t", b"a")
    log.attach()
    node.broker.topics["t"].configure(TopicConfig(retention=SECOND))
    assert log.broker.topics["t"].config == TopicConfig(retention=SECOND)
    node.broker.topics["t"].empty()
    assert log.broker.topics["t"].depth == 0


def test_a_detached_log_is_gone_and_its_messages_in_flight_count_no_more(node: Node) -> None:
    consumer, inbox = node.subscribe("t", "c", ready=2)
    log = promote(node, 8, "t", "c", b"a", b"b", b"c")
    first = inbox.take()
    assert len(first) == 2
    node.publish("t", b"own")
    assert log.detach(1)
    assert bodies(inbox.take()) == [b"own"]
    while log.detach(1):
        pass
    assert consumer.finish(ids(first)) == [(one.id, NOT_IN_FLIGHT) for one in first]
    assert node.broker.logs == [node.broker]
    assert consumer.window is None
    assert consumer.ready == 2
    assert node.channel("t", "c").shards == (node.channel("t", "c"),)
    node.broker.directory.delete_channel(node.broker.topics["t"], "c")
    node.advance(100 * SECOND)
    assert inbox.take() == []


def test_a_read_of_the_promoted_log_wakes_the_shard(node: Node) -> None:
    consumer, inbox = node.subscribe("t", "c", ready=1)
    log = promote(node, 8, "t", "c", b"a")
    shard = log.broker.topics["t"].channels["c"]
    (first,) = inbox.take()
    log.publish("t", b"b")
    shard.backlog.reading = True
    consumer.finish(first.id)
    node.turn()
    assert inbox.take() == []
    log.broker.read_completed(log.broker.topics["t"].number)
    node.turn()
    assert bodies(inbox.take()) == [b"b"]


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


def test_nothing_can_be_published_into_a_promoted_log() -> None:
    source = NoIds(8, 100)
    assert source.next == 100
    for issue in (source.issue_id, lambda: source.issue_ids(1)):
        with pytest.raises(AssertionError):
            issue()


def test_what_shards_say_of_themselves(node: Node) -> None:
    consumer, _ = node.subscribe("t", "c", ready=3)
    log = promote(node, 8, "t", "c", b"a")
    channel = node.channel("t", "c")
    assert repr(consumer.window) == "<ShardedWindow: RDY 3, 2 free, 2 members>"
    assert repr(consumer.window.members[channel.shards[1]].sink) == f"<ShardSink of {consumer.window!r}>"
    assert repr(channel.dispatch.shards) == "<Shards: 2 of c>"  # type: ignore[attr-defined]
    assert repr(log.attachment).startswith("<Attachment of <Broker: ")

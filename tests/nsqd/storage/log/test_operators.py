"""What operators do to single messages, over a restart, in cases that were wrong once."""

from functools import partial

from nsqd.core.channel.actions import ChosenMessage, finish, requeue
from nsqd.core.message.frame import message_id
from nsqd.core.retention.policy import Durability, TopicConfig
from nsqd.core.topic import Topic
from tests.nsqd.core.node import SECOND
from tests.nsqd.storage.sim_disk import SimDisk
from tests.nsqd.storage.sim_node import Clock, SimNode


def start(disk: SimDisk, clock: Clock) -> SimNode:
    node = SimNode(disk, Durability.ALWAYS, clock, segment_size=1 << 20)
    node.eager = True
    return node


def chosen(node: SimNode, topic: Topic, *ordinals: int) -> list[ChosenMessage]:
    return [ChosenMessage(one, message_id(topic.journal.frame_in_memory(one))) for one in ordinals]


def test_a_delayed_message_that_was_finished_stays_finished() -> None:
    clock = Clock()
    node = start(SimDisk(), clock)
    topic = node.broker.topic("t")
    channel = topic.channel("c")
    for number in range(12):
        if number == 7:
            node.turn(partial(topic.publish_deferred, b"7", clock.now + 600 * SECOND))
        else:
            node.turn(partial(topic.publish, [b"x"], 1))
    requeue(topic, channel, chosen(node, topic, 5), 0, clock.now)
    finish(topic, channel, chosen(node, topic, *range(3, 11)))
    node.turn()
    assert (channel.depth, channel.deferred_count) == (4, 0)
    again = start(node.disk.kill(), clock.after(0, clock.now, rebooted=False)).broker.topics["t"].channels["c"]
    assert (again.depth, again.deferred_count) == (4, 0)


def test_every_message_of_a_large_turn_is_found_on_disk() -> None:
    node = start(SimDisk(), Clock())
    topic = node.broker.topic("t")
    topic.channel("c")
    node.turn(partial(topic.publish, [b"x" * 900] * 1500, 900 * 1500))
    node.advance(SECOND)
    ordinals = [0, 1020, 1023, 1024, 1499]
    plans = node.log.history().plans_of(topic.number, ordinals)
    found = {o for plan in plans for batch in plan.read()[0] for o in range(batch.first, batch.first + batch.count)}
    assert found >= set(ordinals)


def test_what_is_damaged_does_not_hide_what_stands_behind_it() -> None:
    disk = SimDisk()
    node = start(disk, Clock())
    topic = node.broker.topic("t")
    for _ in range(3):
        node.turn(partial(topic.publish, [b"x" * 200] * 1024, 200 * 1024))
    (name,) = [one for one in disk.names() if one.endswith(".log")]
    content = bytearray(disk.content(name))
    content[50_000] ^= 1
    disk.put(name, bytes(content))
    history, at, seen = node.log.history(), 0, 0
    while at < 3072:
        batches, at = history.plan(topic.number, at, 3072, 100_000).read()
        seen += sum(batch.count for batch in batches)
    assert (at, seen) == (3072, 2048)


def test_no_place_is_noted_twice() -> None:
    node = start(SimDisk(), Clock())
    topic = node.broker.topic("t")
    node.turn(partial(topic.publish, [b"x" * 1000] * 1024, 1000 * 1024))
    sequence = node.store.find_sequence(topic.number)
    for held in sequence.extents:
        assert len(set(held.locations)) == len(held.locations)


def test_a_channel_from_the_past_waits_for_what_others_wait_for_alone() -> None:
    clock = Clock()
    node = start(SimDisk(), clock)
    topic = node.broker.topic("t")
    topic.configure(TopicConfig(retention=3600 * SECOND))
    topic.channel("a")
    topic.channel("b")
    node.turn(partial(topic.publish_deferred, b"later", clock.now + 600 * SECOND))
    finish(topic, topic.channels["a"], chosen(node, topic, 0))
    late = topic.channel_from("late", 0, clock.now)
    node.turn()
    assert (late.depth, late.deferred_count) == (0, 1)
    node.advance(599 * SECOND)
    assert late.depth == 0
    node.advance(2 * SECOND)
    assert late.depth == 1

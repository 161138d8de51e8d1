"""What operators do to single messages, over a restart, in cases that were wrong once."""

from nsqd.core.channel.actions import ChosenMessage, finish, requeue
from nsqd.core.message.frame import message_id
from nsqd.core.topic import Topic
from tests.nsqd.core.node import SECOND
from tests.nsqd.storage.sim_disk import SimDisk
from tests.nsqd.storage.sim_node import Clock, SimNode


def start(disk: SimDisk | None = None, clock: Clock | None = None) -> SimNode:
    node = SimNode(disk, clock=clock, segment_size=1 << 20)
    node.eager = True
    return node


def chosen(node: SimNode, topic: Topic, *ordinals: int) -> list[ChosenMessage]:
    return [ChosenMessage(one, message_id(topic.journal.frame_in_memory(one))) for one in ordinals]


def test_a_delayed_message_that_was_finished_stays_finished() -> None:
    node = start()
    clock, topic = node.clock, node.broker.topic("t")
    channel = topic.channel("c")
    for number in range(12):
        if number == 7:
            node.turn(lambda: topic.intake.publish_with([b"7"], due=clock.now + 600 * SECOND) or None)
        else:
            node.publish()
    requeue(topic.distribution, channel, chosen(node, topic, 5), 0, clock.now)
    finish(topic.distribution, channel, chosen(node, topic, *range(3, 11)))
    node.turn()
    assert (channel.depth, channel.deferred_count) == (4, 0)
    again = start(node.disk.kill(), clock.after(0, clock.now, rebooted=False)).broker.topics["t"].channels["c"]
    assert (again.depth, again.deferred_count) == (4, 0)


def test_a_plan_has_the_extents_that_it_needs_and_no_more_bytes_than_were_asked_for() -> None:
    node = start()
    for _ in range(4):
        node.publish(1024, body=b"x" * 80)
    topic = node.broker.topics["t"]
    extents = node.store.find_sequence(topic.number).extents
    assert [stored.end for stored in extents] == [1024, 2048, 3072, 4096]
    assert list(node.store.find_sequence(topic.number).readable(1024, 2048)) == [extents[1]]

    def end_of_plan(start: int, end: int, most: int) -> int:
        _, following = node.log.history().plan(topic.number, start, end, most).read()
        return following

    size = extents[0].size
    assert end_of_plan(1024, 2048, 1 << 30) == 2048
    assert end_of_plan(1000, 4096, size) == 2048, "what lies before the start takes no room"
    assert end_of_plan(0, 4096, size) == 1024
    assert 1024 < end_of_plan(0, 4096, size + 1) <= 2048


def test_what_is_damaged_does_not_hide_what_stands_behind_it() -> None:
    node = start()
    for _ in range(3):
        node.publish(1024, body=b"x" * 200)
    topic = node.broker.topics["t"]
    node.disk.flip(*node.disk.segments(), 50_000)
    history, at, seen = node.log.history(), 0, 0
    while at < 3072:
        batches, at = history.plan(topic.number, at, 3072, 100_000).read()
        seen += sum(batch.count for batch in batches)
    assert (at, seen) == (3072, 2048)

"""Since when messages wait: by the frame in memory, else by the log's index, and nothing is moved by looking."""

from random import Random

from nsqd.core.limits import Limits
from nsqd.core.observation import backlog_age
from shared.topic_config import Durability
from tests.nsqd.core.node import SECOND, Node
from tests.nsqd.storage.sim_disk import SimDisk
from tests.nsqd.storage.sim_node import Clock, SimNode


def test_what_no_channel_was_given_yet_and_what_was_pulled_out_ahead_of_the_cursor() -> None:
    node = Node()
    node.publish_deferred("t", b"later", 5 * SECOND)
    topic, wall = node.broker.topics["t"], node.broker.wall
    assert backlog_age.oldest_of_topic(topic) == 0
    node.publish("t", b"first")
    node.advance(SECOND)
    node.publish("t", b"second")
    first = backlog_age.oldest_of_topic(topic)
    assert wall <= first < node.broker.wall
    channel = node.channel("t", "c")
    assert (backlog_age.oldest_of_topic(topic), backlog_age.oldest_of_channel(channel)) == (0, first)
    assert channel.backlog.pull(1)
    channel.journal.finish(1, 1)
    assert backlog_age.oldest_of_channel(channel) == first + SECOND
    channel.check()
    channel.empty()
    assert backlog_age.oldest_of_channel(channel) == 0


def test_the_index_knows_the_age_of_messages_on_disk() -> None:
    disk, clock = SimDisk(), Clock()
    node = SimNode(disk, Durability.OS, clock, Random(1), Limits())
    topic = node.broker.topic("t")
    channel = topic.channel("c")
    stamps = []
    for _ in range(11):
        clock.advance(SECOND)
        node.turn()
        topic.publish([b"x"], 1)
        node.turn()
        stamps.append(node.broker.wall)
    assert backlog_age.oldest_of_channel(channel) == stamps[0]
    node.log.close()
    node = SimNode(disk, Durability.OS, clock.after(SECOND, 1, rebooted=False), Random(2), Limits())
    channel = node.broker.topics["t"].channels["c"]
    assert channel.backlog.extents.frame_in_memory(0) == b""
    assert backlog_age.oldest_of_channel(channel) == stamps[0]
    assert channel.backlog.extents.published(5) == stamps[5]  # they came evenly
    assert channel.backlog.extents.published(10) == stamps[10]
    assert channel.backlog.extents.frame_in_memory(0) == b""  # nothing was read

"""Topics are read back from a replica: its durable bytes, whether its messages are finished or not."""

import pytest

from nsqd.cluster.replication.past import ReplicaPast, read_replica
from nsqd.core.retention.cursors import Cursor
from shared.topic_config import TopicConfig
from tests.effort import IS_CAMPAIGN
from tests.nsqd.cluster.replication.test_replica_to_log import log_with_checkpoints, replica_of, roots
from tests.nsqd.storage.sim_node import SimNode


def retaining_log() -> SimNode:
    """Return a log with two checkpoints, whose topic has retained its messages since the second one."""
    node = log_with_checkpoints()

    def retain() -> None:
        topic = node.broker.topic("t")
        topic.configure(TopicConfig(retention=3600 * 10**9))
        topic.set_cursor("reader", Cursor(70))

    node.turn(retain)
    node.publish(4)
    while node.log.writer.durable.position < node.log.writer.written.position:
        node.syncer.step()
        node.turn()
    return node


def readable(past: ReplicaPast) -> tuple[int, int, int]:
    """Return the window of the topic, and how many messages of it can be read."""
    topic = past.topic("t")
    window = past.history.window(topic.number)
    batches, after = past.history.plan(topic.number, window.first, window.next, 1 << 20).read()
    assert after == window.next
    return window.first, window.next, sum(batch.count for batch in batches)


def test_a_replica_shows_what_its_log_shows() -> None:
    node = retaining_log()
    disk, manifest = replica_of(node)
    past = read_replica(disk, manifest, manifest.mark)
    window = node.log.history().window(node.broker.topics["t"].number)
    assert readable(past) == (window.first, window.next, window.next - window.first)
    topic = past.topic("t")
    assert topic.cursors == {"reader": Cursor(70)}
    assert past.history.window(topic.number).log == window.log
    assert (past.log_id, past.node) == (node.log.identity.log_id, node.log.identity.node)
    assert past.topic("nobody") is None


def test_it_ends_with_the_last_record_that_was_durable_wherever_that_was_cut() -> None:
    node = retaining_log()
    before = node.log.writer.written.position
    node.publish(4)
    disk, manifest = replica_of(node)
    files = {name: disk.content(name) for name in disk.names()}
    published = readable(read_replica(disk, manifest, manifest.mark))[1]
    seen = {
        readable(read_replica(disk, manifest, end))[1] for end in range(before, manifest.mark, 1 if IS_CAMPAIGN else 4)
    }
    assert seen == {published - 4}, "the messages are one record, of which the last byte is missing"
    assert files == {name: disk.content(name) for name in disk.names()}, "nothing was changed"


def test_a_replica_in_which_replay_cannot_begin_is_not_read() -> None:
    node = retaining_log()
    disk, manifest = replica_of(node, roots(node)[-1] + 1)
    with pytest.raises(OSError, match="no complete checkpoint"):
        read_replica(disk, manifest, manifest.mark)

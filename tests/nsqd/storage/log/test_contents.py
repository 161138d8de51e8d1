"""Use of the log's space by file and by topic: the same as in a usage scan, in steps of any size."""

import pytest

from nsqd.core.limits import Limits
from nsqd.core.retention.policy import StoragePolicy
from nsqd.storage.log.contents import LogCount
from nsqd.storage.log.tidying import UsageScan
from shared.topic_config import TopicConfig
from tests.nsqd.core.node import MS, SECOND
from tests.nsqd.storage.sim_node import SimNode

HOUR = 3600 * SECOND
BODY = b"x" * 200


@pytest.fixture
def node() -> SimNode:
    """Segments of 2,000 bytes, of which several were cleaned or are gone. `waiting` has 40 messages, every other one is
    finished; `kept` retains 30, all finished; of `done` nothing is left."""
    node = SimNode(limits=Limits(policy=StoragePolicy()), segment_size=2000, tail_bytes=5000)
    node.eager = True
    node.broker.topic("kept").configure(TopicConfig(retention=HOUR))
    for name, count in (("waiting", 40), ("kept", 30), ("done", 30)):
        consumer, inbox = node.subscribe(name, timeout=HOUR)
        for number in range(count):
            node.publish(1, name, BODY)
            (message,) = inbox.take()
            if name != "waiting" or number % 2:
                consumer.finish(message.id)
            node.advance(10 * MS)
            node.syncer.timer()
            for _ in range(4):
                node.syncer.step()
            node.cleaner.step()
    return node


def counted(node: SimNode, step: int) -> LogCount:
    topics = [topic.number for topic in node.broker.topics.values()]
    count = node.log.contents().count(topics)
    while count.count_batch(step):
        pass
    return count


def test_by_topic(node: SimNode) -> None:
    found = {content.topic: content for content in counted(node, 7).topics()}
    topics = node.broker.topics
    waiting, kept = found.pop(topics["waiting"].number), found.pop(topics["kept"].number)
    assert not found
    assert (waiting.unfinished, waiting.retained, kept.unfinished, kept.retained) == (20, 0, 0, 30)
    assert kept.live >= 30 * len(BODY)


def test_it_is_the_count_of_a_scan(node: SimNode) -> None:
    scan = UsageScan(node.store.logged(), frozenset(), 0)
    for topic in scan.topics:
        scan.count(topic, node.store.find_sequence(topic))
    count = counted(node, 500)
    near = scan.total / 10  # the scan counts the other records between an extent's messages as the extent's
    assert scan.total - near <= sum(content.live for content in count.topics()) <= scan.total
    assert scan.total - near - 200 <= sum(file.live for file in count.files(1000)) <= scan.total


def test_by_file(node: SimNode) -> None:
    files = counted(node, 10).files(1000)
    assert [file.name for file in files] == sorted(name for name in node.disk.names() if name.endswith(".log"))
    assert [file.number for file in files] == sorted(file.number for file in files)
    assert all(0 <= file.live <= file.size for file in files)
    assert all((file.first > 0) == (file.live > 0) for file in files)
    assert abs(sum(file.size for file in files) - node.log.tidying.size) <= 64 * len(files)
    assert counted(node, 10).files(2) == files[-2:]
    free, total = node.log.contents().room()
    assert 0 < free <= total

"""The settings of readers: when a message or a job that failed is delivered again."""

from nsqd.core.limits import Limits
from nsqd.core.reader import ReaderSettings
from nsqd.core.sequence.put_batch import JobOptions
from nsqd.core.work_queue.job import JobState
from nsqd.core.work_queue.worker import NobodysSink, Worker
from shared.retry import Retry
from shared.topic_config import TopicConfig
from shared.values import SECOND
from tests.cases import each
from tests.nsqd.core.node import MS, Node, bodies, ids

FIXED, GROWING = Retry.parse("fixed(500ms)"), Retry.parse("exponential(1s, 3s)")


def test_a_channel_of_its_own_settings_does_not_use_the_topics() -> None:
    config = TopicConfig(max_attempts=3, rate=7).with_channel("c", TopicConfig(rate=0, retry=FIXED))
    assert ReaderSettings.of(config.of("c"), 9) == ReaderSettings(3, FIXED, 0, 0)
    assert ReaderSettings.of(config.of("d"), 9) == ReaderSettings(3, Retry(), 0, 7)
    assert ReaderSettings.of(TopicConfig(), 9) == ReaderSettings(9)


@each("way", ["requeued", "timed out", "lost"])
def test_a_message_that_failed_waits_longer_each_time_and_is_buried_at_last(way: str) -> None:
    node = Node(Limits(requeue_on_disconnect=True))
    node.broker.topic("t").configure(TopicConfig(retry=GROWING, max_attempts=4))
    node.publish("t", b"m")
    waited = []
    for _ in range(4):
        client, inbox = node.subscribe("t", "c", 1, 2 * SECOND)
        began = node.now
        while not (taken := inbox.take()):
            node.advance(50 * MS)
        waited.append(node.now - began)
        if way == "requeued":
            assert client.requeue(ids(taken), 0, node.now) == ""
        elif way == "timed out":
            node.advance(2 * SECOND + 50 * MS)
        client.leave(node.broker)
        node.turn()
    assert len(node.channel("t", "c").buried) == 1
    allowed = [(0, 0), (0.65, 1.1), (1.4, 2.1), (2.1, 3.1)]
    for seconds, (least, most) in zip(waited, allowed, strict=True):
        assert least * SECOND <= seconds <= most * SECOND, waited


def test_a_delay_of_the_consumers_own_holds_and_a_message_that_did_not_fail_waits_for_nothing() -> None:
    node = Node(Limits(requeue_on_disconnect=True))
    node.broker.topic("t").configure(TopicConfig(retry=FIXED))
    client, inbox = node.subscribe("t", "c", 2)
    node.publish("t", b"1", b"2")
    _, second = inbox.take()
    client.requeue(second.id, 100 * MS, node.now)
    node.advance(200 * MS)
    assert bodies(inbox.take()) == [b"2"]
    client.leave(node.broker)  # 1 was the oldest in its hands and has failed, 2 waited
    _, inbox = node.subscribe("t", "c", 2)
    assert bodies(inbox.take()) == [b"2"]
    node.advance(600 * MS)
    assert bodies(inbox.take()) == [b"1"]


@each("release", ["timed out", "released", "later"])
def test_a_job_that_failed_waits_too(release: str) -> None:
    node = Node()
    tubes, worker = node.broker.tubes, Worker(NobodysSink())
    tubes.join(worker)
    tubes.put(worker, [b"job"], JobOptions(ttr=1))
    node.turn()
    node.broker.topics["default"].configure(TopicConfig(retry=FIXED))
    tube = tubes.tube("default")
    assert tube is not None
    assert tube.reserve_plain(worker, node.now)
    if release == "timed out":
        node.advance(SECOND)
    else:
        job = tube.table.first(JobState.RESERVED)
        assert job is not None
        tube.hand_back(job, 5, 2 if release == "later" else 0, node.now)
    assert tube.next_ready() is None
    node.advance(550 * MS)
    assert (tube.next_ready() is None) == (release == "later")
    node.advance(2 * SECOND)
    assert tube.next_ready() is not None

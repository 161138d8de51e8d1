"""Limits of a channel or a tube: messages in flight and messages per second, over all consumers and shards."""

from nsqd.core.sequence.mark import Mark
from nsqd.core.sequence.put_batch import JobOptions
from nsqd.core.work_queue.job import Job
from nsqd.core.work_queue.tube import Tube
from nsqd.core.work_queue.worker import Worker
from shared.topic_config import TopicConfig
from shared.values import SECOND
from tests.cases import each
from tests.nsqd.core.node import MS, Node, bodies, ids
from tests.nsqd.core.promoted import PromotedLog


def limited(count: int = 0, **settings: int) -> Node:
    node = Node()
    node.broker.topic("t").configure(TopicConfig(**settings))
    node.channel("t", "c")
    if count:
        node.publish("t", *[b"%d" % number for number in range(count)])
    return node


def test_no_more_messages_are_in_flight_whatever_the_consumers_have_room_for() -> None:
    node = limited(9, concurrency=3)
    (_, inbox), (leaver, other) = (node.subscribe("t", "c", 5) for _ in range(2))
    assert (bodies(inbox.take()), bodies(other.take())) == ([b"0", b"1", b"2"], [])
    leaver.leave(node.broker)
    node.turn()
    assert node.channel("t", "c").in_flight_count == 3


@each("way", ["finish", "requeue", "touch and time out", "leave", "bury"])
def test_whatever_ends_a_delivery_makes_room_for_another(way: str) -> None:
    node = limited(5, concurrency=1)
    client, inbox = node.subscribe("t", "c", 5, SECOND)
    _, other = node.subscribe("t", "c", 5, SECOND)
    (taken,) = inbox.take() + other.take()
    if way == "finish":
        assert client.finish(taken.id) == []
    elif way == "requeue":
        assert client.requeue(taken.id, 60 * SECOND, node.now) == ""
    elif way == "leave":
        client.leave(node.broker)
        node.advance(SECOND + 50 * MS)
    elif way == "bury":
        node.broker.topics["t"].configure(TopicConfig(concurrency=1, max_attempts=1))
        assert client.requeue(taken.id, 0, node.now) == ""
    else:
        assert client.touch(taken.id, SECOND, 60 * SECOND, node.now) == ""
        node.advance(SECOND + 50 * MS)
    node.turn()
    assert len(inbox.take() + other.take()) == 1
    assert node.channel("t", "c").in_flight_count == 1


@each("rate", [1, 10, 333, 20_000])
def test_a_rate_is_exact_to_two_percent_over_ten_seconds(rate: int) -> None:
    node = limited(rate=rate)
    client, inbox = node.subscribe("t", "c", 2500)
    seconds = 0
    came: list[int] = []
    while seconds < 20:
        node.publish("t", *[b"m"] * (2 * rate))
        got = 0
        for _ in range(50):
            node.advance(20 * MS)
            taken = inbox.take()
            got += len(taken)
            client.finish(ids(taken))
        came.append(got)
        seconds += 1
    for first in (0, 10):
        assert abs(sum(came[first : first + 10]) - 10 * rate) <= max(1, 10 * rate // 50), came


def test_a_limit_that_changes_holds_at_once_and_none_delivers_all() -> None:
    node = limited(100, concurrency=1, rate=1)
    topic = node.broker.topics["t"]
    _, inbox = node.subscribe("t", "c", 100)
    assert len(inbox.take()) == 1
    topic.configure(TopicConfig(concurrency=5))
    node.turn()
    assert len(inbox.take()) == 4
    topic.configure(TopicConfig().with_channel("c", TopicConfig(concurrency=7)))
    node.turn()
    assert len(inbox.take()) == 2
    topic.configure(TopicConfig())
    node.turn()
    assert len(inbox.take()) == 93


def test_a_channel_and_its_shards_have_one_limit() -> None:
    node = limited(4, concurrency=3)
    promoted = PromotedLog(node, 9)
    promoted.channels("t", "c")
    promoted.publish("t", *[b"p%d" % number for number in range(4)])
    promoted.attach()
    client, inbox = node.subscribe("t", "c", 100)
    got: list[bytes] = []
    while taken := inbox.take():
        assert len(taken) <= 3
        assert sum(one.in_flight_count for one in node.channel("t", "c").shards) <= 3
        got += bodies(taken)
        assert client.finish(ids(taken)) == []
        node.turn()
    assert sorted(got) == [b"0", b"1", b"2", b"3", b"p0", b"p1", b"p2", b"p3"]


class Sink:
    """A worker's connection: it remembers the jobs that it was given."""

    def __init__(self) -> None:
        self.jobs: list[Job] = []

    def reserved(self, tube: str, job: Job, body: bytes) -> None:
        self.jobs.append(job)

    def wait_for(self, marks: tuple[Mark, ...]) -> None:
        raise AssertionError("there are no copies")

    def read_completed(self) -> None:
        raise AssertionError("all is in memory")


def waiting(node: Node, count: int) -> tuple[Tube, list[Worker], list[Job]]:
    """Workers that wait for jobs of a tube, and the list of what they are given."""
    tubes, sink = node.broker.tubes, Sink()
    workers = [Worker(sink) for _ in range(count)]
    for worker in workers:
        tubes.join(worker)
        tubes.waiters.wait(worker)
    tubes.put(workers[0], [b"%d" % number for number in range(count + 5)], JobOptions(ttr=1))
    node.turn()
    tube = tubes.tube("default")
    assert tube is not None
    return tube, workers, sink.jobs


@each("end", ["delete", "release", "time out", "bury", "leave"])
def test_no_more_jobs_are_reserved_and_an_end_gives_the_next_to_who_waits(end: str) -> None:
    node = Node()
    node.broker.tubes.made("default")
    node.broker.topics["default"].configure(TopicConfig(concurrency=2))
    tube, workers, jobs = waiting(node, 4)
    assert len(jobs) == 2
    assert node.broker.tubes.reserve_plain("default", workers[3], node.now) is None
    if end == "delete":
        tube.finish(jobs[0])
    elif end == "release":
        tube.hand_back(jobs[0], 9, 0, node.now)
    elif end == "bury":
        tube.bury(jobs[0], 9)
    elif end == "leave":
        node.broker.tubes.leave(workers[0])
    else:
        node.advance(SECOND + 50 * MS)
    node.turn()
    assert len(jobs) == (4 if end == "time out" else 3)
    assert tube.in_flight_count == 2
    node.broker.topics["default"].configure(TopicConfig())
    node.turn()
    assert len(jobs) == 4


def test_a_rate_lets_workers_wait() -> None:
    node = Node()
    node.broker.tubes.made("default")
    node.broker.topics["default"].configure(TopicConfig(rate=2))
    _, _, jobs = waiting(node, 9)
    came = []
    for _ in range(4):
        came.append(len(jobs))
        node.advance(SECOND)
    assert came == [1, 3, 5, 7]

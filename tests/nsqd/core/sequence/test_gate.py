"""The gate of a topic with copies: what it holds back, and that no clock of a client runs meanwhile."""

from nsqd.core.channel.channel import Channel
from nsqd.core.channel.commands import finish, set_ready
from nsqd.core.sequence.gate import Gate
from nsqd.core.sequence.mark import GRAIN, LATE, Mark
from nsqd.core.work_queue.worker import Worker
from shared.topic_config import TopicConfig
from tests.nsqd.core.node import MS, SECOND, Inbox
from tests.nsqd.core.work_queue.test_tube import NOW, READY, RESERVED, Bench
from tests.nsqd.core.work_queue.test_waiters import Hand
from tests.nsqd.storage.log.test_copied_end import Publishing


class Client(Inbox):
    """A consumer's connection, which asks the gate as connections do."""

    def __init__(self, channel: Channel) -> None:
        super().__init__()
        self.channel = channel

    def deliver(self, frames: list[bytes], size: int, now: int) -> None:
        gate = self.channel.offsets.gate
        if gate is not None:
            gate.pass_through()
        super().deliver(frames, size, now)


class Consuming(Publishing):
    """A topic whose messages need two copies, and a consumer that is given one with a timeout of 1 s."""

    def __init__(self) -> None:
        super().__init__()
        self.node.turn(lambda: self.topic.configure(TopicConfig(replicate=2)))
        self.channel = self.topic.channel("c")
        self.client = Client(self.channel)
        self.consumer = self.channel.subscribe(self.client, SECOND, 0)
        self.copy()
        self.node.turn(lambda: set_ready(self.channel, self.consumer, 10))
        self.publish()
        self.node.turn()


def test_a_message_does_not_time_out_before_it_has_left_and_then_once() -> None:
    one = Consuming()
    one.node.advance(20 * SECOND)
    assert (len(one.client.frames), one.channel.timeout_count, one.channel.in_flight.count) == (1, 0, 1)
    one.copy()
    one.node.turn()
    one.node.advance(990 * MS)
    assert (len(one.client.frames), one.channel.timeout_count) == (1, 0)
    one.node.advance(510 * MS)
    messages = one.client.take()
    assert [message.attempts for message in messages] == [1, 2]
    assert one.channel.timeout_count == 1
    assert finish(one.channel, one.consumer, messages[0].id) == []


def test_the_time_to_run_of_a_job_begins_when_it_has_left() -> None:
    bench, mark = Bench(), Mark("leaving")
    bench.offsets.gate = Gate(mark, lambda marks: None, 0)
    worker = Worker(Hand())
    bench.put(b"a", ttr=1)
    bench.tube.reserve(bench.job(0), worker, NOW)
    mark.hold(100, NOW)
    for later in range(1, 5):
        bench.tube.scan(NOW + later * SECOND, 10)
        assert bench.job(0).state is RESERVED
    mark.position = 100
    mark.release_reached(NOW + 4 * SECOND + 500 * MS)
    bench.tube.scan(NOW + 5 * SECOND + 400 * MS, 10)
    assert (bench.job(0).state, bench.job(0).timeouts) == (RESERVED, 0)
    bench.tube.scan(NOW + 5 * SECOND + 500 * MS, 10)
    assert (bench.job(0).state, bench.job(0).timeouts) == (READY, 1)


def test_a_mark_knows_when_the_output_of_a_turn_left_and_remembers_little() -> None:
    mark = Mark("leaving")
    assert mark.left_at(5, 10) == 5
    mark.hold(10, 1000)
    mark.hold(20, 1000 + GRAIN)
    mark.hold(30, 1000 + GRAIN + 1)  # is not remembered: the one before was at about that time
    assert [mark.left_at(turn, 2 * GRAIN) for turn in (999, 1000, 3 * GRAIN)] == [999, None, None]
    mark.position = 10
    late = 1000 + LATE
    mark.release_reached(late)
    assert [mark.left_at(turn, late) for turn in (999, 1000, 999 + GRAIN, 1000 + GRAIN)] == [999, late, late, None]
    mark.position = 30
    mark.release_reached(late + 7)  # output that was held for less than LATE counts as sent at once
    assert [mark.left_at(turn, late + 8) for turn in (1000, 1000 + GRAIN)] == [late, 1000 + GRAIN]
    mark = Mark("leaving")
    for turn in range(3600 * 100):  # an hour
        mark.hold(turn + 1, turn * 10 * MS)
    assert len(mark._waiting) < 5000

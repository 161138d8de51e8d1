"""Records back into state: delays over a restart, clocks that step, and records that arrive in an awkward order."""

from random import Random

from nsqd.core import records
from nsqd.core.channel.actions import kick
from nsqd.core.limits import Limits
from nsqd.core.reader import ReaderKind
from nsqd.core.records import RecordKind
from nsqd.storage.log.reader import Record
from nsqd.storage.log.replay import Replay
from shared.topic_config import Durability
from tests.cases import each
from tests.nsqd.core.client import Client
from tests.nsqd.core.node import MS, SECOND, Inbox, bodies
from tests.nsqd.storage.sim_disk import SimDisk
from tests.nsqd.storage.sim_node import Clock, SimNode

WALL = 1_800_000_000 * SECOND


def start(disk: SimDisk, now: int = 1000 * SECOND, wall: int = WALL, limits: Limits | None = None) -> SimNode:
    return SimNode(disk, Durability.ALWAYS, Clock(now, wall, 1 + (wall != WALL)), Random(1), limits)


def with_channel(channel: str = "a") -> SimNode:
    node = start(SimDisk())
    node.broker.topic("t").channel(channel)
    return node


def subscribe(node: SimNode, topic: str, channel: str, ready: int = 100) -> tuple[Client, Inbox]:
    consumer, inbox = node.subscribe(topic, channel, ready)
    node.eager = True
    node.advance(0)
    return consumer, inbox


def publish(node: SimNode, *contents: bytes, delay: int = 0) -> None:
    topic = node.broker.topic("t")
    if delay:
        for content in contents:
            topic.intake.publish_with([content], due=node.clock.now + delay)
    else:
        topic.publish(list(contents), sum(map(len, contents)))
    node.turn()


@each("away, left", [
    (0, 10 * SECOND), (4 * SECOND, 6 * SECOND), (10 * SECOND, 0), (3600 * SECOND, 0),
    (-3600 * SECOND, 10 * SECOND),  # the wall clock was set back: the node was not away at all
])  # fmt: skip
def test_a_delay_goes_on_where_it_stood_less_the_time_away(away: int, left: int) -> None:
    node = with_channel()
    publish(node, b"later", delay=10 * SECOND)
    node = start(node.disk.kill(), now=5 * SECOND, wall=WALL + away)
    _, inbox = subscribe(node, "t", "a")
    if left:
        node.advance(left - 1 * MS)
        assert bodies(inbox.take()) == []
    node.advance(101 * MS)
    assert bodies(inbox.take()) == [b"later"]


def test_what_was_buried_ahead_of_the_cursor_can_be_kicked_after_a_checkpoint_and_a_crash() -> None:
    node = start(SimDisk(), limits=Limits(mem_queue_size=0, max_attempts={"t": 1}))
    channel = node.broker.topic("t").channel("a")
    publish(node, b"delayed", delay=10 * MS)
    node.clock.advance(200 * MS)
    consumer, inbox = subscribe(node, "t", "a", ready=1)
    (delayed,) = inbox.take()
    assert consumer.requeue(delayed.id, 0, node.clock.now) == ""  # it is buried; the cursor has not come by
    consumer.set_ready(0)
    node.turn()
    node.checkpoint()
    assert kick(channel, [delayed.id]) == 1
    node.turn()
    node = start(node.disk.kill(), limits=Limits(max_attempts={"t": 1}))
    _, inbox = subscribe(node, "t", "a")
    assert bodies(inbox.take()) == [b"delayed"]


def test_what_only_an_ephemeral_channel_had_is_not_given_to_a_later_one() -> None:
    node = with_channel("x#ephemeral")
    publish(node, b"seen")
    node = start(node.disk.kill())
    assert list(node.broker.topics["t"].channels) == []
    publish(node, b"new")
    _, inbox = subscribe(node, "t", "a")
    assert bodies(inbox.take()) == [b"new"]


def test_numbers_and_ids_are_not_given_again() -> None:
    disk = SimDisk()
    seen: set[bytes] = set()
    numbers: set[int] = set()
    for life in range(4):
        node = start(disk)
        channel = node.broker.topic("t").channel(f"c{life}")
        assert channel.number not in numbers
        numbers.add(channel.number)
        _, inbox = subscribe(node, "t", f"c{life}")
        publish(node, b"%d" % life)
        (one,) = inbox.take()
        assert one.id not in seen
        seen.add(one.id)
        disk = disk.crash(Random(life))


def test_what_was_done_behind_a_straggler_is_not_walked_over() -> None:
    many = (1 << 32) - 1  # were it, this test would take minutes
    replay = Replay()
    for kind, content in (
        (RecordKind.TOPIC, records.TOPIC.pack(1) + b"t"),
        (RecordKind.READER, records.READER.pack(1, 2, 0, ReaderKind.CHANNEL) + b"a"),
        (RecordKind.DISTRIBUTE, records.DISTRIBUTE.pack(1, 0, many + 1)),
        (RecordKind.FINISH, records.CHANNEL_OF.pack(1, 2) + records.runs([(1, many)])),
        (RecordKind.PUBLISH, records.PUBLISH.pack(1, many + 1, 1, 5, 100, True) + bytes(100)),
    ):
        assert replay.apply(Record(kind, content, 0, 64, 164))
    replay.conclude()
    channel = replay.topics[1].readers[2]
    assert list(channel.returned) == [many + 1]

"""Damage below the durable mark: no wrong body is delivered, what is whole is served, and it is told."""

from collections.abc import Callable
from random import Random

import pytest

from nsqd.core import records
from nsqd.core.records import RecordKind
from nsqd.core.retention.policy import Durability
from nsqd.storage.log.reader import LogRecords
from nsqd.storage.log.records import HEADER_SIZE
from nsqd.storage.log.segments import LogError
from nsqd.storage.log.verify import verify
from tests.effort import tries
from tests.nsqd.core.client import Client
from tests.nsqd.core.node import SECOND, Inbox
from tests.nsqd.storage.sim_disk import SimDisk
from tests.nsqd.storage.sim_node import Clock, SimNode
from tests.nsqd.storage.survey import survey

MESSAGES = 40
CASES = tries(60)


def clock() -> Clock:
    return Clock()


def open_node(disk: SimDisk, tail_records: int = 1 << 30) -> SimNode:
    return SimNode(disk, Durability.ALWAYS, clock(), segment_size=1000, tail_records=tail_records)


def body(number: int) -> bytes:
    return b"body %d " % number * 5


def filled(tail_records: int = 1 << 30) -> SimDisk:
    """Messages, each published in a turn of its own, to two channels; one of these has finished every third."""
    disk = SimDisk()
    node = open_node(disk, tail_records)
    topic = node.broker.topic("t")
    kept, busy = topic.channel("kept"), topic.channel("busy")
    inbox = Inbox()
    consumer = Client(busy, inbox, 60 * SECOND, 0)
    consumer.set_ready(1000)
    node.turn()
    for number in range(MESSAGES):
        topic.publish([body(number)], len(body(number)))
        node.turn()
        if number % 3 == 0:
            consumer.finish(inbox.take()[-1].id)
        node.syncer.step()
        node.syncer.step()
    node.turn()
    assert node.log.writer.sync()
    node.turn(lambda: node.broker.pause(kept, False))  # one more group, which states that all before it is durable
    assert node.log.writer.sync()
    return disk


def served(disk: SimDisk) -> tuple[set[bytes], int]:
    """What the channel that finished nothing gets, and how many spots of damage there are."""
    node = open_node(disk)
    node.broker.check()
    seen = survey(node, {})
    assert node.cache.failures == 0
    bodies = set(seen["t"].channels["kept"].arrivals)
    assert bodies <= {body(number) for number in range(MESSAGES)}
    return bodies, len(node.log.start_results.damage.spots)


def behind_the_topology(disk: SimDisk) -> list[tuple[str, int, int, int]]:
    """(file, from, to, messages) of each record behind those that make the topic and its channels, without the last group."""
    found, ready = [], 0
    for record in list(LogRecords(disk.kill()).records()):
        ready += record.kind == RecordKind.READER
        if ready == 2 and record.kind != RecordKind.READER:
            count = records.PUBLISH.unpack_from(record.content)[2] if record.kind == RecordKind.PUBLISH else 0
            found.append((f"{record.segment:020d}.0.log", record.start, record.end, count))
    return found[:-2]


def test_a_wrong_bit_costs_no_more_than_its_record() -> None:
    disk, random = filled(), Random(2)
    places = behind_the_topology(disk)
    for _ in range(CASES):
        name, start, end, messages = random.choice(places)
        wrong = bytearray(disk.content(name))
        wrong[random.randrange(start, end)] ^= 1 << random.randrange(8)
        spoiled = disk.kill()
        spoiled.put(name, bytes(wrong))
        bodies, spots = served(spoiled)
        assert (len(bodies), spots) == (MESSAGES - messages, 1)


def test_a_zeroed_page_costs_no_more_than_what_stood_there() -> None:
    disk, random = filled(), Random(3)
    places = behind_the_topology(disk)
    for _ in range(CASES // 5):
        name, start, _, _ = random.choice(places)
        stop = start + 256
        spoiled = disk.kill()
        content = disk.content(name)
        spoiled.put(name, (content[:start] + bytes(256) + content[stop:])[: len(content)])
        hit = sum(count for other, first, end, count in places if other == name and first < stop and end > start)
        assert len(served(spoiled)[0]) >= MESSAGES - hit - 1  # one more if what follows the page is no group


def test_a_message_whose_finish_is_damaged_comes_again() -> None:
    disk = filled()
    finish = next(r for r in LogRecords(disk.kill()).records() if r.kind == RecordKind.FINISH)
    name = f"{finish.segment:020d}.0.log"
    wrong = bytearray(disk.content(name))
    wrong[finish.end - 1] ^= 1
    disk.put(name, bytes(wrong))
    node = open_node(disk)
    before = survey(open_node(filled()), {})["t"].channels["busy"].arrivals
    after = survey(node, {})["t"].channels["busy"].arrivals
    assert len(after) == len(before) + 1
    assert all(len(seen) == len(body(0)) or seen in before for seen in after)


def test_swapped_segments_are_refused() -> None:
    disk = filled()
    first, second = disk.names()[1:3]
    one, other = disk.content(first), disk.content(second)
    disk.put(first, other)
    disk.put(second, one)
    with pytest.raises(LogError, match="was renamed"):
        open_node(disk)


def test_a_damaged_checkpoint_leaves_the_one_before_it() -> None:
    whole = filled(tail_records=20)
    reader = LogRecords(whole.kill())
    roots = [reader.segments[place].name for place in reader.roots()]
    assert len(roots) > 2
    name = roots[0]
    parts = [
        r
        for r in reader.records(reader.roots()[0])
        if r.kind in (RecordKind.STATE, RecordKind.STATE_TOPIC, RecordKind.STATE_END)
    ]
    assert len(parts) == 3
    for at in [at for part in parts for at in range(part.start, part.end, 11)]:
        disk = whole.kill()
        wrong = bytearray(whole.content(name))
        wrong[at] ^= 4
        disk.put(name, bytes(wrong))
        node = open_node(disk)
        assert f"{node.log.start_results.roots[0]:020d}.0.log" == roots[1]
        assert len(survey(node, {})["t"].channels["kept"].arrivals) == MESSAGES


def test_what_is_damaged_behind_a_running_node_is_given_up_and_nobody_waits_for_it() -> None:
    for delivered in (False, True):  # messages that the cursor comes by, or each by itself
        disk = SimDisk()
        node = open_node(disk)
        topic = node.broker.topic("t")
        inbox = Inbox(1 << 30)
        Client(topic.channel("a"), inbox, 60 * SECOND, 0).set_ready(2000 if delivered else 0)
        bodies = [body(number) for number in range(1000)]
        node.turn(lambda topic=topic, bodies=bodies: topic.publish(bodies, sum(map(len, bodies))))
        node.turn()
        assert len(inbox.take()) == len(bodies) * delivered
        node = open_node(disk.kill())
        for name in node.disk.names():
            node.disk.put(name, node.disk.content(name)[:200])
        channel = node.broker.topics["t"].channels["a"]
        assert channel.depth == len(bodies)
        node.eager = True
        Client(channel, inbox, 60 * SECOND, 0).set_ready(2000)
        node.advance(SECOND)
        assert (inbox.take(), channel.depth, node.cache.failures) == ([], 0, 1000)
        node.broker.check()
        node.turn(lambda node=node: node.broker.topics["t"].publish([b"new"], 3))
        node.turn()
        assert [one.body for one in inbox.take()] == [b"new"]


def test_the_numbers_of_damaged_messages_are_not_given_to_new_ones() -> None:
    for late in (False, True):  # the channel is made before the messages, or after somebody had them
        disk = SimDisk()
        node = open_node(disk)
        topic = node.broker.topic("t")
        inbox = Inbox()
        consumer = Client(topic.channel("early"), inbox, 60 * SECOND, 0)
        consumer.set_ready(10)
        node.turn(lambda topic=topic: topic.publish([b"damaged one", b"damaged two"], 22))
        if late:
            node.turn(lambda topic=topic: topic.channel("late") and None)
        else:
            consumer.finish(b"".join(message.id for message in inbox.take()))
        node.turn()
        node.log.close()
        name = next(iter(disk.names()))
        disk.put(name, disk.content(name).replace(b"damaged two", b"damaged ---"))
        node = open_node(disk)
        node.broker.check()
        node.turn(lambda node=node: node.broker.topics["t"].publish([b"new"], 3))
        seen = survey(open_node(disk.kill()), {})["t"].channels
        assert all(b"new" in channel.arrivals for channel in seen.values())


def spoil(disk: SimDisk, text: bytes) -> None:
    name = next(name for name in disk.names() if name.endswith(".log") and text in disk.content(name))
    disk.put(name, disk.content(name).replace(text, b"#" * len(text)))


@pytest.mark.parametrize("how", ["finished ahead", "distributed later", "emptied"])
def test_new_messages_are_delivered_though_what_stood_before_them_is_damaged(how: str) -> None:
    """Records behind the damaged publish speak of its messages: a channel is done with some, or the topic is."""
    node = SimNode(SimDisk(), Durability.ALWAYS, clock())
    topic = node.broker.topic("t")
    inbox = Inbox()
    if how != "emptied":
        consumer = Client(topic.channel("c"), inbox, 60 * SECOND, 0)
        consumer.set_ready(1000)
        node.turn()
    if how == "distributed later":
        node.turn(lambda: node.broker.pause(topic, True))
    node.turn(lambda: topic.publish([b"one", b"damaged", b"three"], 15))
    node.turn()
    if how == "distributed later":
        node.turn(lambda: node.broker.pause(topic, False))
    elif how == "emptied":
        node.turn(topic.empty)
    else:
        assert consumer.finish(inbox.take()[-1].id) == []
        node.turn()
    node.turn()
    node.log.close()
    disk = node.disk.kill()
    spoil(disk, b"damaged")
    node = SimNode(disk, Durability.ALWAYS, clock())
    node.broker.check()
    topic, inbox = node.broker.topics["t"], Inbox()
    consumer = Client(topic.channel("c"), inbox, 60 * SECOND, 0)
    consumer.set_ready(1000)
    node.eager = True
    new = [b"new %d" % number for number in range(5)]
    for body in new:
        node.turn(lambda body=body: topic.publish([body], len(body)))
    node.advance(SECOND)
    assert [one.body for one in inbox.take()] == new
    assert topic.depth == topic.channels["c"].depth == 0
    node.broker.check()


def test_verify_tells_of_a_segment_that_ends_too_early_also_before_the_checkpoint() -> None:
    disk = filled(tail_records=20)
    reader = LogRecords(disk.kill())
    before = [segment for segment in reader.segments[: reader.roots()[0]] if not segment.header.generation]
    found = 0
    for segment in before:  # a start does not read them
        spoiled = disk.kill()
        whole = spoiled.content(segment.name).rstrip(b"\0")
        stands = [record for record in LogRecords(disk.kill()).records() if record.segment == segment.base]
        last = max((record.end for record in stands if record.kind == RecordKind.PUBLISH), default=0)
        spoiled.put(segment.name, whole[: stands[0].end])  # behind a whole record
        told = [spot for spot in verify(spoiled, lambda done, total: None).damage if spot[0] == segment.name]
        assert told == ([(segment.name, stands[0].end, last)] if last else [])
        found += len(told)
    assert found > 2
    assert verify(disk.kill(), lambda done, total: None).damage == []


def test_verify_takes_no_removed_segment_for_damage() -> None:
    """Segments that nobody needs are removed from the middle of the log."""
    disk = SimDisk()
    node = open_node(disk, tail_records=100)
    kept, busy = node.broker.topic("kept"), node.broker.topic("busy")
    kept.channel("c")
    inbox = Inbox()
    consumer = Client(busy.channel("c"), inbox, 60 * SECOND, 0)
    consumer.set_ready(1000)

    def work(publishing: Callable[[], object], turns: int) -> None:
        for _ in range(turns):
            node.turn(publishing)
            for message in inbox.take():
                consumer.finish(message.id)
            for part in (node.syncer, node.cleaner, node.syncer):
                part.step()

    work(lambda: kept.publish([b"k" * 100], 100), 40)
    work(lambda: busy.publish([b"b" * 100], 100), 400)
    work(lambda: None, 50)
    bases = [segment.base for segment in LogRecords(node.disk.kill()).segments]
    sizes = [node.disk.size(segment.name) - HEADER_SIZE for segment in LogRecords(node.disk.kill()).segments]
    assert any(base + size < following for base, size, following in zip(bases, sizes, bases[1:], strict=False))
    assert verify(node.disk.kill(), lambda done, total: None).whole

"""Corruption below the durable mark: no wrong body is delivered, intact messages are served, and it is reported."""

from collections.abc import Callable
from random import Random

import pytest

from nsqd.core import records
from nsqd.core.records import RecordKind
from nsqd.core.sequence.put_batch import JobOptions
from nsqd.storage.log.reader import LogRecords
from nsqd.storage.log.records import HEADER_SIZE
from nsqd.storage.log.verify import verify
from shared.topic_config import Durability
from tests.cases import each
from tests.effort import tries
from tests.nsqd.core.node import SECOND, ids
from tests.nsqd.storage.sim_disk import SimDisk
from tests.nsqd.storage.sim_node import SimNode
from tests.nsqd.storage.survey import survey

MESSAGES = 40
CASES = tries(40)


def open_node(disk: SimDisk, tail_records: int = 1 << 30) -> SimNode:
    return SimNode(disk, Durability.ALWAYS, segment_size=1000, tail_records=tail_records)


def body(number: int) -> bytes:
    return b"body %d " % number * 5


def filled(tail_records: int = 1 << 30) -> SimDisk:
    """Messages, each published in a turn of its own, to two channels; one of these has finished every third."""
    node = open_node(SimDisk(), tail_records)
    kept = node.broker.topic("t").channel("kept")
    consumer, inbox = node.subscribe(channel="busy")
    node.turn()
    for number in range(MESSAGES):
        node.publish(body=body(number))
        if number % 3 == 0:
            consumer.finish(inbox.take()[-1].id)
        node.syncer.step()
        node.syncer.step()
    node.turn()
    assert node.log.writer.sync()
    node.turn(lambda: node.broker.pause(kept, False))  # one more group, which states that all before it is durable
    assert node.log.writer.sync()
    return node.disk


def served(disk: SimDisk) -> tuple[set[bytes], int]:
    """Return the bodies for the channel that finished nothing, and the number of corrupt ranges."""
    node = open_node(disk)
    node.broker.check()
    bodies = set(survey(node, {})["t"].channels["kept"].arrivals)
    assert node.cache.failures == 0
    assert bodies <= {body(number) for number in range(MESSAGES)}
    return bodies, len(node.log.start_results.damage.spots)


def after_the_topology(disk: SimDisk) -> list[tuple[str, int, int, int]]:
    """(file, from, to, messages) of each record after those that make the topic and its channels, without the last group."""
    found, ready = [], 0
    for record in list(LogRecords(disk.kill()).records()):
        ready += record.kind == RecordKind.READER
        if ready == 2 and record.kind != RecordKind.READER:
            count = records.PUBLISH.unpack_from(record.content)[2] if record.kind == RecordKind.PUBLISH else 0
            found.append((f"{record.segment:020d}.0.log", record.start, record.end, count))
    return found[:-2]


def test_a_wrong_bit_costs_no_more_than_its_record() -> None:
    disk, random = filled(), Random(2)
    places = after_the_topology(disk)
    for _ in range(CASES):
        name, start, end, messages = random.choice(places)
        spoiled = disk.kill()
        spoiled.flip(name, random.randrange(start, end), 1 << random.randrange(8))
        bodies, spots = served(spoiled)
        assert (len(bodies), spots) == (MESSAGES - messages, 1)


def test_a_corrupt_checkpoint_leaves_the_one_before_it() -> None:
    whole = filled(tail_records=20)
    reader = LogRecords(whole.kill())
    roots = [reader.segments[place].name for place in reader.roots()]
    assert len(roots) > 2
    kinds = (RecordKind.STATE, RecordKind.STATE_TOPIC, RecordKind.STATE_END)
    parts = [r for r in reader.records(reader.roots()[0]) if r.kind in kinds]
    assert len(parts) == 3
    for at in [at for part in parts for at in range(part.start, part.end, 23)]:
        disk = whole.kill()
        disk.flip(roots[0], at, 4)
        node = open_node(disk)
        assert f"{node.log.start_results.roots[0]:020d}.0.log" == roots[1]
        assert len(survey(node, {})["t"].channels["kept"].arrivals) == MESSAGES


@each("delivered", [False, True])  # messages that the cursor comes by, or each by itself
def test_messages_that_become_corrupt_while_the_node_runs_are_given_up(delivered: bool) -> None:
    node = open_node(SimDisk())
    _, inbox = node.subscribe(ready=2000 if delivered else 0)
    node.publish(1000, body=body(1))
    node.turn()
    assert len(inbox.take()) == 1000 * delivered
    node = open_node(node.disk.kill())
    for name in node.disk.names():
        node.disk.put(name, node.disk.content(name)[:200])
    channel = node.broker.topics["t"].channels["a"]
    assert channel.depth == 1000
    node.eager = True
    _, inbox = node.subscribe(ready=2000)
    node.advance(SECOND)
    assert (inbox.take(), channel.depth, node.cache.failures) == ([], 0, 1000)
    node.broker.check()
    node.publish(body=b"new")
    node.turn()
    assert [one.body for one in inbox.take()] == [b"new"]


@each("late", [False, True])  # the channel is made before the messages, or after another one had them
def test_the_numbers_of_corrupt_messages_are_not_given_to_new_ones(late: bool) -> None:
    node = open_node(SimDisk())
    consumer, inbox = node.subscribe(channel="early", ready=10)
    topic = node.broker.topics["t"]
    node.turn(lambda: topic.publish([b"damaged one", b"damaged two"], 22))
    if late:
        node.turn(lambda: topic.channel("late") and None)
    else:
        consumer.finish(ids(inbox.take()))
    node.turn()
    node.log.close()
    spoil(node.disk, b"damaged two")
    node = open_node(node.disk)
    node.broker.check()
    node.publish(body=b"new")
    seen = survey(open_node(node.disk.kill()), {})["t"].channels
    assert all(b"new" in channel.arrivals for channel in seen.values())


def test_a_job_whose_publish_is_corrupt_can_be_finished_by_its_id() -> None:
    """The record of a later change has its row."""
    node = open_node(SimDisk())
    for text in (b"damaged job", b"intact job"):
        node.turn(lambda text=text: node.broker.tubes.put_into("q", [text], JobOptions(ttr=3, was_put=True)) and None)
    tube = node.broker.tubes.made("q")
    node.turn(lambda: tube.bury(next(iter(tube.jobs)), 0))
    node.log.close()
    spoil(node.disk, b"damaged job")
    node = open_node(node.disk)
    damaged, intact = node.broker.tubes.made("q").jobs
    node.turn(lambda: node.broker.tubes.made("q").finish(damaged))
    node.broker.check()
    sequence = node.log.store.find_sequence(node.broker.topics["q"].number)
    assert [sequence.is_pending(job.ordinal) for job in (damaged, intact)] == [False, True]
    assert [job.id for job in open_node(node.disk.kill()).broker.tubes.made("q").jobs] == [intact.id]


def spoil(disk: SimDisk, text: bytes) -> None:
    name = next(name for name in disk.segments() if text in disk.content(name))
    disk.put(name, disk.content(name).replace(text, b"#" * len(text)))


@pytest.mark.parametrize("how", ["finished ahead", "distributed later", "emptied"])
def test_new_messages_are_delivered_though_what_stood_before_them_is_damaged(how: str) -> None:
    """Records after the corrupt publish name its messages: a channel is done with some, or the topic is."""
    node = SimNode()
    topic = node.broker.topic("t")
    if how != "emptied":
        consumer, inbox = node.subscribe()
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
    node = SimNode(disk)
    node.broker.check()
    _, inbox = node.subscribe()
    node.eager = True
    new = [b"new %d" % number for number in range(5)]
    for one in new:
        node.publish(body=one)
    node.advance(SECOND)
    topic = node.broker.topics["t"]
    assert ([one.body for one in inbox.take()], topic.depth, topic.channels["a"].depth) == (new, 0, 0)
    node.broker.check()


def test_verify_reports_a_segment_that_ends_too_early_also_before_the_checkpoint() -> None:
    disk = filled(tail_records=20)
    reader = LogRecords(disk.kill())
    before = [segment for segment in reader.segments[: reader.roots()[0]] if not segment.header.generation]
    found = 0
    for segment in before:  # a start does not read them
        spoiled = disk.kill()
        stands = [record for record in LogRecords(disk.kill()).records() if record.segment == segment.base]
        last = max((record.end for record in stands if record.kind == RecordKind.PUBLISH), default=0)
        spoiled.put(segment.name, disk.content(segment.name)[: stands[0].end])  # after a whole record
        reported = [spot for spot in verify(spoiled, lambda done, total: None).damage if spot[0] == segment.name]
        assert reported == ([(segment.name, stands[0].end, last)] if last else [])
        spoiled.vanish(segment.name)
        assert verify(spoiled, lambda done, total: None).damage == ([(segment.name, HEADER_SIZE, last)] if last else [])
        found += len(reported)
    assert found > 2
    assert verify(disk.kill(), lambda done, total: None).damage == []


def test_verify_takes_no_removed_segment_for_damage() -> None:
    """Unneeded segments are removed from the middle of the log."""
    node = open_node(SimDisk(), tail_records=100)
    node.broker.topic("kept").channel("c")
    consumer, inbox = node.subscribe("busy")

    def work(publishing: Callable[[], object], turns: int) -> None:
        for _ in range(turns):
            publishing()
            for message in inbox.take():
                consumer.finish(message.id)
            for part in (node.syncer, node.cleaner, node.syncer):
                part.step()

    work(lambda: node.publish(1, "kept", b"k" * 100), 40)
    work(lambda: node.publish(1, "busy", b"b" * 100), 400)
    work(node.turn, 50)
    segments = LogRecords(node.disk.kill()).segments
    ends = [one.base + node.disk.size(one.name) - HEADER_SIZE for one in segments]
    assert any(end < following.base for end, following in zip(ends, segments[1:], strict=False))
    assert verify(node.disk.kill(), lambda done, total: None).whole

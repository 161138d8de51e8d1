"""Deletions in the tail of a log that concern its leader."""

from collections.abc import Callable

import pytest

from nsqd.core.message.deletion import Deletion, DeletionKind, LogDeletions
from nsqd.core.records import RecordKind
from nsqd.storage.log.frozen import FrozenDisk
from nsqd.storage.log.reader import LogRecords
from nsqd.storage.log.succession import Succession
from nsqd.storage.log.tail_deletions import TailDeletions
from shared.topic_config import Durability
from tests.effort import seeds
from tests.nsqd.storage.log.test_succession import SuccessionRun, log_content, successor
from tests.nsqd.storage.normal import NormalTopic
from tests.nsqd.storage.sim_disk import SimDisk
from tests.nsqd.storage.sim_node import SimNode

SEEDS = seeds(20)
DELETED, EMPTIED = DeletionKind.CHANNEL_DELETED, DeletionKind.CHANNEL_EMPTIED
TOPIC_DELETED, TOPIC_EMPTIED = DeletionKind.TOPIC_DELETED, DeletionKind.TOPIC_EMPTIED


def log_of(*tail: Callable[[SimNode], object], segment: int = 10_000) -> tuple[Succession, SimNode]:
    """Return the log that succeeds one whose owner has topic t with channels c and d and topic u, and the node."""
    run = SuccessionRun(1)
    run.node = node = SimNode(SimDisk(), Durability.ALWAYS, run.clock, run.random, None, segment)
    for channel in ("c", "d"):
        node.broker.topic("t").channel(channel)
    node.publish(5)
    node.publish(2, "u")
    common = node.log.writer.written.position
    for deed in tail:
        node.turn(lambda deed=deed: deed(node) and None)
    node.log.close()
    return successor(run, node.disk.kill(), common, SimDisk(run.random)), node


def deletions(*tail: Callable[[SimNode], object]) -> list[Deletion]:
    made, _ = log_of(*tail)
    return list(made.deletions.deletions) if made.deletions is not None else []


def numbers() -> tuple[int, int, int, int]:
    _, node = log_of()
    topics = node.broker.topics
    t = topics["t"]
    return t.number, t.channels["c"].number, t.channels["d"].number, topics["u"].number


def drop(node: SimNode, channel: str, topic: str = "t") -> None:
    node.broker.directory.delete_channel(node.broker.topics[topic], channel)


def test_the_point_is_where_the_owners_copy_ends() -> None:
    made, node = log_of(lambda node: drop(node, "c"))
    ((epoch, _),) = node.log.writer.all_epochs()
    t, c, *_ = numbers()
    assert made.deletions == LogDeletions(epoch, made.common, (Deletion(DELETED, t, c),))


def test_channels_and_topics_that_are_deleted_or_emptied() -> None:
    t, c, d, u = numbers()
    empty = lambda node: node.broker.topics["t"].channels["c"].empty()  # noqa: E731
    assert deletions(empty) == [Deletion(EMPTIED, t, c, 5)]
    assert deletions(empty, lambda node: drop(node, "c")) == [Deletion(DELETED, t, c)]
    assert deletions(lambda node: node.broker.topics["u"].empty()) == [Deletion(TOPIC_EMPTIED, u, 0, 0)]
    publish = lambda node: node.broker.topics["u"].publish([b"x"], 1)  # noqa: E731
    emptied_twice = [
        lambda node: node.broker.topics["u"].empty(), publish, lambda node: node.broker.topics["u"].empty(),
    ]  # fmt: skip
    assert deletions(*emptied_twice) == [Deletion(TOPIC_EMPTIED, u, 0, 0)]
    everything = [empty, lambda node: drop(node, "d"), lambda node: node.broker.delete_topic("t")]
    assert deletions(*everything) == [Deletion(TOPIC_DELETED, t)], "with all that it has"
    assert deletions(lambda node: (drop(node, "d"), node.broker.delete_topic("u"))) == [
        Deletion(TOPIC_DELETED, u),
        Deletion(DELETED, t, d),
    ]


def test_behind_a_part_that_is_gone_only_what_is_known_to_be_older_counts() -> None:
    """The record by which a channel was made may be gone: then it is unknown whether the leader has it."""
    run = SuccessionRun(1)
    run.node = node = SimNode(SimDisk(), Durability.ALWAYS, run.clock, run.random, None, 500)
    topic = node.broker.topic("t")
    for channel in ("c", "d"):
        topic.channel(channel)
    node.publish(2, "u")
    common = node.log.writer.written.position
    seen, bases = [topic.number, topic.channels["c"].number], list[int]()

    def deed(what: Callable[[], object]) -> None:
        node.turn(lambda: what() and None)
        bases.append(node.log.writer.base)

    fill = lambda: topic.publish([bytes(600)], 600)  # noqa: E731
    for what in (fill, lambda: topic.channel("e"), fill, lambda: drop(node, "e"), lambda: drop(node, "c")):
        deed(what)
    disk = node.disk.kill()
    whole = successor(run, disk, common, SimDisk(run.random)).deletions
    assert whole.deletions == (Deletion(DELETED, *seen),)
    records = list(LogRecords(FrozenDisk(disk)).records())
    made = next(one for one in records if one.kind == RecordKind.READER and one.content.endswith(b"e"))
    assert made.segment > common, "its segment is whole in the tail"
    for is_gone in (True, False):
        tail = TailDeletions(common)
        for record in records:
            if not (is_gone and record.segment == made.segment):
                tail.remember(record, record.segment == made.segment)
        assert tail.found() == (Deletion(DELETED, *seen),), "it is not known whether e is older"
    late = TailDeletions(common)
    for record in records:
        if record.segment >= made.segment:
            late.remember(record, is_rewritten=False)
    assert late.found() == (), "nothing is known of what is older"


def judged(seed: int) -> int:
    """Compare the deletions of a tail with the states before and after it. Returns their number."""
    run = SuccessionRun(seed)
    run.node.log.tidying.hold_for("test", 1 << 60)
    run.steps(20)
    owner, common = run.node.disk.kill(), run.node.log.writer.written.position
    run.steps(run.random.choice((3, 20, 60)))
    run.node.log.close()
    source = run.node.disk.kill()
    made = successor(run, source, common, SimDisk(run.random))
    before, after = log_content(owner)[0], log_content(source)[0]
    found = made.deletions.deletions if made.deletions is not None else ()
    topics = {one.topic for one in found if one.kind is TOPIC_DELETED}
    assert topics == before.keys() - after.keys()
    channels = {(one.topic, one.channel) for one in found if one.kind is DELETED}
    assert channels == {
        (number, reader)
        for number, topic in before.items()
        for reader in topic.readers
        if number in after and reader not in after[number].readers
    }
    for one in found:
        if one.kind in (EMPTIED, TOPIC_EMPTIED):
            judge_emptied(one, before[one.topic], after[one.topic])
    return len(found)


def judge_emptied(one: Deletion, before: NormalTopic, after: NormalTopic) -> None:
    if one.kind is TOPIC_EMPTIED:
        if one.ordinal < before.end:
            assert one.ordinal == before.distributed
            assert after.distributed >= before.end
        return
    channel = after.readers[one.channel]
    assert not [ordinal for ordinal in (*channel.ready, *channel.waiting) if ordinal < one.ordinal]
    assert one.channel in before.readers


@pytest.mark.long
def test_the_tail_of_any_history_deletes_what_its_states_say() -> None:
    assert sum(judged(seed) for seed in SEEDS) > len(SEEDS) // 4

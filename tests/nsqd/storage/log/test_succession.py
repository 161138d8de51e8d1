"""The log after a failover: with the leader's copy it has the unfinished messages of the old log, each once.

Random clients and operators use a node. At some point the leader's copy ends; the node continues, and its log is succeeded.
"""

import errno
from collections.abc import Callable
from dataclasses import replace
from random import Random

import pytest

from nsqd.core.channel.state import ChannelState
from nsqd.core.message.attributes import Attributes
from nsqd.core.message.ids import LEASE, SAFE_LEASES
from nsqd.core.retention.cursors import Cursor
from nsqd.core.sequence.finished import Finished
from nsqd.core.topic_state import TopicState
from nsqd.storage.log import succession
from nsqd.storage.log.disk import Disk
from nsqd.storage.log.files import SegmentFiles
from nsqd.storage.log.followers import Followers
from nsqd.storage.log.frozen import FrozenDisk
from nsqd.storage.log.identity import read_identity
from nsqd.storage.log.locations import read_frames
from nsqd.storage.log.opening import Simulated
from nsqd.storage.log.reader import LogRecords
from nsqd.storage.log.reading import LogReading
from nsqd.storage.log.records import HEADER_SIZE
from nsqd.storage.log.succession import Salvaged, Succession, TailRecords, holds_any, salvage, succeed
from nsqd.storage.sequence import Sequence
from shared.topic_config import Durability
from tests.cases import each
from tests.effort import seeds
from tests.nsqd.core.node import MS, SECOND
from tests.nsqd.storage.anybody import Anybody, any_limits
from tests.nsqd.storage.normal import NormalChannel, NormalTopic, NormalTube, normal
from tests.nsqd.storage.sim_disk import PowerCut, SimDisk
from tests.nsqd.storage.sim_node import Clock, SimNode, run_seeds
from tests.nsqd.storage.small_log import log_of

SEEDS = seeds(20)
LEAST = 1 << 40
WHOLE = 1 << 60  # ns: for as long as the test lasts
Messages = dict[int, dict[int, tuple[bytes, bytes]]]  # frame and attributes, by topic and ordinal


def log_content(disk: Disk) -> tuple[dict[int, NormalTopic], Messages, LogReading]:
    """Return the state of each topic of a log, and the messages that are unfinished, undistributed or retained."""
    frozen = FrozenDisk(disk)
    reading = LogReading(frozen)
    replay = reading.replay
    replay.conclude()
    files = SegmentFiles(reading.headers)
    topics, messages = {}, {}
    for number, state in replay.topics.items():
        sequence = replay.sequences[number]
        topics[number] = normal(state, sequence, 0, ephemeral=False)
        messages[number] = found = dict[int, tuple[bytes, bytes]]()
        for stored in (*sequence.live(), *sequence.all_retained()):
            frames = read_frames(frozen, files, number, stored, stored.locations)
            for index, (frame, packed) in enumerate(zip(frames.frames, frames.attributes(), strict=True)):
                ordinal, live = stored.first + index, stored.released < stored.count
                is_unfinished = live and (ordinal >= state.distributed or stored.references(index))
                if is_unfinished or (sequence.first is not None and ordinal >= sequence.first):
                    assert frame, f"message {ordinal} of topic {number} cannot be read"
                    found[ordinal] = frame, packed
    return topics, messages, reading


def behind(topic: NormalTopic, boundary: int) -> NormalTopic:
    """Return a topic's state without the messages before the boundary."""
    return replace(
        topic,
        distributed=max(topic.distributed, boundary),
        delayed={one: due for one, due in topic.delayed.items() if one >= boundary},
        queued={one: due for one, due in topic.queued.items() if one >= boundary},
        readers={number: _reader(reader, boundary) for number, reader in topic.readers.items()},
        cursors={name: replace(one, offset=max(one.offset, boundary)) for name, one in topic.cursors.items()},
        owed={one: count for one, count in topic.owed.items() if one >= boundary},
        pending={key: one for key, one in topic.pending.items() if one[0] >= boundary},
    )


def _reader(reader: NormalChannel | NormalTube, boundary: int) -> NormalChannel | NormalTube:
    if isinstance(reader, NormalChannel):
        return replace(
            reader,
            ready=[one for one in reader.ready if one >= boundary],
            waiting={one: of for one, of in reader.waiting.items() if one >= boundary},
            buried=[one for one in reader.buried if one[1].ordinal >= boundary],
        )
    jobs = {one: of for one, of in reader.jobs.items() if one >= boundary}
    return replace(reader, jobs=jobs, coming={one: of for one, of in reader.coming.items() if one >= boundary})


class SuccessionRun:
    """A node, the owner's copy of its log, and the log that succeeds it."""

    def __init__(self, seed: int) -> None:
        self.random = random = Random(seed)
        self.clock = Clock()
        limits = any_limits(random)
        self.node = SimNode(
            SimDisk(random), Durability.ALWAYS, self.clock, random, limits, random.choice((500, 2000, 10_000)),
            random.choice((2000, 1 << 30)), random.choice((10, 50, 1 << 30)), random.choice((1000, 20_000, 1 << 40)),
        )  # fmt: skip
        self.tidies = random.random() < 0.5
        if not self.tidies:
            self.node.log.tidying.hold_for("test", WHOLE)
        self.users = Anybody(self.node, random)
        self.node.log.writer.state_followers(Followers((1, 2), 2, 3))

    def steps(self, count: int) -> None:
        random, node = self.random, self.node
        for _ in range(count):
            node.turn(*self.users.commands())
            if random.random() < 0.3:
                node.advance(random.choice((1, 20, 300, 2500, 100_000)) * MS)
            for step in (node.syncer.step, node.cache.step, node.cleaner.step, node.spare.step):
                if random.random() < 0.7:
                    step()

    def run(self) -> None:
        random = self.random
        self.steps(random.choice((0, 3, 20, 60)))
        owner, common = self.node.disk.kill(), self.node.log.writer.written.position
        self.steps(random.choice((0, 3, 20, 60)))
        if random.random() < 0.3:
            self.node.log.close()
        self.has_messages = judge(self, owner, common, self.node.disk.kill())


def successor(run: SuccessionRun, source: SimDisk, common: int, target: SimDisk) -> Succession:
    """Make the new log some time later. The source does not change."""
    before = {name: source.content(name) for name in source.names()}
    clock = run.clock.after(300 * MS, 5 * SECOND, rebooted=False)
    try:
        return succeed(
            source, target, lambda epochs, end: common, LEAST, 0, Simulated(clock.clocks(), random=run.random.randbytes)
        )
    finally:
        assert before == {name: source.content(name) for name in source.names()}


def judge(run: SuccessionRun, owner: SimDisk, common: int, source: SimDisk) -> bool:
    """Assert that the owner's copy and the new log are the old log, without the changes of the tail to earlier messages."""
    target = SimDisk(run.random)
    made = successor(run, source, common, target)
    heads = log_content(owner)[0]
    topics, messages, reading = log_content(source)
    kept, others, after = log_content(target.crash(run.random) if run.random.random() < 0.5 else target.kill())
    is_doubtful = any(
        header.generation and header.base < common < min(end, reading.log_records.end)
        for header, end in zip(reading.headers, [*reading.bases[1:], 1 << 63], strict=False)
    )
    assert made.is_exact != is_doubtful
    assert not after.log_records.damage.spots
    assert not after.log_records.torn
    assert kept.keys() == topics.keys()
    for number, topic in topics.items():
        boundary = heads[number].end if number in heads else 0
        expected = behind(topic, boundary)
        found = {one: of for one, of in messages[number].items() if one >= boundary}
        if is_doubtful:
            assert found.items() <= others[number].items(), "a message of the tail is lost"
            continue
        assert others[number] == found, f"{topic.name} has other messages"
        # a boundary behind messages that are gone from the tail is as good
        gone = max(kept[number].distributed, boundary)
        assert not [one for one in found if topic.distributed <= one < gone], "undistributed messages are lost"
        assert {name: (one.owner, one.hold, one.hold_bytes) for name, one in kept[number].cursors.items()} == {
            name: (one.owner, one.hold, one.hold_bytes) for name, one in expected.cursors.items()
        }
        assert all(one.offset >= expected.cursors[name].offset for name, one in kept[number].cursors.items())
        assert replace(kept[number], cursors={}, distributed=0) == replace(expected, cursors={}, distributed=0)
    judge_identity(made, source, target, reading, common)
    judge_salvaged(run, source, common, target)
    judge_start(run, target)
    return made.messages > 0


def judge_identity(made: Succession, source: SimDisk, target: SimDisk, reading: LogReading, common: int) -> None:
    """Assert that the new log has an id of its own, names the old one, and issues no id that the old one may have issued."""
    old, new = read_identity(source), read_identity(target)
    assert (new.node, new.log_id) == (old.node, made.log_id)
    assert new.log_id != old.log_id == made.parent.log_id
    assert made.common == common
    assert made.parent.ends == {number: topic.end for number, topic in reading.replay.topics.items()}
    assert made.first_id == max(LEAST, reading.replay.lease + SAFE_LEASES * LEASE)
    after = LogReading(FrozenDisk(target))
    assert after.start_results.lease == made.first_id
    assert list(after.replay.parents.values())[-1] == made.parent
    assert after.replay.followers == reading.replay.followers._replace(numbers=())
    assert after.highest_epoch == reading.highest_epoch + 1


ANOTHER = 9  # number of the node that salvages a tail


def salvaged(run: SuccessionRun, source: SimDisk, common: int, target: SimDisk) -> Salvaged | None:
    """Make the log of another node's copy, at the time at which `successor` makes one."""
    clock = run.clock.after(300 * MS, 5 * SECOND, rebooted=False)
    parts = Simulated(clock.clocks(), random=run.random.randbytes)
    return salvage(source, target, common, ANOTHER, simulated=parts)


def judge_salvaged(run: SuccessionRun, source: SimDisk, common: int, succeeding: SimDisk) -> None:
    """Assert that another node makes the same log of a copy as the node itself, without topics that have no message left."""
    target = SimDisk(run.random)
    made = salvaged(run, source, common, target)
    expected, wanted, reading = log_content(succeeding)
    left = {number for number, sequence in reading.replay.sequences.items() if holds_any(sequence)}
    if made is None:
        assert not left
        assert not target.names()
        return
    topics, messages, after = log_content(target.crash(run.random))
    assert topics == {number: expected[number] for number in left}
    assert messages == {number: wanted[number] for number in left}
    assert list(after.replay.parents) == list(reading.replay.parents)
    assert after.replay.followers == reading.replay.followers
    latest = max(epoch for epoch, _ in after.replay.epochs)
    assert (latest.node, latest.number) == (ANOTHER, reading.highest_epoch)
    assert (after.identity.log_id, after.identity.node) == (made.log_id, made.node)


def judge_start(run: SuccessionRun, target: SimDisk) -> None:
    clock = run.clock.after(SECOND, 5 * SECOND, rebooted=False)
    node = SimNode(target.kill(), Durability.ALWAYS, clock, run.random)
    node.broker.check()
    node.publish(3, "t")
    node.broker.check()
    node.log.close()
    SimNode(node.disk.kill(), Durability.ALWAYS, clock, run.random).broker.check()


@pytest.mark.long
def test_what_the_owner_has_and_the_new_log_are_what_the_old_log_was() -> None:
    assert sum(run.has_messages for run in run_seeds(SuccessionRun, SEEDS)) > len(SEEDS) // 4


CURSOR = Cursor(2, "owner", 60 * SECOND, 1000)


def small_log() -> tuple[SuccessionRun, SimDisk, int]:
    """A node whose owner has five of eight messages of a channel; of these five the tail finishes two and returns one."""
    run = SuccessionRun(1)
    run.node = node = SimNode(SimDisk(), Durability.ALWAYS, run.clock, run.random)
    consumer, inbox = node.subscribe(channel="c", ready=0, timeout=300 * SECOND)
    node.publish(5)
    common = node.log.writer.written.position
    consumer.set_ready(4)
    node.publish(3)
    first, second, third, _ = (one.id for one in inbox.take())
    topic = node.broker.topic("t")
    node.turn(
        lambda: consumer.finish(first + second) and None,
        lambda: consumer.requeue(third, 0, node.clock.now) and None,
        lambda: topic.set_cursor("reader", CURSOR),
    )
    node.log.close()
    return run, node.disk.kill(), common


def test_a_kill_at_any_step_leaves_the_old_log_as_it_was_and_the_next_try_succeeds() -> None:
    run, disk, common = small_log()
    steps = 0
    while True:
        target = SimDisk()
        target.cut_in = steps
        try:
            successor(run, disk, common, target)
            break
        except PowerCut:
            steps += 1
    assert steps > 10
    judge(run, disk_at(disk, common), common, disk)


def disk_at(disk: SimDisk, common: int) -> SimDisk:
    cut = SimDisk()
    for name in disk.names():
        content = disk.content(name)
        cut.put(name, content[: HEADER_SIZE + common] if name.endswith(".0.log") and "0" * 20 in name else content)
    for name in disk.names()[1:]:
        if name.endswith(".log"):
            cut.remove(name)
    return cut


@each("operation", ["append", "sync", "create", "sync_directory"])
def test_a_disk_that_fails_makes_no_log_that_lacks_anything(operation: str) -> None:
    run, disk, common = small_log()
    target = SimDisk()
    successor(run, disk, common, target)
    expected, failed = log_content(target)[:2], 0
    for number in range(1, target.operations[operation] + 1):
        spoiled = SimDisk()
        spoiled.fail(operation, number, errno.EIO)
        try:
            successor(run, disk, common, spoiled)
        except OSError:
            failed += 1
        else:
            assert log_content(spoiled.crash(Random(number)))[:2] == expected
    assert failed


def test_nothing_is_made_of_a_copy_whose_tail_has_no_unfinished_message() -> None:
    run, disk, common = small_log()
    target = SimDisk()
    assert salvaged(run, disk, 1 << 40, target) is None
    assert not target.names()
    made = salvaged(run, disk, common, target)
    assert (made.messages, made.dropped["FINISH"]) == (3, 2)


_tail_of = succession.tail_of


def _reset_cursors(state: TopicState, boundary: int) -> None:
    for reader in state.readers.values():
        if isinstance(reader, ChannelState) and boundary < reader.cursor:
            reader.passed, reader.cursor = Finished(boundary), boundary


def _number_readers(state: TopicState) -> None:
    for reader in state.readers.values():
        reader.name = str(reader.number)


# a bug in the state of a topic, and where its tail begins
SPOILED: dict[str, Callable[[TopicState, Sequence, int], object]] = {
    "without channels": lambda state, sequence, boundary: state.readers.clear(),
    "numbers for names": lambda state, sequence, boundary: _number_readers(state),
    "finished again": lambda state, sequence, boundary: _reset_cursors(state, boundary),
    "forgotten keys": lambda state, sequence, boundary: state.publishers.keys.clear(),
    "forgotten producers": lambda state, sequence, boundary: state.publishers.producers.clear(),
    "not retained": lambda state, sequence, boundary: sequence.retain(None),
    "without cursors": lambda state, sequence, boundary: state.cursors.clear(),
}
SHIFTED = {"one left out": (1, 0), "one too many": (-1, 0), "segment lost": (0, 1)}


@pytest.mark.long
@pytest.mark.parametrize("bug", [*SPOILED, *SHIFTED])
def test_each_planted_bug_is_found(bug: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def tail_of(state: TopicState, sequence: Sequence, boundary: int, since: int) -> tuple[TopicState, Sequence]:
        SPOILED.get(bug, lambda *_: None)(state, sequence, boundary)
        by, later = SHIFTED.get(bug, (0, 0))
        return _tail_of(state, sequence, max(0, min(state.end, boundary + by)), since + later)

    monkeypatch.setattr(succession, "tail_of", tail_of)
    with pytest.raises(AssertionError):
        list(run_seeds(SuccessionRun, range(300)))


def test_a_tail_is_exact_unless_a_rewritten_segment_begins_before_it() -> None:
    disk, _ = log_of(bytes(40))
    segments = LogRecords(disk).segments
    rewritten = [replace(one, header=replace(one.header, generation=1)) for one in segments]
    base = segments[0].base
    found = [
        TailRecords(disk, *given).is_exact for given in ((rewritten, base), (rewritten, base + 1), (segments, base + 1))
    ]
    assert found == [True, False, True]


@pytest.mark.parametrize("is_copied", [False, True])
def test_the_new_log_has_the_members_and_follow_ups_of_the_tail_alone(is_copied: bool) -> None:
    def publish(body: str, **headers: str) -> None:
        attributes = Attributes(tuple(headers.items()))
        node.broker.topic("t").publish_with([body.encode()], attributes)
        node.turn()

    node, common = SimNode(), 0
    for number in (1, 2):
        publish(f"member {number}", batch="b")
        publish(f"follow-up {number}", after="b")
        common = node.log.writer.written.position if number == 1 or is_copied else common
    target = SimDisk()
    clock = node.clock.after(SECOND, 5 * SECOND, rebooted=False)
    succeed(node.disk.kill(), target, lambda epochs, end: common, LEAST, 0, Simulated(clock.clocks()))
    batches = SimNode(target, clock=clock).broker.context.batches
    found = [(one.count, [follow_up.body for follow_up in one.follow_ups.values()]) for one in batches.known.values()]
    assert found == ([] if is_copied else [(1, [b"follow-up 2"])])

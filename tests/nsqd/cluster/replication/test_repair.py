"""Bytes that a read finds corrupt come from another node, while the log is in use."""

from collections.abc import Iterator
from contextlib import closing
from functools import partial
from random import Random
from threading import Event

import pytest

from nsqd.cluster.replication import repair as mending
from nsqd.cluster.replication.offers import Fetched, Offer, TransferError
from nsqd.cluster.replication.repair import TRY_AGAIN, LogRepair, _end_of, replace_damage
from nsqd.core.message.frame import HEADER_SIZE as FRAME_HEADER
from nsqd.storage.log.copying import LogSource, whole_records
from nsqd.storage.log.epochs import NO_EPOCH
from nsqd.storage.log.files import segment_name
from nsqd.storage.log.followers import Followers
from nsqd.storage.log.reading import LogReading
from nsqd.storage.log.records import HEADER_SIZE
from tests.nsqd.storage.log.test_damage import open_node
from tests.nsqd.storage.log.test_tidying import clean_up
from tests.nsqd.storage.sim_disk import SimDisk
from tests.nsqd.storage.sim_node import SimNode

FETCHED = 200  # bytes, so that a message is in several pieces, and several are in one
END = 1 << 40  # every position is below this
BODIES = [b"body %d " % number * 20 for number in range(6)]


class OneReplica:
    """Another node that has the log as it was on a disk. In place of nsqd.cluster.replication.asking.NodeReplicas."""

    def __init__(self, disk: SimDisk, end: int) -> None:
        self.disk = disk
        self.end = end
        self.asked = 0
        self.is_reachable = True

    is_incomplete = False

    def leases(self) -> list[int]:
        return []

    def ask(self, log_id: bytes, followers: Followers) -> list[Offer]:
        self.asked += 1
        return [Offer("other:4152", self.end, ())]

    def fetch(self, offer: Offer, log_id: bytes, start: int) -> Iterator[Fetched]:
        if not self.is_reachable:
            raise TransferError("no answer")
        names = [name for name in self.disk.names() if name.endswith(".log")]
        bases = [int(name[:20]) for name in names]
        for name, base, following in zip(names, bases, [*bases[1:], END], strict=True):
            if following <= start:
                continue
            content = self.disk.content(name)
            at = 0 if start <= base else HEADER_SIZE + start - base
            for offset in range(at, len(content), FETCHED):
                yield Fetched(name, offset, content[offset : offset + FETCHED])


class World:
    """A node whose log is damaged under it, and another one with its log."""

    def __init__(self) -> None:
        self.node: SimNode = open_node(SimDisk(Random(1)))
        topic = self.node.broker.topic("t")
        topic.channel("c")
        for body in BODIES:
            self.node.turn(partial(topic.publish, [body], len(body)))
        self.node.syncer.step()
        log = self.node.log
        self.replicas, self.epoch_at = 1, log.writer.epochs.at
        self.other = OneReplica(self.node.disk.kill(), log.writer.written.position)
        clock = self.node.clock
        log.writer.files.repair = LogRepair(
            self.node.disk,
            log.identity.log_id,
            lambda: self.other,
            lambda: clock.now,
            lambda base: self.epoch_at(base),
            self.may_be_more,
        )

    def may_be_more(self, offered: int) -> bool:
        return offered < self.replicas

    def damage(self) -> tuple[str, bytes]:
        """Damage a message in the file. Returns the file's name and its earlier bytes."""
        disk = self.node.disk
        name = segment_name(self.node.log.tidying.segments[0], 0)
        before = disk.content(name)
        at = before.index(BODIES[1]) + FRAME_HEADER
        disk.put(name, before[:at] + b"?" + before[at + 1 :])
        return name, before

    def grow(self) -> SimDisk:
        """Let the log have more segments, which the other node has, too. Returns the disk."""
        topic = self.node.broker.topics["t"]
        for _ in range(20):
            self.node.turn(partial(topic.publish, [BODIES[1]], len(BODIES[1])))
        self.other = OneReplica(self.node.disk.kill(), self.node.log.writer.written.position)
        return self.node.disk.kill()

    def keep_first(self) -> list[int]:
        """Finish all messages but the first, and clean up. Returns the bases of the segments."""
        consumer, inbox = self.node.subscribe("t", "c")
        self.node.turn()
        for message in inbox.take()[1:]:
            consumer.finish(message.id)
        return clean_up(self.node)

    def replace_damage(self, disk: SimDisk) -> tuple[int, int]:
        """Replace the damage of a disk as a start does."""
        common = dict.fromkeys(self.other.ask(b"", Followers()), END)
        return replace_damage(disk, LogReading(disk, END).log_records, self.other, common)

    def read(self) -> list[bytes]:
        (topic,) = self.node.store.logged()
        plan = self.node.log.history().plan(topic, 0, len(BODIES), 1 << 20)
        batches, _ = plan.read()
        packed = b"".join(batch.frames for batch in batches)
        return [body for body in BODIES if body in packed]


@pytest.fixture
def world() -> World:
    return World()


def test_what_a_reader_finds_damaged_is_fetched_and_replaced(world: World) -> None:
    name, before = world.damage()
    assert world.read() == BODIES
    assert world.node.disk.content(name) == before
    assert world.other.asked == 1
    assert world.read() == BODIES
    assert world.other.asked == 1  # it is whole now


@pytest.mark.parametrize("is_replica_rewritten", [False, True])
def test_of_a_segment_that_was_rewritten_messages_are_read_from_a_replica(
    world: World, is_replica_rewritten: bool
) -> None:
    """Its file stays as it is: the replica has the segment as it was before, or as it was meant to be."""
    whole = world.grow()
    world.keep_first()
    name = segment_name(0, 1)
    disk, log = world.node.disk, world.node.log
    world.other = OneReplica(disk.kill() if is_replica_rewritten else whole, log.writer.written.position)
    damaged = disk.content(name).replace(BODIES[0], b"?" * len(BODIES[0]))
    disk.put(name, damaged)
    world.other.is_reachable = False
    assert world.read() == []
    assert log.writer.files.repair.is_awaited(log.writer.files.at(0), place_of_the_topic(world))
    world.other.is_reachable = True
    world.node.advance(TRY_AGAIN)
    assert BODIES[0] in world.read()
    assert disk.content(name) == damaged
    world.epoch_at = lambda base: NO_EPOCH
    assert (BODIES[0] in world.read()) is is_replica_rewritten, (
        "the log has other bytes there than a replica of that epoch"
    )


def test_without_an_answer_the_rest_is_read_and_the_others_are_asked_again_later(world: World) -> None:
    world.damage()
    world.other.is_reachable = False
    for _ in range(3):
        assert world.read() == [body for body in BODIES if body != BODIES[1]]
    assert world.other.asked == 1
    world.other.is_reachable = True
    world.node.advance(TRY_AGAIN)
    assert world.read() == BODIES


def test_what_another_node_has_otherwise_is_not_believed(world: World) -> None:
    name, before = world.damage()
    damaged = world.node.disk.content(name)
    world.other.disk.put(name, before.replace(BODIES[1], b"x" * len(BODIES[1])))
    assert world.read() == [body for body in BODIES if body != BODIES[1]]
    assert world.node.disk.content(name) == damaged


def test_a_replica_that_ends_earlier_is_not_asked_for_it(world: World) -> None:
    world.damage()
    world.other.end = 0
    assert BODIES[1] not in world.read()


def test_damage_from_the_first_record_of_a_segment_on_is_repaired(world: World) -> None:
    name = segment_name(world.node.log.tidying.segments[0], 0)
    before = world.node.disk.content(name)
    first = next(world.other.fetch(Offer("other:4152", 1, ()), b"", 0))
    assert (first.segment, first.offset) == (name, 0), "it has the header"
    file = world.node.log.writer.files.at(0)
    repair = world.node.log.writer.files.repair
    world.node.disk.put(name, before[:HEADER_SIZE] + bytes(len(before) - HEADER_SIZE))
    assert repair(0, file, HEADER_SIZE, len(before))
    assert world.node.disk.content(name) == before


def test_no_read_waits_for_long_for_nodes_that_do_not_reply(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mending, "WITHIN", 0.01)
    answers, asked = Event(), []

    def ask(log_id: bytes, followers: Followers) -> list[Offer]:
        asked.append(log_id)
        assert answers.wait(60)
        return []

    monkeypatch.setattr(world.other, "ask", ask)
    world.damage()
    for _ in range(3):
        assert BODIES[1] not in world.read()
    assert len(asked) == 1
    repair, file = world.node.log.writer.files.repair, world.node.log.writer.files.at(0)
    assert not repair(0, file, HEADER_SIZE, place_of_the_topic(world))
    assert repair.is_awaited(file, HEADER_SIZE)  # no node was asked for these bytes yet
    answers.set()


def test_damage_is_awaited_while_a_replica_that_may_have_the_bytes_cannot_be_asked(world: World) -> None:
    log = world.node.log
    repair, file = log.writer.files.repair, log.writer.files.at(0)
    start = place_of_the_topic(world)
    world.damage()
    world.other.is_reachable = False
    assert BODIES[1] not in world.read()
    assert repair.is_awaited(file, start)
    world.node.advance(mending.PATIENCE)
    assert not repair.is_awaited(file, start)
    world.other.is_reachable = True
    assert world.read() == BODIES
    assert not repair.is_awaited(file, start)


def test_damage_is_not_awaited_when_all_replicas_lack_the_bytes_too(world: World) -> None:
    log = world.node.log
    name, before = world.damage()
    start = place_of_the_topic(world)
    world.other.disk.put(name, before.replace(BODIES[1], b"x" * len(BODIES[1])))
    assert BODIES[1] not in world.read()
    repair, file = log.writer.files.repair, log.writer.files.at(0)
    assert not repair.is_awaited(file, start)
    world.replicas = 2
    world.node.advance(TRY_AGAIN)
    world.read()
    assert repair.is_awaited(file, start)  # the other replica was not offered


def test_what_a_follower_is_sent_is_whole_or_waits(world: World) -> None:
    """A follower with corrupt bytes would count, and a replica that has them whole be removed for it."""
    log = world.node.log
    source, file = LogSource(log.disk, log.writer, log.syncer, log.tidying), log.writer.files.at(0)
    name, before = world.damage()
    end = source.file_end(0, source.bases()[1])

    def read() -> tuple[bytes, int]:
        return source.read_repaired(0, file, HEADER_SIZE, end, end)

    world.other.is_reachable = False
    with pytest.raises(OSError, match="cannot be reached"):
        read()
    world.node.advance(mending.PATIENCE)
    assert read()[1] > 0  # as it is
    world.other.is_reachable = True
    world.node.advance(TRY_AGAIN)
    assert read() == (before[HEADER_SIZE:end], 0)
    assert world.node.disk.content(name) == before


@pytest.mark.parametrize("is_whole", [False, True])
def test_a_follower_is_sent_the_rest_of_a_file_that_was_cut(world: World, is_whole: bool) -> None:
    """`is_whole`: the file was cut between two records."""
    log = world.node.log
    source, file = LogSource(log.disk, log.writer, log.syncer, log.tidying), log.writer.files.at(0)
    following, name = source.bases()[1], segment_name(0, 0)
    before, end = world.node.disk.content(name), source.file_end(0, following)
    cut = HEADER_SIZE + whole_records(before[HEADER_SIZE : end - 50], file.seed, HEADER_SIZE) + (0 if is_whole else 5)
    with closing(world.node.disk.open(name)) as opened:
        opened.truncate(cut)
    assert source.file_end(0, following) == end
    world.other.is_reachable = False
    with pytest.raises(OSError, match="cannot be reached"):
        source.read_repaired(0, file, HEADER_SIZE, end, end)
    world.other.is_reachable = True
    world.node.advance(TRY_AGAIN)
    assert source.read_repaired(0, file, HEADER_SIZE, end, end) == (before[HEADER_SIZE:end], 0)
    assert world.node.disk.content(name)[:end] == before[:end]


def test_a_follower_is_sent_what_is_left_of_a_file_that_was_cut_if_no_replica_has_more(world: World) -> None:
    log = world.node.log
    source, file = LogSource(log.disk, log.writer, log.syncer, log.tidying), log.writer.files.at(0)
    following, name = source.bases()[1], segment_name(0, 0)
    before, end = world.node.disk.content(name), source.file_end(0, following)
    cut = HEADER_SIZE + whole_records(before[HEADER_SIZE : end - 50], file.seed, HEADER_SIZE)
    for disk in (world.node.disk, world.other.disk):
        with closing(disk.open(name)) as opened:
            opened.truncate(cut + 5)
    assert source.read_repaired(0, file, HEADER_SIZE, end, end) == (before[HEADER_SIZE:cut], end - cut)
    assert source.read_repaired(0, file, cut, end, end) == (b"", end - cut)
    source.note_cut(0, cut)
    assert source.file_end(0, following) == cut


def test_a_start_fetches_a_segment_that_is_missing(world: World) -> None:
    """Otherwise the messages in it were lost, and the followers would remove the segment, too."""
    disk = world.grow()
    _, name, *later = [name for name in disk.names() if name.endswith(".0.log")]
    assert later
    content = disk.content(name)
    disk.vanish(name)
    assert world.replace_damage(disk) == (1, 0)
    restored = disk.content(name)
    assert restored == content[: len(restored)]
    assert not LogReading(disk, END).log_records.damage.spots


@pytest.mark.parametrize("is_rewritten", [False, True])
def test_a_start_fetches_an_old_segment_in_which_only_live_messages_count(world: World, is_rewritten: bool) -> None:
    """Replay begins after it, so the gap does not show, and messages were lost that followers have, who would remove them."""
    world.grow()
    bases = world.keep_first() if is_rewritten else clean_up(world.node)
    world.other = OneReplica(world.node.disk.kill(), world.node.log.writer.written.position)
    disk = world.node.disk.kill()
    name = disk.segments()[0]
    assert name == segment_name(bases[0], 1 if is_rewritten else 0)
    content = disk.content(name)
    disk.vanish(name)
    node = open_node(disk.kill())
    assert node.log.figures().damage
    assert node.log.backup().begin()
    assert node.log.held_ids(1)
    assert bases[0] in LogSource(node.disk, node.log.writer, node.syncer, node.log.tidying).bases(), "followers keep it"
    assert world.replace_damage(disk) == (1, 0)
    assert disk.content(name) == content
    assert not LogReading(disk, END).log_records.damage.spots


def test_a_start_fetches_the_beginning_of_a_log(world: World) -> None:
    disk = world.grow()
    first, second, *_ = disk.segments()
    contents = [disk.content(first), disk.content(second)]
    disk.vanish(first)
    disk.vanish(second)
    assert world.replace_damage(disk) == (1, 0)
    assert [disk.content(first), disk.content(second)] == contents
    assert not LogReading(disk, END).log_records.damage.spots


@pytest.mark.parametrize("is_next_lost", [False, True])
def test_a_start_fetches_the_end_of_a_segment_that_is_cut_anywhere(world: World, is_next_lost: bool) -> None:
    """The first part of a record is there: it is replaced together with the missing bytes."""
    whole = world.grow()
    _, name, following, *later = [name for name in whole.names() if name.endswith(".0.log")]
    assert later
    size = int(following[:20]) - int(name[:20]) + HEADER_SIZE
    for kept in range(HEADER_SIZE + 1, size, 7):
        disk = whole.kill()
        disk.put(name, whole.content(name)[:kept])
        if is_next_lost:
            disk.vanish(following)
        assert world.replace_damage(disk) == (1, 0)
        assert disk.content(name)[:size] == whole.content(name)[:size]
        assert not LogReading(disk, END).log_records.damage.spots


def test_a_read_fetches_the_end_of_a_segment_that_was_cut_meanwhile(world: World) -> None:
    log = world.node.log
    repair, file = log.writer.files.repair, log.writer.files.at(0)
    name = segment_name(0, 0)
    whole = world.node.disk.content(name)
    for kept in range(HEADER_SIZE, len(whole), 11):
        world.node.disk.put(name, whole[:kept])
        assert repair(0, file, HEADER_SIZE, len(whole))
        assert world.node.disk.content(name) == whole
    world.node.disk.vanish(name)
    assert repair(0, file, place_of_the_topic(world), len(whole))
    assert world.node.disk.content(name) == whole


@pytest.mark.parametrize("wrong", [b"", b"no segment", bytes(200)])
def test_what_is_no_segment_is_not_restored(world: World, wrong: bytes) -> None:
    assert _end_of(wrong, world.node.log.identity.log_id, segment_name(0, 0)) == 0


def place_of_the_topic(world: World) -> int:
    """Return the offset at which the messages of the topic begin in the first segment."""
    (topic,) = world.node.store.logged()
    (location, *_) = world.node.log.history().plan(topic, 0, len(BODIES), 1 << 20).locations
    return location[2]

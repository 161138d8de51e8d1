"""The cluster's simulator finds bugs: each of these is planted, and some of MOST_SEEDS runs must fail."""

from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from random import Random
from typing import Any

import pytest

from nsqd.cluster.membership.leaders import Leaders, Vote
from nsqd.cluster.ownership.candidate import Candidate
from nsqd.cluster.ownership.cases import Cases, Quorum
from nsqd.cluster.ownership.elections import Elections
from nsqd.cluster.ownership.leaving import Leaving
from nsqd.cluster.ownership.voter import Voter
from nsqd.cluster.promotion import closing, deleting, opening
from nsqd.cluster.promotion.diverged import arbiter
from nsqd.cluster.promotion.diverged.note import CopyExtent
from nsqd.cluster.promotion.promotions import Promotions
from nsqd.cluster.replication import common_point, replicas, sending, stream
from nsqd.cluster.replication.manifest import Manifest
from nsqd.cluster.replication.replica import Replica
from nsqd.cluster.replication.replica_to_log import name_files
from nsqd.cluster.replication.replicas import Kept, Replicas
from nsqd.cluster.wire.link import Link
from nsqd.core.broker import Broker
from nsqd.core.message import ids
from nsqd.core.message.deletion import Deletion
from nsqd.core.message.epoch import Epoch
from nsqd.core.records import GROUP, RecordKind
from nsqd.core.sequence.mark import Promise
from nsqd.core.shards import Attachment
from nsqd.core.topic import Topic
from nsqd.core.topic_state import TopicState
from nsqd.storage.log import checkpoint, reading, succession
from nsqd.storage.log.copies import Copies
from nsqd.storage.log.disk import Disk
from nsqd.storage.log.opening import OpenLog
from nsqd.storage.log.reader import LogRecords
from nsqd.storage.log.records import HEADER_SIZE, PREFIX_SIZE
from nsqd.storage.log.store import LogStore
from nsqd.storage.log.succession import Salvaged
from nsqd.storage.log.writer import Writer
from nsqd.storage.sequence import Sequence
from tests.nsqd.cluster.ownership.test_election_runs import a_witness_in_contact_with_the_leader_is_not_believed
from tests.nsqd.cluster.planted import Bug, Patch, instead_of, setting
from tests.nsqd.storage.sim_disk import PowerCut
from tests.simulation import cluster, machine, promoted
from tests.simulation.cluster import ClusterRun
from tests.simulation.cluster_node import ClusterNode
from tests.simulation.diverged import SimDiverged
from tests.simulation.history import History
from tests.simulation.machine import SimDirectory
from tests.simulation.test_cluster_histories import a_partition_with_a_witness, the_old_log_that_is_closed

pytestmark = pytest.mark.long
MOST_SEEDS = 300
CHANCE = Random(1)


@instead_of(Replica, "append")
def hole_in_a_replica(append: Any, self: Replica, base: int, at: int, data: memoryview) -> None:
    append(self, base, at, memoryview(bytes(len(data))) if CHANCE.random() < 0.001 else data)


@instead_of(Replica, "append")
def durable_is_reported_without_a_sync(append: Any, self: Replica, base: int, at: int, data: memoryview) -> None:
    append(self, base, at, data)
    self.durable = self.end


@instead_of(Replicas, "_send_copied")
def durable_is_reported_before_the_switch(send_copied: Any, self: Replicas, kept: Kept, replica: Replica) -> None:
    send_copied(self, kept, replica)
    is_resyncing = replica.is_resyncing and replica._resync_files and replica._file is not None
    if kept.is_resumed and is_resyncing and kept.link is not None:
        position = replica._resync_files[-1].base + replica._size - HEADER_SIZE
        kept.reported = position, position
        kept.link.send(stream.pack_copied(position, position))


@instead_of(Copies, "_move")
def gate_off_by_one(move: Any, self: Copies, n: int, is_durable: bool, marks: Any) -> None:
    move(self, n - 1 if n > 2 else n, is_durable, marks)


@instead_of(Replica, "append")
def marks_of_the_leader_side_are_believed(append: Any, self: Replica, base: int, at: int, data: memoryview) -> None:
    append(self, base, at, data)
    content, place = bytes(data), 0
    while len(content) - place > PREFIX_SIZE + GROUP.size and not self.is_resyncing:
        if content[place + PREFIX_SIZE] == RecordKind.GROUP:
            mark = GROUP.unpack_from(content, place + PREFIX_SIZE + 1)[0]
            self.durable = max(self.durable, min(self.end, mark))
        place += PREFIX_SIZE + int.from_bytes(content[place : place + 4])


def by_number(own: common_point.Epochs, own_end: int, other: common_point.Epochs, other_end: int) -> int:
    numbers = [[(epoch[:4], start) for epoch, start in table] for table in (own, other)]
    return common_point.common_end(numbers[0], own_end, numbers[1], other_end)


@instead_of(Replicas, "closed")
def a_replica_is_removed_by_its_own_view(closed: Any, self: Replicas, link: Link) -> None:
    mine = [kept for kept in self.kept.values() if kept.link is link and kept.replica is not None]
    closed(self, link)
    for kept in mine:
        self._drop(kept, [(epoch.pack(), start) for epoch, start in kept.replica.manifest.epochs])


@instead_of(LogStore, "commit")
def replies_leave_before_their_group(commit: Any, self: LogStore) -> list[Promise]:
    before = self.written.position
    return [replace(vote, position=before) for vote in commit(self)]


@instead_of(Replica, "keep")
def segments_go_before_the_replica_is_durable(keep: Any, self: Replica, position: int, bases: list[int]) -> None:
    keep(self, min(position, self.durable), bases)


@instead_of(Leaders, "learn")
def the_lower_epoch_wins(learn: Any, self: Leaders, log_id: bytes, epoch: Epoch) -> bool:
    known = self.epochs.get(log_id)
    if known is None or known.node == epoch.node:
        return learn(self, log_id, epoch)
    if known > epoch:
        self.epochs[log_id] = epoch
    return known > epoch


@instead_of(ClusterNode, "facts")
def a_promise_is_not_durable(facts: Any, self: ClusterNode) -> Any:
    return replace(facts(self), votes=())


@instead_of(succession, "tail_of")
def a_new_log_lacks_the_channels(tail_of: Any, *given: Any) -> tuple[TopicState, Sequence]:
    kept, messages = tail_of(*given)
    kept.readers.clear()
    return kept, messages


@instead_of(promoted, "open_log")
def an_epoch_is_announced_before_it_is_durable(open_log: Any, *given: Any, **named: Any) -> OpenLog:
    found = open_log(*given, **named)
    found.writer.sync = lambda: True
    return found


@instead_of(Leaders, "learn")
def leaders_of_one_number_are_equal(learn: Any, self: Leaders, log_id: bytes, epoch: Epoch) -> bool:
    known = self.epochs.get(log_id)
    return (known is None or known.number != epoch.number) and learn(self, log_id, epoch)


@instead_of(Leaders, "vote")
def a_promise_fences(vote: Any, self: Leaders, log_id: bytes, voted: Vote) -> None:
    vote(self, log_id, voted)
    self.learn(log_id, Epoch(voted.number, voted.node, bytes(8)))


@instead_of(opening, "note_won")
def files_are_renamed_while_they_are_a_replica(note_won: Any, disk: Disk, manifest: Manifest, number: int) -> None:
    note_won(disk, manifest, number)
    name_files(disk)


@instead_of(Attachment, "_attach_topic")
def shards_are_found_by_number(attach: Any, self: Attachment, promoted_topic: Topic) -> Topic:
    name = promoted_topic.name
    promoted_topic.name = next(
        (one.name for one in self._home.topics.values() if one.number == promoted_topic.number), name
    )
    try:
        return attach(self, promoted_topic)
    finally:
        promoted_topic.name = name


@instead_of(deleting, "delete_from_promoted")
def deletions_are_of_names(right: Any, home: Broker, promoted: Broker, deletions: Iterable[Deletion]) -> list[str]:
    """A deletion from a log applies to all logs of its leader that have the same name."""
    for one in deletions:
        topic = promoted.directory.by_number.get(one.topic)
        reader = topic.readers.get(one.channel) if topic is not None else None
        own_topic = home.topics.get(topic.name) if topic is not None else None
        if own_topic is not None and reader is not None and reader.name in own_topic.channels:
            home.directory.delete_channel(own_topic, reader.name)
    return []


@instead_of(closing.Closing, "_check_old_logs")
def an_old_log_goes_before_the_new_log_has_copies(right: Any, self: closing.Closing) -> None:
    if not self._is_busy:
        self._is_busy, self._is_agreed = True, lambda log_id: True
        self._work.run(self._remove_old_logs, self._removed_old_logs)


def without_record(patch: Patch, kind: RecordKind) -> None:
    """Let checkpoints repeat no record of that kind."""
    begin_state = checkpoint.begin_state

    def without(writer: Writer, source: Any) -> int:
        before = len(writer.group)
        count = begin_state(writer, source)
        left = [record for record in writer.group[before:] if record[0] is not kind]
        count -= len(writer.group) - before - len(left)
        writer.group[before:] = left
        return count

    patch.setattr(checkpoint, "begin_state", without)
    patch.setattr(succession, "begin_state", without, raising=False)


@instead_of(SimDirectory, "found")
def an_unfinished_replica_stays(found: Any, self: SimDirectory) -> list[tuple[bytes, int]]:
    before = dict(self._disks.replicas)
    logs = found(self)
    self._disks.replicas.update(before)
    return logs


@instead_of(SimDiverged, "salvage")
def a_copy_goes_before_its_log_is_in_place(
    salvage: Any, self: SimDiverged, name: str, held: CopyExtent, start: int
) -> Salvaged | None:
    one = self._find(name)
    if not one.is_own:
        self._disks.diverged.remove(one)
        if self._machine.run.side.random() < 0.5:
            raise PowerCut
        self._disks.diverged.append(one)
    return salvage(self, name, held, start)


def among(quorum: Quorum, plant: Bug) -> Bug:
    """Return a bug that is looked for in clusters with one quorum."""

    def plant_there(patch: Patch) -> None:
        plant(patch)
        patch.setattr(cluster, "QUORUMS", (quorum,))

    plant_there.__name__ = plant.__name__
    return plant_there


BUGS: list[Bug] = [
    gate_off_by_one, hole_in_a_replica, marks_of_the_leader_side_are_believed,
    setting("epochs_are_distinguished_by_number", (sending, "common_end", by_number), (replicas, "common_end", by_number)),
    setting("replay_begins_at_the_first_segment", (LogRecords, "roots", lambda self: [0])),
    setting("a_recovery_skips_no_leases", (machine, "safe_id", lambda cluster, number, wall: 1),
            (reading, "first_id", lambda reader, replay: max(1, replay.lease - ids.LEASE))),
    a_replica_is_removed_by_its_own_view, durable_is_reported_before_the_switch, replies_leave_before_their_group,
    among(Quorum.NONE, segments_go_before_the_replica_is_durable),  # failovers leave less time for it
    durable_is_reported_without_a_sync, the_lower_epoch_wins, a_promise_is_not_durable,
    among(Quorum.MAJORITY, setting(
        "an_out_of_date_replica_promotes", (Cases, "seems_clean", lambda self, case, replica: True),
        (Candidate, "_is_clean", lambda self, attempt, replica: True), (Voter, "_is_longer", lambda self, case, claim: False),
    )),
    a_new_log_lacks_the_channels, setting("the_tail_is_left_out", (succession, "tail_segments", lambda *given: [])),
    an_epoch_is_announced_before_it_is_durable,
    setting("the_number_that_was_won_is_forgotten", (opening, "note_won", lambda disk, manifest, number: None)),
    files_are_renamed_while_they_are_a_replica,
    setting("a_new_leader_ignores_the_fence", (Promotions, "lose", lambda self, log_id: None)),
    setting("a_leader_ignores_the_fence", (Elections, "_fence", lambda self, log_id, epoch: None)),
    among(Quorum.ANY, leaders_of_one_number_are_equal),  # a majority promises a number once
    a_promise_fences, shards_are_found_by_number,
    setting("a_log_that_owes_something_is_closed", (closing, "has_no_unfinished", lambda opened, broker: True)),
    deletions_are_of_names, partial(without_record, kind=RecordKind.FOLLOWERS),
    partial(without_record, kind=RecordKind.PARENT), partial(without_record, kind=RecordKind.EPOCH),
    setting("a_node_leaves_before_its_logs_have_leaders", (Leaving, "_find_led", lambda self: None)),
    an_unfinished_replica_stays, a_copy_goes_before_its_log_is_in_place,
    setting("positions_show_what_the_leader_has",
            (arbiter, "common_end", lambda own, own_end, other, other_end: min(own_end, other_end))),
    setting("what_was_salvaged_is_not_served", (Promotions, "serve_salvaged", lambda self, log_id: None)),
]  # fmt: skip


def assert_found(has_jobs: bool = False) -> None:
    """Assert that a run fails, with or without clients of Disque."""

    def run_all() -> None:
        for seed in range(MOST_SEEDS):
            ClusterRun(seed, has_jobs=has_jobs).run()

    with pytest.raises((AssertionError, FileNotFoundError)):
        run_all()


@pytest.mark.campaign
@pytest.mark.parametrize("plant", BUGS)
def test_a_planted_bug_is_found(plant: Bug, monkeypatch: Patch) -> None:
    plant(monkeypatch)
    assert_found()


def test_an_old_log_that_goes_too_early_is_found_in_its_history(monkeypatch: Patch) -> None:
    """At random it takes too many seeds: the new leader must finish all and be slow to copy the new log. Seed 0 finds it."""
    an_old_log_goes_before_the_new_log_has_copies(monkeypatch)
    with pytest.raises(AssertionError, match="let go before there are copies"):
        History(0, Quorum.ANY).play(the_old_log_that_is_closed)


def test_a_witness_that_is_not_believed_is_found_in_its_history(monkeypatch: Patch) -> None:
    a_witness_in_contact_with_the_leader_is_not_believed(monkeypatch)
    with pytest.raises(AssertionError, match="has contact, and its log has a candidate"):
        History(0, Quorum.MAJORITY).play(a_partition_with_a_witness)

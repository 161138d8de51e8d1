"""The cluster's simulator finds bugs: each of these is planted, and some of MOST_SEEDS runs must fail."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from nsqd.cluster.membership.leaders import Leaders, Vote
from nsqd.cluster.ownership.candidate import Candidate
from nsqd.cluster.ownership.cases import Cases, Quorum
from nsqd.cluster.ownership.elections import Elections
from nsqd.cluster.ownership.leaving import Leaving
from nsqd.cluster.ownership.voter import Voter
from nsqd.cluster.promotion import closing, deleting
from nsqd.cluster.promotion.diverged import arbiter
from nsqd.cluster.promotion.diverged.note import CopyExtent
from nsqd.cluster.promotion.promotions import Promotions
from nsqd.cluster.replication import common_point as common
from nsqd.cluster.replication import leader as leader_side
from nsqd.cluster.replication import replicas as replicas
from nsqd.cluster.replication.replica import Replica
from nsqd.cluster.replication.replicas import Replicas
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
from nsqd.storage.log.opening import OpenLog
from nsqd.storage.log.reader import LogRecords
from nsqd.storage.log.records import PREFIX_SIZE
from nsqd.storage.log.store import LogStore
from nsqd.storage.log.succession import Salvaged
from nsqd.storage.log.writer import Writer
from nsqd.storage.sequence import Sequence
from tests.nsqd.cluster.ownership.test_election_runs import a_witness_in_contact_with_the_leader_is_not_believed
from tests.nsqd.cluster.replication.test_copying_runs import (
    durable_is_reported_before_the_switch,
    durable_is_reported_without_a_sync,
    hole_in_a_replica,
)
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
Patch = pytest.MonkeyPatch


def gate_off_by_one(patch: Patch) -> None:
    move = Copies._move

    def moving(self: Copies, n: int, is_durable: bool, marks: Any) -> None:
        move(self, max(1, n - 1), is_durable, marks) if n > 2 else move(self, n, is_durable, marks)

    patch.setattr(Copies, "_move", moving)


def marks_of_the_leader_side_are_believed(patch: Patch) -> None:
    append = Replica.append

    def believing(self: Replica, base: int, at: int, data: memoryview) -> None:
        append(self, base, at, data)
        content, place = bytes(data), 0
        while len(content) - place > PREFIX_SIZE + GROUP.size and not self.is_resyncing:
            if content[place + PREFIX_SIZE] == RecordKind.GROUP:
                mark = GROUP.unpack_from(content, place + PREFIX_SIZE + 1)[0]
                self.durable = max(self.durable, min(self.end, mark))
            place += PREFIX_SIZE + int.from_bytes(content[place : place + 4])

    patch.setattr(Replica, "append", believing)


def epochs_are_distinguished_by_number(patch: Patch) -> None:
    def by_number(own: common.Epochs, own_end: int, other: common.Epochs, other_end: int) -> int:
        numbers = [[(epoch[:4], start) for epoch, start in table] for table in (own, other)]
        return common.common_end(numbers[0], own_end, numbers[1], other_end)

    patch.setattr(leader_side, "common_end", by_number)
    patch.setattr(replicas, "common_end", by_number)


def replay_begins_at_the_first_segment(patch: Patch) -> None:
    patch.setattr(LogRecords, "roots", lambda self: [0])


def a_recovery_skips_no_leases(patch: Patch) -> None:
    patch.setattr(machine, "safe_id", lambda cluster, number, wall: 1)
    patch.setattr(reading, "first_id", lambda reader, replay: max(1, replay.lease - ids.LEASE))


def a_replica_is_removed_by_its_own_view(patch: Patch) -> None:
    closed = Replicas.closed

    def closing(self: Replicas, link: Link) -> None:
        mine = [kept for kept in self.kept.values() if kept.link is link and kept.replica is not None]
        closed(self, link)
        for kept in mine:
            self._drop(kept, [(epoch.pack(), start) for epoch, start in kept.replica.manifest.epochs])

    patch.setattr(Replicas, "closed", closing)


def replies_leave_before_their_group(patch: Patch) -> None:
    commit = LogStore.commit

    def committing(self: LogStore) -> list[Promise]:
        before = self.written.position
        return [replace(vote, position=before) for vote in commit(self)]

    patch.setattr(LogStore, "commit", committing)


def segments_go_before_the_replica_is_durable(patch: Patch) -> None:
    keep = Replica.keep

    def keeping(self: Replica, position: int, bases: list[int]) -> None:
        keep(self, min(position, self.durable), bases)

    patch.setattr(Replica, "keep", keeping)
    patch.setattr(cluster, "QUORUMS", (Quorum.NONE,))  # failovers leave less time for it


# failover


def the_lower_epoch_wins(patch: Patch) -> None:
    learn = Leaders.learn

    def learning(self: Leaders, log_id: bytes, epoch: Epoch) -> bool:
        known = self.epochs.get(log_id)
        if known is None or known.node == epoch.node:
            return learn(self, log_id, epoch)
        if known > epoch:
            self.epochs[log_id] = epoch
        return known > epoch

    patch.setattr(Leaders, "learn", learning)


def a_promise_is_not_durable(patch: Patch) -> None:
    facts = ClusterNode.facts
    patch.setattr(ClusterNode, "facts", lambda self: replace(facts(self), votes=()))


def an_out_of_date_replica_promotes(patch: Patch) -> None:
    patch.setattr(Cases, "seems_clean", lambda self, case, replica: True)
    patch.setattr(Candidate, "_is_clean", lambda self, attempt, replica: True)
    patch.setattr(Voter, "_is_longer", lambda self, case, claim: False)
    patch.setattr(cluster, "QUORUMS", (Quorum.MAJORITY,))


def a_new_log_lacks_the_channels(patch: Patch) -> None:
    tail_of = succession.tail_of

    def without(state: TopicState, sequence: Sequence, boundary: int, since: int) -> tuple[TopicState, Sequence]:
        kept, messages = tail_of(state, sequence, boundary, since)
        kept.readers.clear()
        return kept, messages

    patch.setattr(succession, "tail_of", without)


def the_tail_is_left_out(patch: Patch) -> None:
    patch.setattr(succession, "tail_segments", lambda segments, common, end: [])


def an_epoch_is_announced_before_it_is_durable(patch: Patch) -> None:
    opened = promoted.open_log

    def unsynced(*args: Any, **named: Any) -> OpenLog:
        found = opened(*args, **named)
        patch.setattr(found.writer, "sync", lambda: True)
        return found

    patch.setattr(promoted, "open_log", unsynced)


def a_new_leader_ignores_the_fence(patch: Patch) -> None:
    patch.setattr(Promotions, "lose", lambda self, log_id: None)


def a_leader_ignores_the_fence(patch: Patch) -> None:
    patch.setattr(Elections, "_fence", lambda self, log_id, epoch: None)


def leaders_of_one_number_are_equal(patch: Patch) -> None:
    learn = Leaders.learn

    def by_number(self: Leaders, log_id: bytes, epoch: Epoch) -> bool:
        known = self.epochs.get(log_id)
        return (known is None or known.number != epoch.number) and learn(self, log_id, epoch)

    patch.setattr(Leaders, "learn", by_number)
    patch.setattr(cluster, "QUORUMS", (Quorum.ANY,))  # a majority promises a number once


def a_promise_fences(patch: Patch) -> None:
    vote = Leaders.vote

    def fencing(self: Leaders, log_id: bytes, voted: Vote) -> None:
        vote(self, log_id, voted)
        self.learn(log_id, Epoch(voted.number, voted.node, bytes(8)))

    patch.setattr(Leaders, "vote", fencing)


def shards_are_found_by_number(patch: Patch) -> None:
    attach = Attachment._attach_topic

    def by_number(self: Attachment, promoted_topic: Topic) -> Topic:
        name = promoted_topic.name
        promoted_topic.name = next(
            (one.name for one in self._home.topics.values() if one.number == promoted_topic.number), name
        )
        try:
            return attach(self, promoted_topic)
        finally:
            promoted_topic.name = name

    patch.setattr(Attachment, "_attach_topic", by_number)


def a_log_that_owes_something_is_closed(patch: Patch) -> None:
    patch.setattr(closing, "has_no_unfinished", lambda opened, broker: True)


def deletions_are_of_names(patch: Patch) -> None:
    """A deletion from a log applies to all logs of its leader that have the same name."""

    def by_name(home: Broker, promoted: Broker, deletions: Iterable[Deletion]) -> list[str]:
        for one in deletions:
            topic = promoted.directory.by_number.get(one.topic)
            reader = topic.readers.get(one.channel) if topic is not None else None
            own_topic = home.topics.get(topic.name) if topic is not None else None
            if own_topic is not None and reader is not None and reader.name in own_topic.channels:
                home.directory.delete_channel(own_topic, reader.name)
        return []

    patch.setattr(deleting, "delete_from_promoted", by_name)


def an_old_log_goes_before_the_new_log_has_copies(patch: Patch) -> None:
    def at_once(self: closing.Closing) -> None:
        if not self._is_busy:
            self._is_busy = True
            self._work.run(self._remove_old_logs, self._removed_old_logs)

    patch.setattr(closing.Closing, "_check_old_logs", at_once)


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


def a_node_leaves_before_its_logs_have_leaders(patch: Patch) -> None:
    patch.setattr(Leaving, "_find_led", lambda self: None)


def an_unfinished_replica_stays(patch: Patch) -> None:
    found = SimDirectory.found

    def keeping(self: SimDirectory) -> list[tuple[bytes, int]]:
        before = dict(self._disks.replicas)
        logs = found(self)
        self._disks.replicas.update(before)
        return logs

    patch.setattr(SimDirectory, "found", keeping)


# diverged copies


def a_copy_goes_before_its_log_is_in_place(patch: Patch) -> None:
    salvage = SimDiverged.salvage

    def removing(self: SimDiverged, name: str, held: CopyExtent, start: int) -> Salvaged | None:
        one = self._find(name)
        if one.is_own:
            return salvage(self, name, held, start)
        self._disks.diverged.remove(one)
        if self._machine.run.side.random() < 0.5:
            raise PowerCut
        self._disks.diverged.append(one)
        return salvage(self, name, held, start)

    patch.setattr(SimDiverged, "salvage", removing)


def positions_show_what_the_leader_has(patch: Patch) -> None:
    patch.setattr(arbiter, "common_end", lambda own_topic, our_end, promoted_topic, their_end: min(our_end, their_end))


def what_was_salvaged_is_not_served(patch: Patch) -> None:
    patch.setattr(Promotions, "serve_salvaged", lambda self, log_id: None)


BUGS: list[Callable[[Patch], None]] = [
    gate_off_by_one, hole_in_a_replica, marks_of_the_leader_side_are_believed, epochs_are_distinguished_by_number,
    replay_begins_at_the_first_segment, a_recovery_skips_no_leases, a_replica_is_removed_by_its_own_view,
    durable_is_reported_before_the_switch, replies_leave_before_their_group, segments_go_before_the_replica_is_durable,
    durable_is_reported_without_a_sync, the_lower_epoch_wins, a_promise_is_not_durable, an_out_of_date_replica_promotes,
    a_new_log_lacks_the_channels, the_tail_is_left_out, an_epoch_is_announced_before_it_is_durable,
    a_new_leader_ignores_the_fence, a_leader_ignores_the_fence, leaders_of_one_number_are_equal, a_promise_fences,
    shards_are_found_by_number, a_log_that_owes_something_is_closed, deletions_are_of_names,
    partial(without_record, kind=RecordKind.FOLLOWERS), partial(without_record, kind=RecordKind.PARENT),
    partial(without_record, kind=RecordKind.EPOCH), a_node_leaves_before_its_logs_have_leaders, an_unfinished_replica_stays,
    a_copy_goes_before_its_log_is_in_place, positions_show_what_the_leader_has, what_was_salvaged_is_not_served,
]  # fmt: skip


def assert_found(has_jobs: bool = False) -> None:
    """Assert that a run fails, with or without clients of Disque."""
    for seed in range(MOST_SEEDS):
        try:
            ClusterRun(seed, has_jobs=has_jobs).run()
        except AssertionError:
            return
    pytest.fail("the planted bug was not found")


@pytest.mark.campaign
@pytest.mark.parametrize("plant", BUGS)
def test_a_planted_bug_is_found(plant: Callable[[Patch], None], monkeypatch: Patch) -> None:
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

"""A machine of a simulated cluster: its disks and clocks, and the node that runs on it now and then."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import redirect_stderr
from dataclasses import dataclass, field, replace
from io import StringIO
from random import Random
from typing import TYPE_CHECKING, Any

from apps.recover import choose, find_copies
from nsqd.cluster.joined import safe_id
from nsqd.cluster.membership.cluster_json import describe_closed, facts_of, for_another, next_incarnation
from nsqd.cluster.membership.deletions import with_deletions
from nsqd.cluster.membership.facts import ClusterFacts
from nsqd.cluster.membership.leaders import Vote
from nsqd.cluster.promotion.diverged.note import CopyExtent, Note
from nsqd.cluster.promotion.duplicates import of_return
from nsqd.cluster.replication.follower import AtOnce
from nsqd.cluster.replication.manifest import ManifestError, read_manifest
from nsqd.cluster.replication.offers import MOST_FETCHED, Fetched, Offer, TransferError, find_offers
from nsqd.cluster.replication.rejoin import FailedOverError, Failover, LeaderSilentError, Rejoin, is_led_by_another
from nsqd.cluster.replication.replicas import Replicas
from nsqd.cluster.wire.link import Link
from nsqd.cluster.wire.node_identity import Standing
from nsqd.core.message.epoch import Epoch
from nsqd.core.message.ids import first_of_new_log
from nsqd.storage.log.disk import Disk
from nsqd.storage.log.followers import Followers
from nsqd.storage.log.frozen import FrozenDisk
from nsqd.storage.log.reading import LogReading
from nsqd.storage.log.records import decode_header
from nsqd.storage.log.segments import LogError
from nsqd.storage.log.succession import succeed
from shared.terminal.commands import CommandError
from tests.nsqd.cluster.replication.copied import judge_bytes, judge_state
from tests.nsqd.cluster.wires import Wire
from tests.nsqd.core.node import MS, SECOND
from tests.nsqd.storage.sim_disk import PowerCut, SimDisk
from tests.nsqd.storage.sim_node import Clock
from tests.simulation.books import Loss
from tests.simulation.cluster_node import ClusterNode
from tests.simulation.diverged import Diverged
from tests.simulation.promoted import SimPromoted

if TYPE_CHECKING:
    from tests.simulation.cluster import ClusterRun

CAPACITY = 1 << 22  # bytes of each directory's disk
REJOIN_WITHIN = 2 * SECOND


@dataclass
class Disks:
    """Everything that a machine keeps: a data directory."""

    log: SimDisk
    replicas: dict[bytes, SimDisk] = field(default_factory=dict)  # by log id
    diverged: list[Diverged] = field(default_factory=list)  # of replicas and promoted logs
    # logs made of these that wait for their rename, by log id
    waiting: dict[bytes, SimDisk] = field(default_factory=dict)
    old_logs: list[Diverged] = field(default_factory=list)  # logs that the node had before
    promoted: dict[bytes, SimDisk] = field(default_factory=dict)  # logs that this machine has taken over, by log id
    facts: ClusterFacts = field(default_factory=ClusterFacts)
    first_id: int = 1  # in nsqd.dat

    def all(self) -> list[SimDisk]:
        return [self.log, *self.replicas.values(), *self.promoted.values()]

    def kill(self) -> Disks:
        return self._each(lambda disk: disk.kill())

    def crash(self, random: Random) -> Disks:
        return self._each(lambda disk: disk.crash(random))

    def _each(self, deed: Callable[[SimDisk], SimDisk]) -> Disks:
        replicas = {log_id: deed(disk) for log_id, disk in self.replicas.items()}
        diverged = [replace(one, disk=deed(one.disk)) for one in self.diverged]
        waiting = {log_id: deed(disk) for log_id, disk in self.waiting.items()}
        old_logs = [replace(one, disk=one.disk.kill()) for one in self.old_logs]
        promoted = {log_id: deed(disk) for log_id, disk in self.promoted.items()}
        return Disks(deed(self.log), replicas, diverged, waiting, old_logs, promoted, self.facts, self.first_id)

    def copies(self) -> list[Diverged]:
        """Return the copies that may hold what the leaders of their logs lack."""
        return [*self.diverged, *self.old_logs]

    def keep_diverged(self, log_id: bytes, disk: SimDisk, is_replica: bool) -> None:
        name = self._free("replica" if is_replica else "promoted", log_id)
        self.diverged.append(Diverged(name, log_id, disk, is_replica))

    def leave(self, log_id: bytes, disk: SimDisk, note: Note) -> None:
        self.old_logs.append(Diverged(self._free("salvaged", log_id), log_id, disk, False, note, True))

    def _free(self, kind: str, log_id: bytes) -> str:
        names = {one.name for one in self.copies()}
        return next(name for number in range(1 << 20) if (name := f"{kind} {log_id.hex()} {number}") not in names)


class SimDirectory:
    """The directories of a machine's replicas. In place of ReplicaDirectory."""

    def __init__(self, machine: Machine) -> None:
        self._machine, self._disks = machine, machine.disks

    def found(self) -> list[tuple[bytes, int]]:
        found = []
        for log_id, disk in list(self._disks.replicas.items()):
            try:
                manifest = read_manifest(disk)
            except (ManifestError, OSError):
                continue
            if manifest is not None:
                found.append((log_id, manifest.node))
            else:  # as nsqd.cluster.replication.directory.ReplicaDirectory does
                del self._disks.replicas[log_id]
        return found

    def open(self, log_id: bytes) -> Disk:
        if log_id not in self._disks.replicas:
            self._disks.replicas[log_id] = self._machine.new_disk()
        return self._disks.replicas[log_id]

    def keep_diverged(self, log_id: bytes) -> str:
        self._machine.run.books.counts["replicas kept as diverged"] += 1
        disk = self._disks.replicas[log_id].kill()
        run = self._machine.run
        manifest = None if run.has_damage(self._machine) else read_manifest(disk)  # the log may have lost what it has
        if manifest is not None and manifest.files:
            content = disk.content(manifest.files[-1].name)
            header = decode_header(content)
            key, size = (header.base, header.epoch), len(content)
            is_part = all(archive.is_part(key, size) for archive in run.archives_of(log_id))
            assert not is_part, "a replica is kept as a diverged copy of which the log lost nothing"
        self._disks.keep_diverged(log_id, self._disks.replicas.pop(log_id), True)
        return "aside"

    def remove(self, log_id: bytes) -> None:
        self._machine.run.books.counts["replicas removed"] += 1
        del self._disks.replicas[log_id]


class MemoryReplicas:
    """The replicas of other machines. In place of nsqd.cluster.replication.asking.NodeReplicas."""

    def __init__(self, machine: Machine, others: list[Machine]) -> None:
        self._machine, self._others = machine, others  # those that are asked
        self.is_incomplete = False

    def leases(self) -> list[int]:
        number = self._machine.number
        return [one.node.cluster.leases.get(number, 0) for one in self._others if one.runs and one.node is not None]

    def ask(self, log_id: bytes, followers: Followers) -> list[Offer]:
        offers = [self.offers_of(other, log_id) for other in self._others]
        self.is_incomplete = None in offers
        return [one for found in offers for one in found or ()]

    def offers_of(self, other: Machine, log_id: bytes) -> list[Offer] | None:
        """Return the offer of one machine; None without an answer."""
        figures = other.answer(self._machine)
        lease = other.node.cluster.leases.get(self._machine.number, 0) if other.node is not None else 0
        return None if figures is None else find_offers(other.http, figures, log_id, lease)

    def fetch(self, offer: Offer, log_id: bytes, start: int) -> Iterator[Fetched]:
        other = next(one for one in self._others if one.http == offer.address)
        random, replicas = self._machine.run.random, other.replicas
        if replicas is None or log_id not in replicas.kept:
            raise TransferError("it no longer has a replica")
        self._machine.run.books.counts["ends fetched"] += 1
        breaks = random.random() < 0.2 and not self._machine.run.is_healing
        try:
            for part in replicas.parts(replicas.kept[log_id], start):
                if breaks and random.random() < 0.5:
                    raise TransferError("the connection is lost")
                name, _, offset = part.name.partition("@")
                for at in range(0, part.size, MOST_FETCHED):
                    yield Fetched(name, int(offset or 0) + at, part.read(at, min(MOST_FETCHED, part.size - at)))
        except (KeyError, OSError) as error:
            raise TransferError(str(error)) from None


def channels_of(disk: SimDisk) -> set[tuple[str, str]]:
    """Return the names of all channels that a log knows, each with that of its topic."""
    topics = LogReading(FrozenDisk(disk)).replay.topics.values()
    return {(topic.name, reader.name) for topic in topics for reader in topic.readers.values()}


class Machine:
    """See above. It is a tests.nsqd.cluster.wires.Place."""

    def __init__(self, run: ClusterRun, number: int) -> None:
        self.run = run
        self.name = number  # of the machine, whatever number its node has
        self._set_number(number)
        self.ends: dict[Wire, Link] = {}
        self.clock = Clock(run.random.choice((5, 1000, 10**6)) * SECOND, run.now)
        self.disks = Disks(self.new_disk())
        self.node: ClusterNode | None = None
        self.early: Replicas | None = None  # while the node starts
        self.start_at = run.now  # when the process is started, true ns; -1: it runs
        self.open_at = 0  # when it reads its log at the latest
        self.still_until = 0  # SIGSTOP
        self.is_lost = False  # the disk is gone: it must be rebuilt
        self.is_away = False  # its node has left or was forgotten, and the machine does not come back
        self.is_forgotten = False  # so was the log on its disk
        self.backup: Disks | None = None
        self.backup_kept: dict[bytes, int] = {}
        self.backup_log = b""  # id of the log that the node published into then
        self.vain_until = 0  # when its backup takes the place of what it writes meanwhile, true ns; 0: never
        self.slow = 0  # ns that a sync takes
        self.is_sluggish = False  # its process runs, and its disk takes that long for everything
        self.late_until = 0  # when it has done what it did not do while it was slow, true ns
        self.is_spoiled = False  # its disks fail
        self.is_damaged = False  # its files are damaged, so far that an operator is to replace them
        self.log_id = b""
        self.fence: tuple[bytes, Epoch] | None = None  # the process continues with another log than this one
        self.waits_since = 0  # true ns: the leader of its log is to report how much it has; 0: it does not wait for one
        self.stated: set[bytes] = set()  # logs on its disk that have durably said which followers count
        self.voted: dict[bytes, Vote] = {}  # to other nodes, or to itself as a candidate
        self.durable: dict[bytes, int] = {}  # by log id, how far its disks had logs when it was up last

    def _set_number(self, number: int) -> None:
        """Run a node with that number from now on."""
        self.number = number
        self.address, self.http = f"node{number}:4152", f"node{number}:4151"
        self.run.names[number] = self.name

    def new_disk(self) -> SimDisk:
        disk = SimDisk(self.run.random, self.run.random.choice((512, 4096)))
        disk.capacity, disk.cached = CAPACITY, self.run.random.choice((0, 0.5, 1))
        return disk

    @property
    def is_up(self) -> bool:
        return self.node is not None

    @property
    def runs(self) -> bool:
        return self.node is not None and self.run.now >= self.still_until

    @property
    def mono(self) -> int:
        return self.clock.now

    def gone(self, link: Link) -> None:
        if self.node is not None:
            self.node.gone(link)

    # what others ask

    @property
    def replicas(self) -> Replicas | None:
        """Return the replicas that are served now."""
        return self.node.replicas if self.node is not None else self.early

    def answer(self, asker: Machine | None) -> dict[str, Any] | None:
        """Return the response of /cluster; None if there is none."""
        replicas = self.replicas
        if replicas is None or self.run.now < self.still_until:
            return None
        if asker is not None and not self.run.wires.connects(asker.address, self.address):
            return None
        figures: dict[str, Any] = {"replicas": replicas.states()}
        early = [{"log_id": log_id.hex(), "opening": True} for log_id in SimPromoted(self).found()]
        figures["led"] = self.node.led() if self.node is not None else early
        leaders = self.node.cluster.leaders if self.node is not None else None
        closed = self.disks.facts.closed if leaders is None else leaders.closed.values()
        figures["closed"] = [describe_closed(word) for word in closed]
        if self.node is not None:
            words, leases = self.node.cluster.membership.records.items(), self.node.cluster.leases
            figures["nodes"] = [
                {
                    "node": number,
                    "http_address": word.node.http,
                    "standing": word.standing.name.lower(),
                    "lease": leases.get(number, 0),
                    "log_id": word.node.log_id.hex(),
                    "incarnation": word.node.incarnation,
                }
                for number, word in words
            ]
        return figures

    def begin_start(self) -> None:
        """The process is started: it serves its replicas, and asks for the end of its log."""
        self.open_at = self.run.now + REJOIN_WITHIN
        try:
            self.early = Replicas(SimDirectory(self), AtOnce(), lambda: self.clock.now, lambda number, log_id: False)
            self.early.open_all()
        except PowerCut:
            self.crash(True)
            return
        for log_id, kept in self.early.kept.items():
            replica, archive = kept.replica, self.run.any_archive(log_id)
            if replica is not None and archive is not None and not self.is_damaged:
                judge = judge_state if self.run.random.random() < 0.2 else judge_bytes
                self.run.judge_replica(judge, log_id, archive, self.disks.replicas[log_id].kill(), replica)

    def others(self) -> list[Machine]:
        """Return the machines whose nodes this one knew in its last run."""
        members = [member for member in self.disks.facts.members if member.standing is Standing.MEMBER]
        known = {member.node.http for member in members}
        return [one for one in self.run.machines if one is not self and one.http in known]

    def find_replicas(self) -> MemoryReplicas:
        return MemoryReplicas(self, [one for one in self.run.machines if one is not self])

    def step_start(self) -> None:
        """Open the log when all have answered, or the time is over."""
        others = self.others()
        replicas = MemoryReplicas(self, others)
        has_all = all(replicas.offers_of(other, self.log_id) is not None for other in others)
        if not has_all and self.run.now < self.open_at:
            return
        try:
            self.early.close()
            self.early = None
            self._open(others)
        except PowerCut:
            self.crash(True)
        except LogError as error:
            if not (self.is_spoiled or self.is_full or self.is_damaged):
                raise AssertionError(f"the log cannot be opened: {error}") from None
            self.node, self.early = None, None
            self.disks = self.disks.kill()
            self.start_at = self.run.now + 2 * SECOND

    @property
    def is_full(self) -> bool:
        return any(disk.others for disk in self.disks.all())

    def _open(self, others: list[Machine]) -> None:
        run = self.run
        try:
            node = self._opened(others)
        except FailedOverError as error:
            expected = channels_of(self.disks.log)
            self._succeed(error.failover)
            node = self._opened(others)
            found = {(topic.name, one.name) for topic in node.broker.topics.values() for one in topic.readers.values()}
            lacking = expected - found
            assert not lacking or self.is_damaged, f"the new log lacks channels of the old one: {lacking}"
        except LeaderSilentError:
            self.disks, self.start_at = self.disks.kill(), run.now + SECOND
            self.waits_since = self.waits_since or run.now
            run.books.counts["waits for the leader"] += 1
            return
        disks = self.disks
        damage = node.log.start_results.damage
        is_whole = not damage.spots or self.is_spoiled or self.run.has_damage(self)
        assert is_whole, f"a crash looks like damage: {damage.spots}"
        self.log_id = node.log.identity.log_id
        reached = [one.name for one in others if one.answer(self) is not None]
        run.jobs.books.restarts.append((self.log_id, run.now, frozenset({self.name, *reached})))
        self._judge_facts(node)
        run.archives[self.log_id, self.name] = node.archive
        kept = dict(disks.facts.votes)
        broken = {log_id for log_id, vote in self.voted.items() if kept.get(log_id, Vote(0, 0)) < vote}
        assert not broken, f"{self.name} does not know what it has voted of {broken}"
        incarnation = next_incarnation(disks.facts, self.clock.wall)
        disks.facts = replace(disks.facts, incarnation=incarnation)
        own = node.identity(incarnation)
        seeds = run.seeds if run.has_seeds else []
        self.fence, self.waits_since = None, 0
        self.node, self.start_at = node, -1  # from now on it answers
        node.join(own, seeds, disks.facts, SimDirectory(self), self)
        node.flush = lambda: run.wires.collect(self)
        node.broker.check()
        self.set_slowness()
        node.turn(node.make_topics)
        run.books.counts["starts"] += 1

    def _judge_facts(self, node: ClusterNode) -> None:
        """Assert that a log, which was opened, states what it has stated permanently, whatever was removed of it since."""
        writer, former = node.log.writer, self.run.books.successions.get(self.log_id)
        knows_parent = former in (None, *(parent.log_id for parent in writer.parents)) or self.is_damaged
        assert knows_parent, "a log does not know the one before it"
        knows_followers = writer.followers != Followers() or self.log_id not in self.stated or self.is_damaged
        assert knows_followers, "a log no longer knows its in-sync followers"

    def judge_letting_go(self, log_id: bytes) -> None:
        """Assert that what this machine's log has from an old one, which it removes, is in as many copies as were asked for."""
        others = [one for one in self.run.machines if one is not self and self.log_id in one.disks.replicas]
        for publish in self.run.books.publishes:
            if (
                publish.log_id == self.log_id
                and publish.former[-1:] == [log_id]
                and publish.acked
                and not publish.finished
            ):
                disks = [one.disks.replicas[self.log_id] for one in others]
                having = [one for one in disks if any(publish.body in one.content(name) for name in one.names())]
                assert len(having) >= publish.n - 1, f"let go before there are copies: {publish}"

    def _opened(self, others: list[Machine]) -> ClusterNode:
        """Return a node whose log is open. Raises FailedOverError, LeaderSilentError, LogError."""
        run, disks = self.run, self.disks
        archive = run.archive_of(self.log_id, self)
        replicas, leaders = MemoryReplicas(self, others), dict([self.fence]) if self.fence is not None else {}
        rejoin = Rejoin(replicas, self.number, 0, lambda: self.clock.true, leaders, self.is_last_try)
        return ClusterNode(
            self.number, disks.log, self.clock, run.random, run.sizes, rejoin, disks.first_id, archive,
            lambda: rejoin.least_epoch, lambda: rejoin.least_id,
        )  # fmt: skip

    @property
    def is_last_try(self) -> bool:
        """Return True if the leader of this machine's log was waited for long enough."""
        return 0 < self.waits_since <= self.run.now - self.run.sizes.unclean_after

    def is_failed_over(self, log_id: bytes, epochs: Sequence[Epoch], followers: Followers, known: Epoch | None) -> bool:
        """Return True if another node says that it leads a log by a greater epoch, or this one has learned so."""
        replicas = MemoryReplicas(self, self.others())
        return is_led_by_another(replicas, log_id, epochs, self.number, followers, known)

    def _succeed(self, failover: Failover) -> None:
        """Begin another log, because another node leads this one. The machine may die on the way."""
        run, random, disks = self.run, self.run.side, self.disks
        partial = self.new_disk()
        is_unlucky = not run.is_healing  # repaired files stay intact
        if is_unlucky and random.random() < 0.2:
            partial.cut_in = random.randrange(40)
        parts = run.sizes.simulated(self.clock, run.random)
        least = first_of_new_log(self.clock.true, 0)
        made = succeed(disks.log, partial, failover.common, least, max(failover.lease, disks.first_id), parts)
        partial.cut_in = None
        if is_unlucky and random.random() < 0.1:
            raise PowerCut  # nothing was renamed yet, so the next start removes what was made
        old = self.log_id
        disks.facts = replace(disks.facts, deletions=with_deletions(disks.facts.deletions, old, made.deletions))
        disks.leave(old, disks.log, Note(made.log_id, made.common, CopyExtent(made.parent.position, made.epochs)))
        disks.log, self.log_id = partial, made.log_id
        files = [partial.content(name) for name in partial.names()]
        run.books.moved(old, made.log_id, made.common, self.name, files)
        run.books.counts["successions"] += 1
        deletions = made.deletions.deletions if made.deletions is not None else ()
        run.books.counts["deletions to be reported"] += len(deletions)
        self._possible(of_return(made, bool(failover.address)))
        if not failover.address:  # the leader is silent, so this takes over what it has
            run.jobs.books.failovers.append((old, run.now, self.name, frozenset({self.name})))
        run.note(f"{self.name} begins {made.log_id.hex()[:6]} after {old.hex()[:6]}, common {made.common}")
        if is_unlucky and random.random() < 0.1:
            raise PowerCut  # `log.partial` waits for its rename, which the next start does

    def keep_facts(self, facts: ClusterFacts) -> None:
        self.disks.facts = facts

    def count_duplicates(self) -> None:
        """Note what the node, which ends, has counted of messages that may be delivered twice."""
        if self.node is not None:
            self._possible(self.node.promoted.promotions.failovers.possible_duplicates)

    def _possible(self, duplicates: Counter[str]) -> None:
        for reason, number in duplicates.items():
            self.run.books.counts[f"possible duplicates: {reason}"] += number

    def set_slowness(self) -> None:
        """Let syncs take as long as the disk needs now."""
        node = self.node
        if node is not None:
            node.work.duration = self.slow or self.run.random.choice((0, 0, 5 * MS))
            node.replicas._average = 10 * SECOND if self.slow else 0
            node.sync_takes = self.slow if self.is_sluggish else 0

    def note_durable(self) -> None:
        node = self.node
        if node is None:
            return
        writer = node.log.writer
        self.durable = {self.log_id: writer.durable.position}
        if writer.followers != Followers() and writer.durable.position == writer.written.position:
            self.stated.add(self.log_id)
        for log_id, kept in node.replicas.kept.items():
            self.durable[log_id] = kept.replica.durable if kept.replica is not None else 0
        for log_id, one in node.promoted.logs.items():
            self.durable[log_id] = one.log.writer.durable.position

    def logs(self) -> list[bytes]:
        return [self.log_id, *self.node.promoted.logs] if self.node is not None else []

    def crash(self, is_cut: bool, away: int | None = None) -> None:
        """The process is killed, or the power fails, in the middle of whatever it does."""
        run, random = self.run, self.run.random
        self.note_durable()
        self.count_duplicates()
        run.books.upset(self.logs(), run.now)
        if self.node is not None and self.node.jobs_part is not None:
            self.node.jobs_part.gone()
        self.fence, self.waits_since = None, 0
        if is_cut:
            run.books.losses.append(Loss(run.now, self.name, self.durable, True))
            for wire in list(self.ends):
                del self.ends[wire]
            self.disks = self.disks.crash(random)
        else:
            run.wires.kill(self)
            self.disks = self.disks.kill()
        self.node = self.early = None
        self.still_until = 0
        self.start_at = run.now + (random.choice((1, 300, 5000, 15_000)) * MS if away is None else away)
        if away is None and run.takes_over and run.side.random() < 0.5:
            self.start_at += run.side.choice((10, 30, 60)) * SECOND
        self.clock = self.clock.after(0, random.choice((5, 1000, 10**6)) * SECOND, rebooted=is_cut)
        run.note(f"{'cut' if is_cut else 'kill'} of {self.name}")

    def stop(self, away: int | None = None) -> None:
        """The process ends as after SIGTERM. `away`: after how many ns it is started; None: soon."""
        try:
            self.node.log.close()
            self.node.replicas.close()
            self.node.promoted.promotions.close()
        except PowerCut:
            self.crash(True)
            return
        self.crash(False, away)

    def begin_again(self, fence: tuple[bytes, Epoch]) -> None:
        """Another node leads the log: the process closes everything, and continues with another log."""
        self.run.books.counts["fenced"] += 1
        self.run.fenced(*fence, self)
        self.run.note(f"{self.name} is fenced by node {fence[1].node}")
        self.stop()
        if self.start_at >= 0 and not self.node:
            self.fence, self.start_at = fence, self.run.now
            self.waits_since = self.run.now

    def lose_disk(self) -> None:
        """The machine dies, and its disk with it."""
        self.crash(True)
        self.run.books.losses.append(Loss(self.run.now, self.name, {}, False))
        self.disks, self.durable = Disks(self.new_disk()), {}
        self.lose_votes()
        self.stated.clear()
        self.backup, self.vain_until = None, 0
        self.is_lost, self.is_damaged = True, False
        self.run.note(f"disk of {self.name} lost")

    def lose_votes(self) -> None:
        """Note that the node votes again, by numbers for which it has voted already."""
        self.run.lost_votes |= {(log_id, vote.number) for log_id, vote in self.voted.items()}
        self.voted = {}

    def begin_anew(self, number: int) -> None:
        """The machine, which is down, gets an empty directory. Its diverged copies are kept elsewhere.

        Not those of its own logs: the log that continued them is gone, too, or has another leader.
        """
        before = self.disks
        first_id = first_of_new_log(self.clock.true, 0)
        self.disks = Disks(self.new_disk(), diverged=before.diverged, first_id=first_id)
        self.durable, self.log_id = {}, b""
        self.lose_votes()
        self.stated.clear()
        self.backup, self.vain_until, self.is_lost, self.is_damaged = None, 0, False, False
        self._set_number(number)
        self.run.note(f"{self.name} begins with an empty directory as node {number}")

    def back_up(self) -> None:
        """Copy the whole directory, unless it has a group that could not be written, and will be written with other content."""
        if self.node is None or self.node.log.writer.failure:
            return
        self.note_durable()
        self.backup, self.backup_kept, self.backup_log = self.disks.kill(), dict(self.durable), self.log_id

    def restore(self) -> None:
        """An old copy of the whole directory takes the place of the directory."""
        self.crash(False)
        self.run.books.losses.append(Loss(self.run.now, self.name, self.backup_kept, False))
        self.disks, self.backup = self.backup, None
        self.lose_votes()
        self.stated.clear()
        self.log_id = self.backup_log
        self.run.books.may_reuse_ids.add(self.name)
        self.run.note(f"old backup of {self.name} restored")

    def recover(self) -> bool:
        """Make the directory again as `penstock recover` does. Returns False if that is refused at present."""
        others = [one for one in self.run.machines if one is not self and not one.is_away]
        by_http = {one.http: one for one in others}

        def ask(address: str) -> Any:
            figures = by_http[address].answer(None) if address in by_http else None
            if figures is None:
                raise ValueError("it does not answer")
            return figures

        with redirect_stderr(StringIO()):
            copies, silent = find_copies([one.http for one in others], self.number, ask)
        try:
            force = all(address not in by_http or by_http[address].is_lost for address in silent)  # an operator knows
            copy = choose(copies, silent, self.number, force)
        except CommandError:
            if force:  # no node has a copy: it begins a new log, under an unknown number
                self._set_number(self.run.next_number())
                self.log_id = b""
                self.is_lost = False
                self.run.note(f"{self.name} begins a new log")
            return not self.is_lost
        other = by_http[copy.address]
        log_id = bytes.fromhex(copy.log_id)
        disk = self.new_disk()
        try:
            for part in other.node.replicas.parts(other.node.replicas.kept[log_id], 0):
                disk.put(part.name, part.read(0, part.size))
        except OSError:  # the other's disk fails: an operator tries again
            return False
        cluster = other.node.cluster
        facts = for_another(facts_of(cluster), self.number)
        self.disks = Disks(disk, facts=facts, first_id=safe_id(cluster, self.number, self.clock.true))
        self.log_id = log_id
        self.is_lost = False
        self.run.books.counts["recovered"] += 1
        self.run.note(f"{self.name} recovered from {other.name}")
        return True

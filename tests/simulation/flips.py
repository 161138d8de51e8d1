"""Runs in which bits of log segments flip: of the leader's log and of replicas, in other records at each machine.

A bit that flips hits one PUBLISH record in a segment that was never rewritten, below the mark up to which the copy is known to
be durable, and no two machines lose the same record. So some machine always has each record whole, and all messages must be
delivered from what the copies have together: nodes replace corrupt bytes when they start, promote a replica, or read it.
A read that asked while no replica could be reached gives messages up until the next start, so when some are missing, operators
restart the nodes that report corruption, and then replace those that still do (docs/troubleshooting/corruption.md).
"""

from dataclasses import dataclass
from random import Random

from nsqd.cluster.replication.manifest import ManifestError, read_manifest
from nsqd.core.records import RecordKind
from nsqd.storage.log.records import HEADER_SIZE, PREFIX_SIZE, NotASegment, SegmentHeader, decode, decode_header
from nsqd.storage.log.scan import highest_mark
from tests.nsqd.core.node import SECOND
from tests.nsqd.storage.sim_disk import SimDisk
from tests.simulation.books import Publish
from tests.simulation.cluster import HEALED_WITHIN, ClusterRun
from tests.simulation.history import History
from tests.simulation.machine import Machine

WAIT = 100 * SECOND  # for which a node that is damaged waits for others: longer than machines stay down
OFTEN = 0.1  # part of the steps in which a bit flips
Place = tuple[bytes, int, bytes]  # a segment that was never rewritten: log id, base, epoch


@dataclass(frozen=True, slots=True)
class Flip:
    """A bit that has flipped at one machine, or at more when that one's bytes were copied."""

    at: int  # offset in the file
    right: int
    wrong: int
    numbers: frozenset[int]  # publishes whose record it is


class Flipping(ClusterRun):
    """What runs in which bits flip have in common."""

    plans = 0.0  # their records are hit, too
    healed_within = 2 * HEALED_WITHIN  # a node may wait for others for WAIT, more than once

    def prepare(self, seed: int) -> None:
        """Call this when the run is made."""
        self.damage = Random(f"flips {seed}")
        self.flips: dict[Place, list[Flip]] = {}
        self._records: set[tuple[Place, int]] = set()  # corrupt records: offsets
        self.books.holds = self._holds
        self.sizes.unclean_after = WAIT

    def flip(self, machine: Machine, wanted: bytes = b"", bodies: tuple[bytes, ...] = (b"",)) -> None:
        """Let a bit of one of a machine's logs flip, if there is a record that may be hit.

        `wanted`: the id of the log; `bodies`: one of them is in the record.
        """
        disks = machine.disks
        logs = [(machine.log_id, disks.log), *disks.replicas.items(), *disks.promoted.items()]
        found = [(log_id, disk) for log_id, disk in logs if log_id and wanted in (b"", log_id)]
        if not found:
            return
        log_id, disk = self.damage.choice(found)
        fresh = [one for one in _records(log_id, disk) if one[1:3] not in self._records]
        records = [one for one in fresh if any(body in disk.content(one[0])[one[2] : one[3]] for body in bodies)]
        if not records:
            return
        name, place, start, end = self.damage.choice(records)
        content = disk.content(name)
        at = self.damage.randrange(start, end)
        wrong = content[at] ^ 1 << self.damage.randrange(8)
        numbers = frozenset(one.number for one in self.books.publishes if one.body in content[start:end])
        self.flips.setdefault(place, []).append(Flip(at, content[at], wrong, numbers))
        self._records.add((place, start))
        self.books.hit |= numbers
        disk.overwrite(name, at, bytes([wrong]))
        self.books.counts["bits flipped"] += 1
        where = f"at {at} of {start} to {end}: {set(numbers)}"
        self.note(f"a bit of {name} of {log_id.hex()[:6]} flips at {machine.name}, {where}")

    def _holds(self, name: int, publish: Publish) -> bool:
        """Return True if a machine has a message in a record that is whole."""
        machine = next(one for one in self.machines if one.name == name)
        disks = [*machine.disks.all(), *(one.disk for one in machine.disks.copies())]
        return any(self._is_whole(disk.content(name), publish) for disk in disks for name in disk.names())

    def _is_whole(self, content: bytes, publish: Publish) -> bool:
        header = _header(content)
        if header is None or publish.body not in content:
            return False
        return not any(publish.number in one.numbers and content[one.at] == one.wrong for one in self._flips_of(header))

    def _flips_of(self, header: SegmentHeader) -> list[Flip]:
        return self.flips.get((header.log_id, header.base, header.epoch.pack()), []) if not header.generation else []

    # the interface of runs

    def has_damage(self, machine: Machine) -> bool:
        return True

    def undamaged(self, log_id: bytes, disk: SimDisk) -> SimDisk:
        copy = disk.kill()
        for name in copy.names():
            content = copy.content(name)
            header = _header(content)
            for one in self._flips_of(header) if header is not None else ():
                if len(content) > one.at and content[one.at] == one.wrong:
                    copy.overwrite(name, one.at, bytes([one.right]))
        return copy

    def is_kept_diverged(self, publish: Publish) -> bool:
        """Return True also if a node has the message in the log that it published into before: no leader asks for that."""
        logs = [one.disk for machine in self.machines for one in machine.disks.old_logs]
        is_whole = any(self._is_whole(disk.content(name), publish) for disk in logs for name in disk.names())
        return is_whole or super().is_kept_diverged(publish)

    def repair(self, missing: list[Publish]) -> set[int]:
        for deed in (lambda machine: machine.crash(False, 0), Machine.lose_disk):
            self.books.counts["operators act on damage"] += 1
            damaged = [one for one in self.members if one.node is not None and _reports_damage(one)]
            self.note(f"operators act: {[one.name for one in damaged]}")
            for machine in damaged:
                deed(machine)
                self._heal()
            found = {number for machine in self.members for number in self._drained(machine)}
            if not [one for one in self.books.owed() if one in missing and one.number not in found]:
                break
        return found


class FlippedRun(Flipping):
    rounds = 1

    def __init__(self, seed: int, nodes: int | None = None, has_jobs: bool | None = None) -> None:
        super().__init__(seed, nodes, has_jobs)
        self.prepare(seed)

    def _happen(self) -> None:
        super()._happen()
        if self.damage.random() < OFTEN:
            self.flip(self.damage.choice(self.machines))


class FlippedHistory(Flipping, History):
    """A history with bits that flip."""


def _reports_damage(machine: Machine) -> bool:
    """Return True if one of a node's logs has found corruption, by nsqd_log_damage_total."""
    logs = [machine.node.log, *(one.log for one in machine.node.promoted.logs.values())]
    return any(log.start_results.damage.size + log.cache.failures for log in logs)


def _header(content: bytes) -> SegmentHeader | None:
    try:
        return decode_header(content)
    except NotASegment:
        return None


def _records(log_id: bytes, disk: SimDisk) -> list[tuple[str, Place, int, int]]:
    """Return the PUBLISH records that stay durable, in segments that were never rewritten: file, place, start, end."""
    disk = disk.kill()  # which meets no planned fault
    segments = [(name, header) for name in disk.names() if (header := _header(disk.synced(name))) is not None]
    marks = [highest_mark(disk.synced(name), 0, header.seed) for name, header in segments]
    try:
        manifest = read_manifest(disk)
    except ManifestError:
        return []
    mark = max(marks, default=0) if manifest is None else manifest.mark
    found = []
    for name, header in segments:
        if header.generation or header.log_id != log_id:
            continue
        data, at = disk.synced(name), HEADER_SIZE
        while (end := decode(data, at, header.seed)) and header.base + end - HEADER_SIZE <= mark:
            if data[at + PREFIX_SIZE] == RecordKind.PUBLISH and disk.content(name)[at:end] == data[at:end]:
                found.append((name, (log_id, header.base, header.epoch.pack()), at, end))
            at = end
    return found

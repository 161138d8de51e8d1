"""Runs in which files of a machine are corrupted until an operator follows the documents.

Bits flip in any file, files are cut or vanish, and parts of them become what they were before. A node may start with that and
serve what it has, win an election, or refuse to start. Some time later an operator repairs the machine:

* a corrupt `cluster.json` is removed (docs/reference/log-messages.md);
* corrupt replicas are removed, and their leaders send new ones (the same page);
* otherwise the node gets an empty disk, and `penstock recover` makes its log again (docs/troubleshooting/lost-node.md).

The data of the machine count as lost, as with a lost disk. The data of other machines must not be harmed, with one exception:
the newest segment of a running leader is not damaged. A follower is sent what is damaged there as it is, if no node has it
otherwise, and its replica ends at that place when it is promoted, whatever it has behind.
"""

from collections.abc import Callable
from random import Random

from nsqd.cluster.membership.facts import ClusterFacts
from nsqd.cluster.replication.manifest import NAME as MANIFEST
from nsqd.cluster.replication.manifest import ManifestError, read_manifest
from nsqd.cluster.replication.replica import Replica
from nsqd.storage.log.identity import NAME as IDENTITY
from nsqd.storage.log.records import HEADER_SIZE
from tests.nsqd.cluster.replication.archive import Archive
from tests.nsqd.core.node import MS, SECOND
from tests.nsqd.storage.sim_disk import SimDisk
from tests.simulation.books import Loss
from tests.simulation.cluster import HEALED_WITHIN, ClusterRun, Judge
from tests.simulation.machine import Disks, Machine

OFTEN = 0.1  # part of the steps in which a file is corrupted
CHUNK = 512  # bytes that become what they were before
NEVER = 1 << 62  # ns, and bytes: behind every position
WAIT = 100 * SECOND  # for which a node that is damaged waits for others: longer than machines stay down


class DamagedRun(ClusterRun):
    rounds = 1
    plans = 0.0  # their records become corrupt, too
    # a node waits for the leader of its log, and then another one, which has a replica that may lack messages
    healed_within = HEALED_WITHIN + 2 * WAIT

    def __init__(self, seed: int, nodes: int | None = None, has_jobs: bool | None = None) -> None:
        super().__init__(seed, nodes, has_jobs)
        self.damage = Random(f"damage {seed}")
        self.sizes.unclean_after = WAIT
        self._hit: set[bytes] = set()  # logs of which a copy was damaged
        # when an operator repairs what, and how
        self._repairs: list[tuple[int, Machine, Callable[[Machine], None]]] = []

    def _happen(self) -> None:
        super()._happen()
        due = [one for one in self._repairs if one[0] <= self.now]
        self._repairs = [one for one in self._repairs if one[0] > self.now]
        for _, machine, repair in due:
            _remove_unreadable(machine)
            repair(machine)
        machine = self.damage.choice(self.machines)
        if self.damage.random() < OFTEN and self._may_damage(machine) and self.may_lose():
            self._damage(machine)

    def has_damage(self, machine: Machine) -> bool:
        return True  # it may have copied what is damaged at another one

    def judge_replica(self, judge: Judge, log_id: bytes, archive: Archive, disk: SimDisk, replica: Replica) -> None:
        try:
            super().judge_replica(judge, log_id, archive, disk, replica)
        except AssertionError:
            if log_id not in self._hit:
                raise
            self.books.counts["replicas copied from damaged ones"] += 1

    def _heal(self) -> None:
        for _, machine, repair in self._repairs:
            _remove_unreadable(machine)
            repair(machine)
        self._repairs.clear()
        super()._heal()

    def _may_damage(self, machine: Machine) -> bool:
        is_gone = machine.is_lost or machine.is_away or machine.is_forgotten or machine.is_damaged or not machine.log_id
        return not is_gone and not machine.vain_until

    def _damage(self, machine: Machine) -> None:
        random = self.damage
        disks, repair = random.choice((
            (None, _remove_facts), (lambda disks: disks.replicas.values(), _remove_replicas),
            (lambda disks: [disks.log], _replace), (Disks.all, _replace),
        ))  # fmt: skip
        machine.is_damaged = True
        self._hit |= {machine.log_id, *machine.disks.replicas, *machine.disks.promoted}
        if random.random() < 0.5 and machine.is_up:
            machine.crash(random.random() < 0.3, random.choice((0, 1, 10)) * SECOND)
        if disks is None:
            self._damage_facts(machine)
        if disks is not None:
            self.damage_disks(machine, list(disks(machine.disks)))
        self._repairs.append((self.now + random.choice((500, 5000, 30_000, 60_000)) * MS, machine, repair))

    def _damage_facts(self, machine: Machine) -> None:
        """Corrupt cluster.json: the node does not start until it is removed, and rewrites it if it runs."""
        if machine.is_up:
            machine.crash(False)
        self._note(machine, "cluster.json", "is damaged")
        machine.early, machine.start_at = None, NEVER

    def damage_disks(self, machine: Machine, disks: list[SimDisk]) -> None:
        """Corrupt files of a machine. Their logs count as lost at once: the node may start before they are repaired."""
        for disk in disks:
            self._damage_files(machine, disk)
        logs = {machine.log_id: machine.disks.log, **machine.disks.replicas, **machine.disks.promoted}
        kept = {log_id: 0 if disk in disks else NEVER for log_id, disk in logs.items()}
        self.books.losses.append(Loss(self.now, machine.name, kept, False))

    def _damage_files(self, machine: Machine, disk: SimDisk) -> None:
        random = self.damage
        names = [name for name in disk.names() if ".log" in name or name in (IDENTITY, MANIFEST)]
        if machine.is_up and not any(disk is one for one in machine.disks.replicas.values()):
            names.remove(max(name for name in names if ".log" in name))
        special = [name for name in names if name in (IDENTITY, MANIFEST)]
        for _ in range(random.choice((1, 1, 3)) if names else 0):
            name = random.choice(special if special and random.random() < 0.3 else names)
            if name not in disk.names() or not disk.content(name):
                continue
            how = random.choice(("flip", "flip", "cut", "vanish", "revert"))
            KINDS[how](disk, name, random)
            self._note(machine, name, how)

    def _note(self, machine: Machine, name: str, what: str) -> None:
        self.books.counts[f"damaged: {what}"] += 1
        self.note(f"{name} at {machine.name}: {what}")


def _flip(disk: SimDisk, name: str, random: Random) -> None:
    content = disk.content(name)
    at = random.randrange(len(content))
    disk.overwrite(name, at, bytes([content[at] ^ 1 << random.randrange(8)]))


def _revert(disk: SimDisk, name: str, random: Random) -> None:
    """A part of the file is what it was before: zeros, or what stands elsewhere in it."""
    content = disk.content(name)
    at = min(len(content) - 1, HEADER_SIZE) if random.random() < 0.9 else 0
    at = random.randrange(at, len(content))
    before = random.randrange(at + 1)
    old = content[before : before + CHUNK] if random.random() < 0.5 else bytes(CHUNK)
    disk.overwrite(name, at, old[: len(content) - at])


KINDS: dict[str, Callable[[SimDisk, str, Random], None]] = {
    "flip": _flip,
    "cut": lambda disk, name, random: disk.shorten(name, random.randrange(len(disk.content(name)))),
    "vanish": lambda disk, name, random: disk.vanish(name),
    "revert": _revert,
}


def _is_readable(disk: SimDisk) -> bool:
    try:
        return read_manifest(disk) is not None
    except ManifestError:
        return False


def _is_repaired(machine: Machine) -> bool:
    """Return True if the disk was replaced meanwhile, or the machine is no longer used."""
    return not machine.is_damaged or machine.is_away or machine.is_forgotten


def _remove_unreadable(machine: Machine) -> None:
    """Remove the copies whose manifest cannot be read, also those that were moved to another directory."""
    copies = machine.disks.diverged
    machine.disks.diverged = [one for one in copies if not one.is_replica or _is_readable(one.disk)]
    if len(machine.disks.diverged) < len(copies):
        machine.run.books.losses.append(Loss(machine.run.now, machine.name, dict(machine.durable), False))


def _remove_facts(machine: Machine) -> None:
    if _is_repaired(machine):
        return
    machine.disks.facts = ClusterFacts()
    machine.lose_votes()
    machine.is_damaged = False
    machine.start_at = machine.run.now


def _remove_replicas(machine: Machine) -> None:
    if _is_repaired(machine):
        return
    logs = set(machine.disks.replicas)
    machine.crash(False, 0)
    kept = {log_id: end for log_id, end in machine.durable.items() if log_id not in logs}
    machine.run.books.losses.append(Loss(machine.run.now, machine.name, kept, False))
    machine.disks.replicas.clear()
    machine.is_damaged = bool(logs & machine.disks.promoted.keys())
    if machine.is_damaged:  # one of them has become a log that the node leads
        _replace(machine)


def _replace(machine: Machine) -> None:
    if _is_repaired(machine):
        return
    machine.lose_disk()
    machine.start_at = machine.run.now

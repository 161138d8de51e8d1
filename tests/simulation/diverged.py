"""The diverged copies of a machine of a simulated cluster, and the logs that its node makes of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from nsqd.cluster.promotion.diverged.directory import DivergedCopy, make_log, read_copy
from nsqd.cluster.promotion.diverged.note import CopyExtent, Note
from nsqd.storage.log.succession import Salvaged
from tests.nsqd.storage.sim_disk import PowerCut, SimDisk

if TYPE_CHECKING:
    from tests.simulation.machine import Machine


@dataclass
class Diverged:
    """A replica or a promoted log that was kept as a diverged copy, or a log that the node had published into."""

    name: str
    log_id: bytes
    disk: SimDisk
    is_replica: bool
    note: Note | None = None
    is_own: bool = False


class SimDiverged:
    """The diverged copies of a machine. Implements Directory of its module `salvage`. It may die between steps."""

    def __init__(self, machine: Machine) -> None:
        self._machine, self._disks = machine, machine.disks

    def finish(self) -> list[bytes]:
        noted = {one.note.log_id for one in self._disks.copies() if one.note is not None}
        made = sorted(log_id for log_id in self._disks.waiting if log_id in noted)
        for log_id in made:
            self._disks.promoted[log_id] = self._disks.waiting[log_id]
        self._disks.waiting.clear()
        return made

    def found(self) -> list[DivergedCopy]:
        return [DivergedCopy(one.name, one.log_id, one.note, one.is_own) for one in self._disks.copies()]

    def read(self, name: str) -> CopyExtent:
        one = self._find(name)
        return read_copy(one.disk, one.log_id, one.is_replica)

    def salvage(self, name: str, held: CopyExtent, start: int) -> Salvaged | None:
        machine, run, one = self._machine, self._machine.run, self._find(name)
        target = machine.new_disk()
        if not run.is_healing and run.side.random() < 0.2:
            target.cut_in = run.side.randrange(40)
        parts = run.sizes.simulated(machine.clock, run.random)
        made = make_log(one.disk, one.is_replica, target, start, machine.number, parts)
        target.cut_in = None
        self._step()
        if made is None:
            one.note = Note(b"", start, held)
            run.books.counts["copies without messages"] += 1
            return None
        self._disks.waiting[made.log_id] = target
        self._step()
        one.note = Note(made.log_id, start, held)
        files = [target.content(file) for file in target.names()]
        run.books.moved(one.log_id, made.log_id, start, machine.name, files)
        run.books.counts["copies salvaged"] += 1
        run.made.add(made.log_id)
        run.note(f"{machine.name} makes {made.log_id.hex()[:6]} of {one.log_id.hex()[:6]} from {start} on: {name}")
        self._step()
        self._disks.promoted[made.log_id] = self._disks.waiting.pop(made.log_id)
        self._step()
        return made

    def remove(self, name: str) -> None:
        one = self._find(name)
        self._step()
        self._disks.diverged.remove(one)
        self._machine.run.books.counts["copies let go"] += 1

    def _find(self, name: str) -> Diverged:
        one = next((one for one in self._disks.copies() if one.name == name), None)
        if one is None:
            raise FileNotFoundError(name)
        return one

    def _step(self) -> None:
        run = self._machine.run
        if not run.is_healing and run.side.random() < 0.1:
            raise PowerCut

"""Salvage messages that only a diverged copy of a log has.

A replica, or a log that this node had promoted, becomes a diverged copy when it holds bytes that the leader's log lacks. They
may have been acknowledged. So this node asks the leader from which position on to salvage them; the copy from there on
becomes a log of its own, which this node serves like a promoted one. The copy is removed when that log is durable in its place
here and the leader agrees.

The old log of this node, which another node has promoted, is such a copy, too: it was salvaged when the node made its new
log. It is removed when its log is closed (closing.py), and the node that closed it agrees. Until then another leader may have
less: then it is salvaged once more.

Nothing here does input or output by itself: `DivergedDirectory` and `Work` do.

See docs/contributing/design/cluster-protocol.md#diverged-copies.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from nsqd.cluster.membership.cluster import Cluster
from nsqd.cluster.membership.leader_frames import Hold
from nsqd.cluster.promotion.diverged.arbiter import Arbiter, is_copied
from nsqd.cluster.promotion.diverged.directory import DivergedCopy, DivergedDirectory
from nsqd.cluster.promotion.diverged.note import CopyExtent, Note
from nsqd.cluster.promotion.diverged.salvage_frames import (
    Decision,
    SalvageReply,
    SalvageRequest,
    pack_reply,
    pack_request,
    unpack,
)
from nsqd.cluster.promotion.promotions import Promotions
from nsqd.cluster.replication.common_point import common_end, packed
from nsqd.cluster.replication.copying import Copying
from nsqd.cluster.replication.follower import Work
from nsqd.cluster.wire.frames import FrameKind, PeerError
from nsqd.cluster.wire.link import Link
from nsqd.cluster.wire.part import Part
from nsqd.core.message.epoch import Epoch
from nsqd.storage.log.succession import Salvaged
from shared.log import log

# times -unclean-after without a leader, until the wait ends: a node with a replica promotes the log before
NO_LEADER = 3
CHECK_EVERY = 5_000_000_000  # ns between two scans of the directories, and two requests about one copy
RETRY_AFTER = 60_000_000_000  # ns after a copy could not be read, or not be salvaged
MOST_SERIAL = 1 << 32


@dataclass(slots=True)
class Copy:
    """A diverged copy, and how far it is salvaged."""

    name: str
    log_id: bytes
    note: Note | None
    is_own: bool = False
    held: CopyExtent | None = None  # None: it was not read yet
    serial: int = 0  # of the latest request about it
    due: int = 0  # when there is something to do again, monotonic ns
    made_end: int | None = None  # where the log that was made ended when it was first served in this run
    failure: str = ""
    orphaned: int | None = None  # monotonic ns since which its log has no leader, or the node that closed it is silent
    agreed: Epoch | None = None  # the leader of its log that lacks none of it. If `is_own`, it stays anyway


class Salvage(Part):
    """The diverged copies of one node. All methods are for the reactor's thread."""

    takes = (FrameKind.SALVAGE,)
    shown_as = "diverged"

    def __init__(
        self,
        cluster: Cluster,
        copying: Copying,
        promotions: Promotions,
        arbiter: Arbiter,
        directory: DivergedDirectory,
        work: Work,
        clock: Callable[[], int],
        unclean_after: int,
    ) -> None:
        """`clock` returns monotonic ns; `unclean_after`: ns after which a replica is promoted that may lack something."""
        self.copies: dict[str, Copy] = {}  # by name
        self._cluster, self._copying, self._promotions, self._arbiter = cluster, copying, promotions, arbiter
        self._directory, self._work, self._clock = directory, work, clock
        self._unclean_after = unclean_after
        self._scan_due = 0
        self._serial = 0
        self._is_busy = False  # the directory is in use
        self._is_finished = False  # the unfinished steps of the last run were finished
        self._may_diverge = True  # a replica may have become a diverged copy since the last scan

    # time

    def tick(self, now: int) -> None:
        """List the diverged copies, and read them or ask about them, as it is due."""
        if self._is_busy:
            return
        if now >= self._scan_due:
            self._scan_due = now + CHECK_EVERY
            self._run(self._scan, self._scanned)
            return
        for copy in list(self.copies.values()):
            is_news = copy.agreed is not None and copy.agreed != self._cluster.leaders.leader(copy.log_id)
            if (now >= copy.due or is_news) and not self._is_busy:
                self._continue(copy, now)

    def _run(self, work: Callable[[], Any], done: Callable[[Any], None]) -> None:
        self._is_busy = True

        def finished(result: Any) -> None:
            self._is_busy = False
            done(result)

        self._work.run(work, finished)

    def _scan(self) -> tuple[list[bytes], list[DivergedCopy]]:
        made = [] if self._is_finished else self._directory.finish()
        return made, self._directory.found()

    def _scanned(self, result: tuple[list[bytes], list[DivergedCopy]] | OSError) -> None:
        if isinstance(result, OSError):
            log.error("CLUSTER: cannot list the diverged copies: %s; trying again", result)
            return
        made, found = result
        self._is_finished = True
        for log_id in made:
            self._promotions.serve_salvaged(log_id)
        for one in found:
            if one.name not in self.copies:
                held = one.note.held if one.note is not None else None
                self.copies[one.name] = Copy(one.name, one.log_id, one.note, one.is_own, held)
        for name in self.copies.keys() - {one.name for one in found}:
            del self.copies[name]  # an operator has removed it

    def _continue(self, copy: Copy, now: int) -> None:
        """Read a copy, or ask about it."""
        copy.due, copy.agreed = now + CHECK_EVERY, None
        if copy.held is None:
            self._run(partial(self._directory.read, copy.name), partial(self._was_read, copy))
            return
        request = self._request(copy, copy.held)
        common = self._common_without_leader(copy, copy.held, now)
        if common is not None:
            self._decide(copy, request, common)
            return
        own_number, asked = self._cluster.own.number, self._node_to_ask(copy.log_id)
        if asked is None or asked == own_number:
            self._arbiter.answer(own_number, request, partial(self._answered, own_number))
        elif (link := self._cluster.links.get(asked)) is not None:
            link.send_first(pack_request(request))
        else:
            copy.due = now  # it is asked as soon as it is connected: another node may ask about the same tail

    def _was_read(self, copy: Copy, result: CopyExtent | OSError) -> None:
        if isinstance(result, OSError):
            self._failed(copy, result)
        else:
            copy.held, copy.due = result, 0

    def _failed(self, copy: Copy, error: OSError) -> None:
        copy.due, why = self._clock() + RETRY_AFTER, str(error.strerror or error)
        if why != copy.failure:
            log.error("CLUSTER: cannot salvage %s: %s; trying again", copy.name, why)
        copy.failure = why

    # requests and replies

    def _request(self, copy: Copy, held: CopyExtent) -> SalvageRequest:
        self._serial = copy.serial = (self._serial + 1) % MOST_SERIAL
        note = copy.note
        if note is None:
            return SalvageRequest(copy.serial, copy.log_id, held.end, held.epochs)
        return SalvageRequest(
            copy.serial, copy.log_id, held.end, held.epochs, note.start, self._is_made_copied(copy, note)
        )

    def _is_made_copied(self, copy: Copy, note: Note) -> bool:
        """Return True if the log that was made of a copy has its copies, or is no longer needed."""
        leaders, log_id = self._cluster.leaders, note.log_id
        if not log_id or log_id in leaders.closed:
            return True
        leader, leader_side = leaders.leader(log_id), self._copying.leader_sides.get(log_id)
        if leader_side is None:
            return leader is not None and leader.node != self._cluster.own.number
        if copy.made_end is None:
            copy.made_end = leader_side.source.end
        return is_copied(leader_side, copy.made_end, self._cluster)

    def _node_to_ask(self, log_id: bytes) -> int | None:
        """Return the number of the node to ask about a log: its leader, or the node that closed it. None if unknown."""
        leaders = self._cluster.leaders
        record, leader = leaders.closed.get(log_id), leaders.leader(log_id)
        return record.epoch.node if record is not None else leader.node if leader is not None else None

    def _common_without_leader(self, copy: Copy, held: CopyExtent, now: int) -> int | None:
        """Return the position up to which a log has what a copy has, if no node can be asked about it. None otherwise."""
        record = self._cluster.leaders.closed.get(copy.log_id)
        if record is None and not self._is_orphan(copy.log_id):
            copy.orphaned = None
            return None
        if record is None or self._cluster.membership.is_member(record.epoch.node):
            copy.orphaned = now if copy.orphaned is None else copy.orphaned
            if now - copy.orphaned < NO_LEADER * self._unclean_after:
                return None
        return 0 if record is None else common_end(packed(record.epochs), record.end, packed(held.epochs), held.end)

    def _is_orphan(self, log_id: bytes) -> bool:
        """Return True if a log has no leader: it was forgotten, has left, or runs without leading the log.

        An unreachable leader may have all unfinished messages, so it is waited for. A replica here may still be promoted.
        """
        cluster, leaders, membership = self._cluster, self._cluster.leaders, self._cluster.membership
        if log_id in {*self._copying.replicas.kept, *self._copying.leader_sides} or self._promotions.leads(log_id):
            return False
        leader = leaders.leader(log_id)
        if leader is None or leader.node == cluster.own.number:
            return True
        gone, link = membership.forgotten.get(log_id), cluster.links.get(leader.node)
        if not membership.is_member(leader.node) or (gone is not None and gone.node.number == leader.node):
            return True
        return link is not None and leaders.said(leader.node, link.node.incarnation, log_id) is Hold.KNOWS

    def _decide(self, copy: Copy, request: SalvageRequest, common: int) -> None:
        """Decide about a copy of a log without a node to ask."""
        note = copy.note
        if common >= request.end or (note is not None and note.start <= common and request.is_copied):
            self._discard(copy)
        elif note is None or note.start > common:
            self._salvage(copy, common)

    def receive(self, link: Link, kind: FrameKind, content: bytes, now: int) -> None:
        number, said = link.node.number, unpack(content)
        if isinstance(said, SalvageRequest):
            self._arbiter.answer(number, said, lambda answer: link.send_first(pack_reply(answer)))
        else:
            self._answered(number, said)

    def _answered(self, number: int, answer: SalvageReply) -> None:
        copies = self.copies.values()
        copy = next((one for one in copies if (one.serial, one.log_id) == (answer.serial, answer.log_id)), None)
        if copy is None or copy.held is None or self._node_to_ask(answer.log_id) not in (None, number):
            return  # it is asked again
        if self._is_busy:
            copy.due = 0  # it is asked again then: each reply might come during a scan
            return
        if answer.log_id in self._cluster.leaders.closed:
            copy.orphaned = None
        if answer.decision is Decision.LET_GO:
            self._discard(copy)
        elif answer.decision is Decision.SALVAGE:
            if answer.start >= copy.held.end:
                raise PeerError("there is nothing to salvage after the end of a copy")
            self._salvage(copy, answer.start)

    # steps

    def _salvage(self, copy: Copy, start: int) -> None:
        assert copy.held is not None
        copy.serial = 0  # no answer is waited for
        self._run(
            partial(self._directory.salvage, copy.name, copy.held, start), partial(self._was_salvaged, copy, start)
        )

    def _was_salvaged(self, copy: Copy, start: int, result: Salvaged | OSError | None) -> None:
        if isinstance(result, OSError):
            self._failed(copy, result)
            return
        assert copy.held is not None
        copy.note = Note(result.log_id if result is not None else b"", start, copy.held)
        copy.due, copy.made_end, copy.failure = 0, None, ""
        if result is None:
            log.info("CLUSTER: %s holds no message that the leader of the log %s lacks", copy.name, copy.log_id.hex())
            return
        log.warning(
            "CLUSTER: salvaged %d unfinished messages of the log %s of node %d: its leader lacks them, because it lost the end"
            " of the log, and this node has them in %s from position %d on. They are delivered from the log %s",
            result.messages, copy.log_id.hex(), result.node, copy.name, start, result.log_id.hex(),
        )  # fmt: skip
        self._promotions.serve_salvaged(result.log_id)

    def _discard(self, copy: Copy) -> None:
        copy.serial, copy.agreed = 0, self._cluster.leaders.leader(copy.log_id)
        if copy.is_own:
            copy.due = self._clock() + RETRY_AFTER
            return
        self._run(partial(self._directory.remove, copy.name), partial(self._was_removed, copy))

    def _was_removed(self, copy: Copy, result: OSError | None) -> None:
        if isinstance(result, OSError):
            self._failed(copy, result)
            return
        self.copies.pop(copy.name, None)
        log.info("CLUSTER: removed %s: everything in it is elsewhere", copy.name)

    def is_agreed(self, log_id: bytes) -> bool:
        """Return True if the leader of a log, or the node that closed it, knows what this node has salvaged. Any thread."""
        copies = list(self.copies.values())
        return self._is_finished and all(copy.agreed is not None for copy in copies if copy.log_id == log_id)

    def unsettled(self) -> set[bytes] | None:
        """Return the logs of which this node may have messages that the logs' leaders lack. None: that is not known yet.

        These are the replicas that the leader has not compared with its log, and the diverged copies.
        """
        kept = self._copying.replicas.kept.values()
        leaders = self._cluster.leaders
        replicas = {
            one.log_id
            for one in kept
            if one.compared != leaders.leader(one.log_id) and (one.replica is None or one.replica.end)
        }
        if replicas:
            self._may_diverge = True
            return replicas
        if self._may_diverge:
            self._may_diverge, self._scan_due = False, 0
        if not self._scan_due or self._is_busy or not self._is_finished:
            return None
        return {copy.log_id for copy in self.copies.values() if copy.agreed is None}

    def has_unserved_log(self) -> bool:
        return any(not (copy.note or copy.agreed or copy.failure) for copy in self.copies.values())

    def figures(self) -> list[dict[str, Any]]:
        """Return the diverged copies, and the logs made of them, for /cluster."""
        return [
            {
                "name": copy.name,
                "log_id": copy.log_id.hex(),
                "salvaged": copy.note is not None,
                "made": copy.note.log_id.hex() if copy.note is not None else "",
                "failure": copy.failure,
            }
            for copy in self.copies.values()
        ]

"""The members of the cluster, as far as this node knows, and which of them are suspected.

Records of a member are merged by the latest one: that of the greatest incarnation. Merging the same records in any order,
any number of times, gives the same members; so connected nodes converge. A forgotten log is never accepted again:
every run of a node with that log counts as forgotten, too.

A member is suspected when no byte came from it for a time, by the clock of this node: a shorter time if its address refuses
connections, because then its process has ended. If this node itself was paused, it first reads what waits in its connections,
and restarts every timeout.

See docs/contributing/design/cluster-protocol.md#membership.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from nsqd.cluster.wire.node_identity import Member, NodeIdentity, Standing

LEAST_SUSPICION = 3_000_000_000  # ns
GONE_AFTER = 2_000_000_000  # ns without contact until a node is suspected whose address refuses connections
MOST_UNPROVED = 64  # members that have not proved their identity to this node
# ns without contact after which such a member is dropped: nodes dial each other every 30 s
UNPROVED_FOR = 120_000_000_000
MOST_FORGOTTEN = 1000  # logs; with a record of each node number, they fit into one frame


class Membership:
    """The members of the cluster as one node knows them. All times are monotonic ns of this node."""

    def __init__(self, own: NodeIdentity, suspect_after: int) -> None:
        """`suspect_after`: ns without contact after which a member is suspected (-failover-after). Raises ValueError."""
        if suspect_after < LEAST_SUSPICION:
            raise ValueError("two heartbeats may be 3 s apart")
        self.own = own
        # the latest record of each node number, also of former members
        self.records: dict[int, Member] = {own.number: Member(own)}
        self.forgotten: dict[bytes, Member] = {}  # a record of each forgotten log, by its id; never this node's
        self.suspect_after = suspect_after
        self.proved: set[int] = set()  # numbers of the nodes that have proved their identity to this node, in some run
        self._contacts: dict[int, int] = {}  # when a byte came from each node, or its present run became known
        self._back_by: dict[int, int] = {}  # until when a node that announced a restart is waited for
        self._checked = 0  # time of the last check; 0: none yet
        self._suspected: set[int] = set()
        self._refusing: set[int] = set()  # nodes whose addresses have refused a connection since their last byte

    @property
    def members(self) -> list[NodeIdentity]:
        """Return the members by their numbers, this node included."""
        return [record.node for _, record in sorted(self.records.items()) if record.standing is Standing.MEMBER]

    def proved_members(self) -> set[int]:
        """Return the numbers of the members that have proved their identity to this node, and its own."""
        return {number for number in {*self.proved, self.own.number} if self.is_member(number)}

    def departed(self) -> set[int]:
        """Return the numbers of the nodes that have left or were forgotten."""
        return {number for number, record in self.records.items() if record.standing is not Standing.MEMBER}

    @property
    def suspected(self) -> frozenset[int]:
        """Return the numbers of the members without contact for too long."""
        return frozenset(self._suspected)

    def merge(self, records: Iterable[Member], now: int) -> list[Member]:
        """Merge member records from a peer. Return those that changed, to be forwarded.

        A run of a node that was not known before counts as contacted now: only the earlier run was suspected.
        """
        news: dict[int, Member] = {}
        forgotten = []
        for given in records:
            if self._forget(given):
                forgotten.append(given)
            is_forgotten = given.node.log_id in self.forgotten
            record = replace(given, standing=Standing.FORGOTTEN) if is_forgotten else given
            number = record.node.number
            known = self.records.get(number)
            if number == self.own.number or (known is not None and not record.is_later_than(known)):
                continue
            if known is None or known.node != record.node:
                self._back_by.pop(number, None)
                self.note_contact(number, now)
            if record.standing is not Standing.MEMBER:
                self._suspected.discard(number)
            self.records[number] = news[number] = record
        return list(dict.fromkeys([*forgotten, *news.values()]))

    def _forget(self, record: Member) -> bool:
        """Record a forgotten log, if the record has one. Returns False if that changes nothing."""
        log_id = record.node.log_id
        if record.standing is not Standing.FORGOTTEN or log_id in self.forgotten or log_id == self.own.log_id:
            return False
        self.forgotten[log_id] = record
        if len(self.forgotten) > MOST_FORGOTTEN:
            oldest = min(self.forgotten.values(), key=lambda one: (one.node.incarnation, one.node.log_id))
            del self.forgotten[oldest.node.log_id]
        for number, known in self.records.items():
            if known.node.log_id == log_id and known.standing is not Standing.FORGOTTEN:
                self.records[number] = replace(known, standing=Standing.FORGOTTEN)
                self._suspected.discard(number)
        return log_id in self.forgotten

    def all_records(self) -> list[Member]:
        """Return all records for a newly connected node: the latest ones, and those of forgotten logs."""
        return list(dict.fromkeys([*self.records.values(), *self.forgotten.values()]))

    def contradiction(self, records: Iterable[Member]) -> Member | None:
        """Return a record later than this node's own: this node was forgotten, or another run has its number. None if none."""
        own = self.records[self.own.number]
        for record in records:
            is_forgotten = record.node.log_id == own.node.log_id and record.standing is Standing.FORGOTTEN
            if is_forgotten or (record.node.number == own.node.number and record.is_later_than(own)):
                return record
        return None

    def room(self) -> int:
        """Return the number of further unproved members that may be added."""
        known = sum(record.standing is Standing.MEMBER for record in self.records.values())
        return max(0, MOST_UNPROVED - known + len(self.proved_members()))

    def drop_unproved(self, now: int) -> None:
        """Forget members that only others have reported, and with which this node had no contact for too long."""
        unproved = self._suspected - self.proved_members()
        for number in [one for one in unproved if now - self._contacts[one] >= UNPROVED_FOR]:
            del self.records[number], self._contacts[number]
            self._suspected.discard(number)

    def last_contact(self, number: int) -> int | None:
        """Return the time of the last byte from a node, or of the discovery of its run, in monotonic ns. None if unknown."""
        return self._contacts.get(number)

    def note_contact(self, number: int, now: int) -> None:
        """Note that bytes came from the present run of a node."""
        self._contacts[number] = now
        self._suspected.discard(number)
        self._refusing.discard(number)

    def dialed(self, address: str, is_refused: bool) -> None:
        """Record whether a node's address refuses connections: then the node's process has ended."""
        for node in self.members:
            if node.address == address:
                (self._refusing.add if is_refused else self._refusing.discard)(node.number)

    def announced(self, number: int, back_by: int) -> None:
        """Record that the present run of a node stops, and will be back by a time: until then it is not suspected."""
        self._back_by[number] = back_by

    def is_going(self, number: int) -> bool:
        """Return True if the present run of a node is suspected, or has announced that it stops."""
        return number in self._suspected or number in self._back_by

    def is_member(self, number: int) -> bool:
        """Return True if a node is known, and has neither left nor was forgotten."""
        record = self.records.get(number)
        return record is not None and record.standing is Standing.MEMBER

    def is_awaited(self, number: int) -> bool:
        """Return True if a member may be up: it is not suspected, and has not announced that it stops."""
        return self.is_member(number) and not self.is_going(number)

    def must_read_first(self, now: int) -> bool:
        """Return True if this node was paused since the last check: it must first read its connections."""
        return self._checked > 0 and now - self._checked > self.suspect_after // 2

    def check_silence(self, now: int) -> list[int]:
        """Return the numbers of the members that are suspected from now on. Call it several times in `suspect_after`.

        After a pause without checks, every timeout restarts.
        """
        if self.must_read_first(now):
            self._contacts = {number: at if number in self._suspected else now for number, at in self._contacts.items()}
        self._checked = now
        silent = [
            number
            for number, at in self._contacts.items()
            if now - at >= (GONE_AFTER if number in self._refusing else self.suspect_after)
            and self.is_member(number)
            and self._back_by.get(number, now) <= now
        ]
        news = sorted(set(silent) - self._suspected)
        self._suspected.update(news)
        return news

"""A node's part in its cluster: its connections, and which updates to forward. `dials` has the addresses to dial, and when.

It does no input or output: its owner makes connections, gives each one's bytes to its Link, sends what the link has, and calls
`tick` every TICK. Each pair of nodes keeps one connection. If both have dialed, the one that the node with the lower number
dialed stays.

See docs/contributing/design/cluster-protocol.md#connections.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from nsqd.cluster.membership.deletions import LostLogDeletions
from nsqd.cluster.membership.dials import Dials
from nsqd.cluster.membership.disputes import Disputes
from nsqd.cluster.membership.facts import NO_FACTS, ClusterFacts
from nsqd.cluster.membership.leader_frames import Hold, Leadership, pack_closed, pack_leaders, unpack_leaders
from nsqd.cluster.membership.leaders import Leaders
from nsqd.cluster.membership.members import Membership
from nsqd.cluster.membership.reports import Reports, clash
from nsqd.cluster.membership.salvaged import SalvagedTails
from nsqd.cluster.membership.topic_configs import MOST_VALUE, TopicConfigs
from nsqd.cluster.wire.frames import FrameKind, PeerError
from nsqd.cluster.wire.handshake import NONCE_SIZE, Credentials
from nsqd.cluster.wire.link import Link, Superseded, make_link
from nsqd.cluster.wire.node_identity import Member, NodeIdentity, Standing
from nsqd.cluster.wire.part import Part
from nsqd.core.message.epoch import Epoch
from nsqd.core.message.epoch import unpack as unpack_epoch

TICK = 250_000_000  # ns
MOST_STRANGERS = 64  # accepted connections whose peer has not proved its identity
SECOND_CONNECTION = "there is a connection already"  # why one of two connections between a pair of nodes is closed
_ALIVE = 2_000_000_000  # ns: a connection over which bytes came since then works


class Cluster:
    """One node's view of its cluster. Implements nsqd.cluster.wire.link.Listener."""

    def __init__(
        self,
        credentials: Credentials,
        seeds: Iterable[str],
        suspect_after: int,
        random: Callable[[int], bytes],
        facts: ClusterFacts = NO_FACTS,
        now: int = 0,
        wall: Callable[[], int] = lambda: MOST_VALUE,
    ) -> None:
        """Begin at `now` without a connection. Raises ValueError.

        `seeds`: addresses of other nodes (-cluster-peer); `random`: returns the given number of random bytes; `facts`: the
        facts of an earlier run of this node; `wall`: returns the time in ms since the epoch, by default one that no
        configuration exceeds.
        """
        self.own, self.name = credentials.own, credentials.cluster
        self.membership = Membership(credentials.own, suspect_after)
        self.membership.merge(facts.members, now)
        self.membership.proved.update(record.node.number for record in facts.members)
        self.lease = 0
        self.leases: dict[int, int] = dict(facts.leases)  # the latest lease of each node, by its number
        self.is_full = False  # this node has no space for another replica
        self.full: set[int] = set()  # numbers of the nodes that said so of themselves
        self.links: dict[int, Link] = {}  # the connection to each node whose identity is proved
        self.strangers: list[Link] = []  # the other connections
        # by node number: the address of a node that proved its identity, and why it was refused, or refused this node
        self.refusals: dict[int, tuple[str, str]] = {}
        self.refused_itself = ""  # why another node rejects this one; "": none does
        self.highest = credentials.own.incarnation  # of the known runs of this node's number: the next is above
        self.deletions = LostLogDeletions(facts.deletions)  # from logs that this node has lost
        self.parts: list[Part] = []
        self.pumped: list[Part] = []  # those that continue after each input
        self.configs = TopicConfigs(self.links, facts.configs, facts.knows_configs, wall, self.parts)  # of topics
        self.salvaged = SalvagedTails(facts.salvaged)  # of logs that this node leads, by other nodes
        self.leaders = Leaders(facts.leaders, facts.votes, facts.closed)
        self._takers: dict[int, Part] = {}  # by the kinds of frames that they take
        self.add(self.configs)
        self.disputes = Disputes(self.membership, self.leaders, self.links)
        self.announce_leader(credentials.own.log_id, unpack_epoch(credentials.own.epoch))
        self._credentials = credentials
        self._suspect_after = suspect_after
        self._random = random
        self.dials = Dials(credentials.own.address, seeds, random)
        self.is_leaving = False  # this node hands its logs over, and ends
        self._reports = Reports(self.own, self.membership, self.links)
        self._back_in = 0  # ms: the grace that was announced; 0: none

    def add(self, *parts: Part) -> None:
        """Give parts the frames that they take. They are called after the parts that were added before."""
        for part in parts:
            self.parts.append(part)
            if type(part).pump is not Part.pump:
                self.pumped.append(part)
            self._takers |= dict.fromkeys(part.takes, part)

    # connections

    @property
    def is_any_member_away(self) -> bool:
        """Return True if this node has no connection to some member. Any thread may ask."""
        members = {number for number in list(self.membership.records) if self.membership.is_member(number)}
        return not members <= {self.own.number, *list(self.links)}

    @property
    def has_unserved_log(self) -> bool:
        """Return True if this node has a copy of a log that it may serve later: messages in it are not found yet."""
        return any(part.has_unserved_log() for part in self.parts)

    def take_due(self, now: int) -> str | None:
        """Return an address to dial now, or None. `dialed` or `dial_failed` must follow."""
        if self.membership.records[self.own.number].standing is not Standing.MEMBER:
            return None  # this node has left
        linked = {link.peer.address for link in self.links.values() if link.peer is not None}
        others = (node.address for node in self.membership.members if node is not self.own)
        return self.dials.take_due(others, linked, now)

    def dialed(self, address: str, now: int) -> Link:
        """Return the link over a connection that was made to `address`."""
        self.membership.dialed(address, is_refused=False)
        link = self._begin(True, now)
        self.dials.begin(address, link)
        return link

    def dial_failed(self, address: str, now: int, is_refused: bool = False) -> None:
        """Note that no connection could be made, or that it did not last: the address is dialed again after a pause.

        `is_refused`: the host has refused the connection.
        """
        if is_refused:
            self.membership.dialed(address, is_refused=True)
        self.dials.fail(address, now)

    def accepted(self, now: int) -> Link | None:
        """Return the link over an accepted connection. None if there are too many strangers: close it."""
        if sum(not link.is_dialer for link in self.strangers) >= MOST_STRANGERS:
            return None
        return self._begin(False, now)

    def _begin(self, is_dialer: bool, now: int) -> Link:
        link = make_link(self, self._credentials, self._random(NONCE_SIZE), is_dialer, now)
        self.strangers.append(link)
        return link

    def closed(self, link: Link, now: int) -> None:
        """Handle the end of a connection. Without a reason of its own, the peer has closed it."""
        by_peer = not link.closing
        link.closing = link.closing or "the connection was closed"
        if link in self.strangers:
            self.strangers.remove(link)
        self.dials.end(link, self.own.number, now)
        self._note_refusal(link)
        if link.peer is None:
            return
        number = link.peer.number
        if self.links.get(number) is link:
            del self.links[number]
            self._pass_on(link, self.membership.merge(self._reports.disconnected(number, by_peer), now))
        for part in self.parts:
            part.closed(link)

    # calls of links

    def members(self) -> list[Member]:
        return self.membership.all_records()

    def members_to_keep(self) -> list[Member]:
        """Return the member records for the next run of this node: only of nodes that proved their identity."""
        proved = self.membership.proved_members()
        return [one for one in self.members() if one.standing is not Standing.MEMBER or one.node.number in proved]

    def proved(self, link: Link, peer: NodeIdentity, now: int) -> None:
        self._check(peer)
        other = self.links.get(peer.number)
        if other is not None:
            self.membership.note_contact(peer.number, now)  # a node that is refused is alive, too
            is_better = _rank(other, self.own, peer) > _rank(link, self.own, peer)
            if is_better and not other.closing and now - other.received_at < _ALIVE:
                raise PeerError(SECOND_CONNECTION)
            other.closing = other.closing or "another connection takes its place"
        self.strangers.remove(link)
        self.links[peer.number] = link
        self.membership.proved.add(peer.number)
        self.refusals.pop(peer.number, None)
        self._reports.connected(peer.number)
        self._pass_on(link, self.membership.merge([Member(peer)], now))
        self.membership.note_contact(peer.number, now)
        if self._back_in:
            link.announce_restart(self._back_in)

    def _check(self, peer: NodeIdentity) -> None:
        """Raise PeerError if a node must be refused because of what is known of its number or its log."""
        number, members = peer.number, self.membership.members
        if peer.log_id in self.membership.forgotten:
            gone = Member(peer, Standing.FORGOTTEN)
            raise Superseded(_why_not(gone, peer), gone)
        same = next((node for node in members if node.log_id == peer.log_id and node.number != number), None)
        if same is not None:
            raise PeerError(
                f"node {same.number} at {same.address} has the same log: one directory is a copy of the other"
            )
        if why := clash(self.membership, peer):
            raise PeerError(why)
        known = self.membership.records.get(number)
        if known is None or known == Member(peer):
            return
        if not Member(peer).is_later_than(known):
            raise Superseded(_why_not(known, peer), known)
        if known.standing is Standing.MEMBER and known.node != peer and not self._reports.has_ended(known.node, peer):
            raise PeerError(f"node number {number} is that of the node at {known.node.address}, which may be alive")

    def _note_refusal(self, link: Link) -> None:
        peer, is_second = link.handshake.peer, link.closing.endswith(SECOND_CONNECTION)
        if link.peer is None and peer is not None and link.handshake.has_proof and not is_second:
            if self.membership.records.get(peer.number) == Member(peer, Standing.LEFT):
                return  # nothing is wrong: it is about to end
            self.refusals[peer.number] = peer.address, link.closing

    def receive_members(self, link: Link, records: list[Member], now: int) -> None:
        records = self._reports.possible(link, records)
        contradiction = self.membership.contradiction(records)
        if contradiction is not None:
            self.refused_itself = _why_not(contradiction, self.own)
            self.highest = max(self.highest, contradiction.node.incarnation)
        self._pass_on(link, self.membership.merge(self._reports.accepted(records), now))

    def _pass_on(self, source: Link | None, news: list[Member]) -> None:
        """Forward records to all peers except their source. A connection to a node that is gone ends."""
        for record in news:
            link = self.links.get(record.node.number)
            is_peer = link is not None and link.peer is not None and link.peer.log_id == record.node.log_id
            if link is not None and is_peer and record.standing is not Standing.MEMBER:
                link.closing = link.closing or "the node has left, or was forgotten"
        for link in self.links.values():
            if link is not source:
                link.send_members(news)

    def forget(self, number: int, now: int) -> None:
        """Forget a node on an operator's order, and notify all nodes. Its log is never accepted again.

        Raises KeyError if no node has that number, ValueError if it is this node or one that may be up: it is connected, or
        its connection broke lately, as those do that are about to be replaced.
        """
        known = self.membership.records[number]
        if known.node is self.own or number in self.links or self.membership.is_awaited(number):
            raise ValueError(f"node {number} may be up")
        self._reports.forget(number)
        self._pass_on(None, self.membership.merge([replace(known, standing=Standing.FORGOTTEN)], now))

    def leave(self) -> None:
        """Announce that this node has left: it counts in no majority and gets no replicas. A later run may join."""
        record = Member(self.own, Standing.LEFT)
        self.membership.records[self.own.number] = record
        for link in self.links.values():
            link.send_members([record])

    # the leaders of logs

    def announce_leader(self, log_id: bytes, epoch: Epoch) -> None:
        """Record that this node leads a log by an epoch from now on, and notify all nodes.

        The first record of the epoch is durable. At a start, call `resume_leader` for each promoted log before it is opened:
        a log without a reported leader is promoted after -unclean-after.
        """
        if epoch.node != self.own.number:
            return  # the log was never led by this node
        self.leaders.hold(log_id, epoch)
        is_news = self.leaders.learn(log_id, epoch)
        self._send_leaders([log_id])
        if is_news:
            self.led(log_id, epoch)

    def led(self, log_id: bytes, epoch: Epoch) -> None:
        """Notify all parts that a log has another leader."""
        for part in self.parts:
            part.led(log_id, epoch)

    def resume_leader(self, log_id: bytes) -> None:
        """Notify all nodes that this one has a log in its directory, and continues as its leader if it led it before.

        Call it before there is a connection: nodes promote a log if its leader only knows that it leads it.
        """
        self.announce_leader(log_id, self.leaders.leader(log_id) or Epoch(0, self.own.number, bytes(8)))

    def step_down(self, log_id: bytes, asked: int | None = None) -> None:
        """Step down as the leader of a log, and notify all nodes: another one may promote it at once.

        `asked`: the number of the node that is to lead it, None: any.
        """
        self.leaders.stepped_down[log_id] = asked
        self._send_leaders([log_id])

    def drop_log(self, log_id: bytes) -> None:
        """Record that this node no longer holds a log that another node leads."""
        self.leaders.held.pop(log_id, None)
        self.leaders.stepped_down.pop(log_id, None)

    def may_write_replica(self, number: int, log_id: bytes) -> bool:
        """Return True if a node may write the replica of a log here: it leads the log, or proved its id and none leads it."""
        if log_id in self.leaders.closed or (self.is_leaving and log_id in self.leaders.held):
            return False  # the new leader of a log that is transferred must not make a replica of it there
        leader = self.leaders.leader(log_id)
        if leader is not None and leader.node == number:
            return True
        link = self.links.get(number)
        has_proved = link is not None and link.peer is not None and link.peer.log_id == log_id
        return has_proved and (leader is None or leader.number == 0)

    def admitted(self, link: Link) -> None:
        link.send_first(pack_leaders(self.leaders.leaderships()))
        for closed in self.leaders.closed.values():
            link.send_first(pack_closed(closed))
        for part in self.parts:
            part.admitted(link)

    def receive(self, link: Link, kind: FrameKind, content: bytes, now: int) -> None:
        if link.peer is not None and self.links.get(link.peer.number) is not link:
            return
        taker = self._takers.get(kind)
        if taker is not None:
            taker.receive(link, kind, content, now)
        elif kind is FrameKind.LEADERS:
            self._receive_leaders(link, unpack_leaders(content))

    def _receive_leaders(self, link: Link, records: list[Leadership]) -> None:
        number, news = link.node.number, []
        for record in records:
            if record.hold is not Hold.KNOWS and record.epoch.node != number:
                raise PeerError("a node says that it leads a log by an epoch of another node")
            is_publisher = record.epoch.node == number and link.node.log_id == record.log_id
            is_believed = self.disputes.believes(number, record.log_id, record.epoch, is_publisher)
            if is_believed and self.leaders.learn(record.log_id, record.epoch):
                news.append(record.log_id)
        self.leaders.note_said(number, link.node.incarnation, records)
        self._forward_leaders(news)

    def _forward_leaders(self, news: list[bytes]) -> None:
        """Notify all peers, also the source, and all parts of logs with new leaders: this node may be one without the log."""
        self._send_leaders(news)
        for log_id in news:
            self.led(log_id, self.leaders.epochs[log_id])

    def send_leader(self, link: Link, log_id: bytes) -> None:
        """Send one node the leader of a log."""
        if log_id in self.leaders.epochs:
            link.send_first(pack_leaders([self.leaders.leadership(log_id)]))

    def _send_leaders(self, log_ids: list[bytes]) -> None:
        """Send all peers the leaders of some logs."""
        records = [self.leaders.leadership(log_id) for log_id in log_ids if log_id in self.leaders.epochs]
        for link in self.links.values():
            if records:
                link.send_first(pack_leaders(records))

    def note_space(self, link: Link, is_full: bool) -> None:
        (self.full.add if is_full else self.full.discard)(link.node.number)

    def note_contact(self, link: Link, lease: int | None, back_by: int | None, now: int) -> None:
        number = link.node.number
        if self.links.get(number) is not link:
            return
        known = self.membership.records[number].node
        if known is not link.peer and known != link.peer:
            return
        self.membership.note_contact(number, now)
        if lease is not None:
            self.leases[number] = max(lease, self.leases.get(number, 0))
        if back_by is not None:
            self.membership.announced(number, back_by)

    # time

    def tick(self, now: int) -> list[int]:
        """Do what is due. Returns the numbers of the nodes that are suspected from now on; their connections are closed."""
        if self.membership.must_read_first(now):
            for link in self.links.values():
                link.received_at = now
        silent = self.membership.check_silence(now)
        self._pass_on(None, self.membership.merge(self._reports.suspected(), now))
        self.membership.drop_unproved(now)
        for link in self.links.values():
            if now - link.received_at >= self._suspect_after:
                link.give_up("no heartbeat from the node")
        for link in (*self.strangers, *self.links.values()):
            link.tick(now)
        settled = self.disputes.settled(now)
        self._forward_leaders([log_id for log_id, epoch in settled if self.leaders.learn(log_id, epoch)])
        if not self.configs.is_complete and self._is_first():
            self.configs.complete()
        return silent

    def _is_first(self) -> bool:
        """Return True if each known node is connected, and has only begun as well: there was no cluster."""
        numbers = {node.number for node in self.membership.members}
        numbers |= self.dials.numbers_given()
        return not self.dials.is_searching and numbers - {self.own.number} <= self.links.keys() & self.configs.ignorant

    def announce_restart(self, grace: int) -> None:
        """Announce to all nodes, also to new connections, that this one stops and will be back within `grace` ms."""
        self._back_in = grace
        for link in self.links.values():
            link.announce_restart(grace)


def _rank(link: Link, own: NodeIdentity, peer: NodeIdentity) -> tuple[bool, bytes]:
    """Return the rank of a connection, which both nodes compute alike: of two, the one with the greater rank stays."""
    return link.is_dialer == (own.number < peer.number), link.handshake.hello


def _why_not(known: Member, node: NodeIdentity) -> str:
    """Return the reason why a run of a node is not accepted, given a later record of its number."""
    if known.standing is Standing.FORGOTTEN and known.node.log_id == node.log_id:
        return f"node {node.number} was forgotten: its log is not taken back, start it with a new data directory"
    if known.standing is Standing.LEFT and known.node == node:
        return f"node {node.number} has left the cluster"
    return (
        f"node {node.number} is another or a later run (incarnation {known.node.incarnation}), at {known.node.address}"
    )

"""A node's part in its cluster: which connections there are, whom to dial and when, and what is passed on.

It does no input or output: the owner makes connections, gives each one's bytes to its Link, sends what the link has, and calls
`tick` every TICK. Each pair of nodes keeps one connection. If both have dialed, that of the node with the lower number stays.

See docs/design/cluster.md#connections.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from nsqd.cluster.link import Link, make_link
from nsqd.cluster.membership import Member, Membership, Standing
from nsqd.protocols.peer.frames import PeerError
from nsqd.protocols.peer.handshake import NONCE_SIZE, Credentials
from nsqd.protocols.peer.node_identity import NodeIdentity

TICK = 250_000_000  # ns
MOST_STRANGERS = 64  # connections whose peer has not proved who it is
_ALIVE = 2_000_000_000  # ns: whoever was heard since then runs; another run of the node is not believed
_FIRST_PAUSE, _LONGEST_PAUSE = 500_000_000, 30_000_000_000  # ns between two dials of an address


@dataclass(slots=True)
class _Dial:
    """What is known of an address that may be dialed."""

    due: int = 0  # monotonic ns
    pause: int = _FIRST_PAUSE  # after the next failure
    is_busy: bool = False  # it is being dialed, or the connection is there
    number: int = -1  # of the node that was found there last; -1: none was


class Cluster:
    """One node's view of its cluster. Implements nsqd.cluster.link.Listener."""

    def __init__(
        self, credentials: Credentials, seeds: Iterable[str], suspect_after: int, random: Callable[[int], bytes]
    ) -> None:
        """`seeds`: addresses of other nodes (-cluster-peer); `random`: returns so many random bytes."""
        self.membership = Membership(credentials.own, suspect_after)
        self.lease = 0
        self.leases: dict[int, int] = {}  # the lease that each node told last, by its number
        self.links: dict[int, Link] = {}  # the connection to each node whose identity is proved
        self.strangers: list[Link] = []  # the other connections
        self.refused_itself = ""  # why another node says that this one must not go on; "": none does
        self._credentials = credentials
        self._random = random
        self._seeds = [address for address in seeds if address != credentials.own.address]
        self._dials: dict[str, _Dial] = {}
        self._addresses: dict[int, str] = {}  # of the dialed links, by id(link)

    # connections

    def take_due(self, now: int) -> str | None:
        """Return an address to dial now, or None. `dialed` or `dial_failed` must follow."""
        if len(self.strangers) >= MOST_STRANGERS:
            return None
        own = self._credentials.own
        nodes = {node.address: node.number for node in self.membership.members if node.number != own.number}
        for address in dict.fromkeys((*self._seeds, *nodes)):
            dial = self._dials.setdefault(address, _Dial())
            number = nodes.get(address, dial.number)
            if not dial.is_busy and dial.due <= now and number not in self.links:
                dial.is_busy = True
                return address
        return None

    def dialed(self, address: str, now: int) -> Link:
        """Return the link over a connection that was made to `address`."""
        link = self._begin(True, now)
        self._addresses[id(link)] = address
        return link

    def dial_failed(self, address: str, now: int) -> None:
        """Note that no connection could be made, or that it did not last: the address is dialed again after a pause."""
        dial = self._dials[address]
        jitter = int.from_bytes(self._random(2)) / 65536  # nodes must not dial each other in step
        dial.is_busy, dial.due = False, now + int(dial.pause * (0.5 + jitter))
        dial.pause = min(2 * dial.pause, _LONGEST_PAUSE)

    def accepted(self, now: int) -> Link | None:
        """Return the link over a connection that somebody has made; None if there are too many strangers: close it."""
        return self._begin(False, now) if len(self.strangers) < MOST_STRANGERS else None

    def _begin(self, is_dialer: bool, now: int) -> Link:
        link = make_link(self, self._credentials, self._random(NONCE_SIZE), is_dialer, now)
        self.strangers.append(link)
        return link

    def closed(self, link: Link, now: int) -> None:
        """Note that a connection is gone."""
        link.closing = link.closing or "the connection was closed"
        if link in self.strangers:
            self.strangers.remove(link)
        if link.peer is not None and self.links.get(link.peer.number) is link:
            del self.links[link.peer.number]
        address = self._addresses.pop(id(link), None)
        if address is not None:
            self.dial_failed(address, now)

    # what links tell

    def words(self) -> list[Member]:
        return list(self.membership.words.values())

    def proved(self, link: Link, peer: NodeIdentity, now: int) -> None:
        word = Member(peer)
        address = self._addresses.get(id(link))
        if address is not None:
            self._dials[address].number = peer.number
        known = self.membership.words.get(peer.number)
        if known is not None and known != word and not word.is_later_than(known):
            raise PeerError(_why_not(known, peer))
        other = self.links.get(peer.number)
        if other is not None:
            assert other.peer is not None
            if other.peer != peer and now - self.membership.heard_at(peer.number) < _ALIVE:
                raise PeerError(
                    f"node number {peer.number} is that of the node at {other.peer.address}, which is alive"
                )
            if other.peer == peer and self._is_kept(other, peer.number) and not self._is_kept(link, peer.number):
                raise PeerError("there is a connection already")
            other.closing = "another connection takes its place"
        self.strangers.remove(link)
        self.links[peer.number] = link
        if address is not None:
            self._dials[address].pause = _FIRST_PAUSE
        self._pass_on(link, self.membership.merge([word], now), now)
        self.membership.heard(peer.number, now)

    def _is_kept(self, link: Link, number: int) -> bool:
        """Return True if of two connections to a node this one stays: the lower number has dialed it."""
        return not link.closing and link.is_dialer == (self._credentials.own.number < number)

    def receive_words(self, link: Link, words: list[Member], now: int) -> None:
        contradiction = self.membership.contradiction(words)
        if contradiction is not None:
            self.refused_itself = _why_not(contradiction, self._credentials.own)
        self._pass_on(link, self.membership.merge(words, now), now)

    def _pass_on(self, source: Link, news: list[Member], now: int) -> None:
        for link in self.links.values():
            if link is not source:
                link.send_words(news, now)

    def heard(self, link: Link, lease: int | None, back_by: int | None, now: int) -> None:
        assert link.peer is not None
        number = link.peer.number
        if self.links.get(number) is not link:
            return
        self.membership.heard(number, now)
        if lease is not None:
            self.leases[number] = max(lease, self.leases.get(number, 0))
        if back_by is not None:
            self.membership.announced(number, back_by)

    # time

    def tick(self, now: int) -> list[int]:
        """Do what is due. Returns the numbers of the nodes that are suspected from now on; their connections are closed."""
        silent = self.membership.check_silence(now)
        for number in silent:
            if number in self.links:
                self.links[number].closing = "the node is silent"
        for link in (*self.strangers, *self.links.values()):
            link.tick(now)
        return silent

    def announce_restart(self, grace: int, now: int) -> None:
        """Tell all nodes that this one stops and will be back within `grace` ms."""
        for link in self.links.values():
            link.announce_restart(grace, now)


def _why_not(known: Member, node: NodeIdentity) -> str:
    """Return why a run of a node is not accepted, in view of a later word about its number."""
    if known.standing is Standing.FORGOTTEN and known.node == node:
        return f"node {node.number} was forgotten: start it with a new log"
    if known.standing is Standing.LEFT and known.node == node:
        return f"node {node.number} has left the cluster"
    return f"node {node.number} is another or a later run, at {known.node.address}"

"""The node's cluster port: it dials and accepts connections, and drives the node's view of its cluster by the clock.

See docs/contributing/design/cluster-protocol.md#connections.
"""

from __future__ import annotations

import socket
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Collection
from pathlib import Path
from shutil import disk_usage

import trio

from nsqd.cluster.membership.cluster import SECOND_CONNECTION, TICK, Cluster
from nsqd.cluster.replication.leader import LeaderSide
from nsqd.cluster.wire.cut import CUT_OFF, UNTIL_HEALED, Cuts
from nsqd.cluster.wire.link import Link
from nsqd.cluster.wire.peer import ClusterPeer
from nsqd.net.endpoint import Endpoint, OutputBounds
from nsqd.net.reactor import Reactor
from nsqd.protocols.conversation import Conversation
from nsqd.protocols.transport import Transport
from nsqd.storage.log.space import reserve_of
from shared.connection_limiter import ConnectionLimiter, ConnectionLimits
from shared.log import log
from shared.process.listen import parse_address
from shared.tls.mutual import MutualCertificates

SEND_WITHIN = 5_000_000  # ns within which followers are sent bytes for which no client waits
DIAL_TIMEOUT = 5.0  # s
FIND_EVERY = 5.0  # s between two requests to nsqlookupd
MOST_CONNECTIONS = 4096
MOST_REASONS = 1000  # for refusals that are remembered, so that the log does not repeat them
QUIET = 60_000_000_000  # ns between two lines about one reason
# Both sides of a connection between nodes always read, so only the sent bytes bound what waits for the network.
BOUNDS = OutputBounds(unsent=1 << 40)


class ClusterPort:
    """The connections of this node to the other nodes. All methods belong to the reactor's thread."""

    def __init__(
        self,
        cluster: Cluster,
        reactor: Reactor,
        directory: Path,
        lease: Callable[[], int],
        refused: Counter[str],
        on_refused: Callable[[str], None],
        tls: MutualCertificates | None = None,
    ) -> None:
        """Begin without a connection.

        `directory`: where replicas are kept; `lease`: returns the message id below which ids may have been issued; `refused`:
        how often connections were refused, by reason; `on_refused` is called with the IP address of each refused connection;
        `tls`: the certificates for every connection, None: there is no TLS.
        """
        self.cluster = cluster
        self._reactor = reactor
        self._directory = directory
        self._tls = tls
        self._lease = lease
        self._limiter = ConnectionLimiter("CLUSTER", ConnectionLimits(MOST_CONNECTIONS), refused)
        self._peers: dict[ClusterPeer, None] = {}
        self._cuts = Cuts()  # the partitioned nodes
        self._connected: dict[int, Link] = {}  # the logged links, by node number
        self._forgotten: set[bytes] = set()  # ids of the forgotten logs that were logged
        self._quiet_until: dict[str, int] = {}  # by address and reason: when it may be logged again, monotonic ns
        self._refused = ""  # the logged reason
        self._on_refused = on_refused

    def listen(self, sock: socket.socket) -> None:
        """Accept connections of other nodes at a listening socket."""
        wrap = self._tls.accept if self._tls else None
        self._reactor.listen(sock, self._make_peer, self._limiter, bounds=BOUNDS, wrap=wrap)

    def _make_peer(self, transport: Transport, ip: str, port: str, now: int, wall: int) -> Conversation:
        return self._peer(self.cluster.accepted(now), transport, ip, port)

    def _peer(self, link: Link | None, transport: Transport, ip: str, port: str) -> ClusterPeer:
        peer = ClusterPeer(link, transport, ip, port, self.events, self._gone, self._tls is not None, self._cuts)
        self._peers[peer] = None
        return peer

    def _gone(self, peer: ClusterPeer) -> None:
        self._peers.pop(peer, None)
        if peer.link is not None:
            if peer.link.peer is None and peer.link.closing and not peer.link.closing.endswith(SECOND_CONNECTION):
                self._report_refusal(peer)
                if not peer.link.is_dialer:
                    self._on_refused(peer.remote_ip)
            self.cluster.closed(peer.link, time.monotonic_ns())
            self.events()

    def events(self) -> None:
        """Handle the input, and let every connection queue its output."""
        self._report()
        now = time.monotonic_ns()
        for part in self.cluster.pumped:
            part.pump(now)
        self.flush()

    def wake(self) -> None:
        """Continue after work of other threads."""
        self.flush()  # a part of a log that was read goes to the connection before the next one is read
        self.events()
        self._reactor.wake()

    def send_group(self, leader_side: LeaderSide, is_awaited: bool, is_durable: bool) -> None:
        """Send a log's newest group to its followers before this node syncs it, so that all sync at the same time.

        `is_awaited`: replies wait until they have written it or, with `is_durable`, have synced it. Bytes for which no client
        waits are sent together with the next groups, within SEND_WITHIN.
        """
        if is_awaited:
            leader_side.sender.request_sync(is_durable)
        elif leader_side.sender.has_batch:
            self._wake_by(self._reactor.now + SEND_WITHIN)
        for peer in self._peers:
            peer.send_now()

    def _wake_by(self, due: int) -> None:
        """Have `events` called at `due`, monotonic ns, or earlier."""
        peer = next(iter(self._peers), None)
        if peer is not None and not any(one.is_due for one in self._peers):
            peer.wake_by(due)

    def flush(self) -> None:
        """Let every connection queue its output of this turn."""
        for peer in list(self._peers):
            peer.flush()

    # by the clock

    async def run(self, nursery: trio.Nursery) -> None:
        """Dial nodes, send heartbeats, and check for missing ones, until cancelled."""
        while True:
            now = time.monotonic_ns()
            self._heal(self._cuts.over(now))
            self.cluster.lease = self._lease()
            self.cluster.is_full = self._is_full()
            for number in self.cluster.tick(now):
                log.warning("CLUSTER: no heartbeat from node %d at %s", number, self._address(number))
            while (address := self.cluster.take_due(now)) is not None:
                nursery.start_soon(self._dial, address)
            for part in self.cluster.parts:
                part.tick(now)
            self.events()
            self._reactor.wake()
            await trio.sleep(TICK / 1e9)

    def _is_full(self) -> bool:
        """Return True if there is no space for another replica: existing ones stop at two thirds of this."""
        try:
            usage = disk_usage(self._directory)
        except OSError:
            return True
        return usage.free < 3 * reserve_of(usage.total)

    async def discover(self, find: Callable[[str], Awaitable[list[str] | None]]) -> None:
        """Ask `find` repeatedly for addresses of nodes of the cluster with that name, until cancelled; None: ask soon."""
        while True:
            found = await find(self.cluster.name)
            if found is not None:
                self.cluster.dials.set_found(found)
            await trio.sleep(FIND_EVERY if found is not None else TICK / 1e9)

    async def _dial(self, address: str) -> None:
        while address in map(self._address, self._cuts.numbers):
            await trio.sleep(TICK / 1e9)  # as a connection over a network that drops every packet
        try:
            with trio.fail_after(DIAL_TIMEOUT + 1):
                sock = await trio.to_thread.run_sync(_connect, address, abandon_on_cancel=True)
        except (OSError, UnicodeError, trio.TooSlowError) as error:
            log.debug("CLUSTER: cannot connect to %s: %s", address, error)
            self.cluster.dial_failed(address, time.monotonic_ns(), isinstance(error, ConnectionRefusedError))
            return
        link = self.cluster.dialed(address, time.monotonic_ns())

        def make_peer(transport: Transport, ip: str, port: str, now: int, wall: int) -> Conversation:
            return self._peer(link, transport, ip, port)

        wrap = self._tls.dial if self._tls else None
        try:
            self._reactor.adopt(sock, Endpoint(make_peer, self._limiter, None, BOUNDS, wrap=wrap))
        except OSError as error:
            log.debug("CLUSTER: cannot use the connection to %s: %s", address, error)
            self.cluster.closed(link, time.monotonic_ns())
        self._reactor.wake()

    def cut_off(self, number: int, duration: int) -> list[int]:
        if number == self.cluster.own.number:
            raise ValueError("a node cannot be partitioned from itself")
        self._cuts.begin(number, time.monotonic_ns() + duration if duration else UNTIL_HEALED)
        log.info("CLUSTER: partitioned from node %d by a debug route", number)
        return self._cuts.numbers

    def heal(self, number: int | None) -> list[int]:
        self._heal(self._cuts.numbers if number is None else {number}.intersection(self._cuts.numbers))
        self.events()
        return self._cuts.numbers

    def _heal(self, numbers: Collection[int]) -> None:
        """End partitions. A connection that survived one lacks what was dropped, so it is replaced."""
        for peer in list(self._peers):
            if peer.link is not None and self._cuts.number_of(peer.link) in numbers:
                peer.link.give_up(CUT_OFF)
                peer.flush()
        self._cuts.end(numbers)
        for number in numbers:
            log.info("CLUSTER: no longer partitioned from node %d", number)

    # the log

    def _report(self) -> None:
        links = self.cluster.links
        if links != self._connected:
            for number, link in links.items():
                if self._connected.get(number) is not link:
                    log.info("CLUSTER: connected to node %d at %s", number, self._address(number))
            for number in self._connected.keys() - links.keys():
                why = self._connected[number].closing
                log.info("CLUSTER: no connection to node %d at %s: %s", number, self._address(number), why)
            self._connected = dict(links)
        forgotten = self.cluster.membership.forgotten
        if len(forgotten) != len(self._forgotten):
            for log_id in forgotten.keys() - self._forgotten:
                log.info("CLUSTER: node %d was forgotten, with its log %s", forgotten[log_id].node.number, log_id.hex())
            self._forgotten = set(forgotten)
        if self.cluster.refused_itself != self._refused:
            self._refused = self.cluster.refused_itself
            log.error("CLUSTER: rejected by the cluster: %s", self._refused)

    def _report_refusal(self, peer: ClusterPeer) -> None:
        """Log why a connection ended before the other node was proved, each reason at most once in QUIET."""
        assert peer.link is not None
        now, why = time.monotonic_ns(), f"{peer.remote_ip} {peer.link.closing}"
        if now >= self._quiet_until.get(why, 0):
            if len(self._quiet_until) >= MOST_REASONS:
                self._quiet_until.clear()
            self._quiet_until[why] = now + QUIET
            log.warning("CLUSTER: refused: %s:%s: %s", peer.remote_ip, peer.port, peer.link.closing)

    def _address(self, number: int) -> str:
        record = self.cluster.membership.records.get(number)
        return record.node.address if record is not None else "an unknown address"

    def addresses(self) -> dict[int, str]:
        """Return the addresses of the cluster ports of the connected nodes, by node number. Any thread may ask."""
        records = self.cluster.membership.records
        return {number: records[number].node.address for number in list(self.cluster.links) if number in records}


def _connect(address: str) -> socket.socket:
    """Return a connection to host:port. Raises OSError."""
    parsed = parse_address(address)
    return socket.create_connection((parsed.host, parsed.port), DIAL_TIMEOUT)

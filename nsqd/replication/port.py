"""The node's cluster port: it dials and accepts connections, and drives the node's view of its cluster by the clock.

See docs/design/cluster.md#connections.
"""

from __future__ import annotations

import socket
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from functools import partial
from pathlib import Path
from shutil import disk_usage
from typing import Any

import trio

from nsqd.cluster.claims import Claims
from nsqd.cluster.cluster import SECOND_CONNECTION, TICK, Cluster
from nsqd.cluster.cut import CUT_OFF, UNTIL_HEALED, Cuts, CuttablePeer
from nsqd.cluster.facts import NO_FACTS
from nsqd.cluster.leaving import Leaving
from nsqd.cluster.link import Link
from nsqd.cluster.membership import Standing
from nsqd.cluster.peer import ClusterPeer
from nsqd.core.cluster_view import AdoptedLog, ReadableMirror
from nsqd.core.message.epoch import Epoch
from nsqd.core.message.ids import LEASE, SAFE_LEASES, ClockError, first_of_new_log
from nsqd.core.retention.backup import METADATA, BackupPart
from nsqd.core.retention.policy import TopicConfig
from nsqd.net.endpoint import Endpoint, OutputBounds
from nsqd.net.reactor import Reactor
from nsqd.protocols.conversation import Conversation
from nsqd.protocols.peer.claims import NO_MIRROR, Extent
from nsqd.protocols.transport import Transport
from nsqd.replication.adopted_log import CLOSED, LOST, SERVING
from nsqd.replication.adoption import Adoptions
from nsqd.replication.claiming import CountsTeller
from nsqd.replication.copying import Copying
from nsqd.replication.facts import NAME as FACTS
from nsqd.replication.facts import content_of, describe_closed, facts_of, for_another, write_facts
from nsqd.replication.log_times import LogTimes
from nsqd.replication.origin import Origin
from nsqd.storage.directory import Metadata, encode
from nsqd.storage.log.space import reserve_of
from nsqd.storage.mirror.past import read_mirror
from shared.connection_limiter import ConnectionLimiter, ConnectionLimits
from shared.listen import parse_address
from shared.log import log
from shared.tls_mutual import MutualCertificates

SEND_WITHIN = 5_000_000  # ns in which followers are sent what nobody waits for
DIAL_TIMEOUT = 5.0  # s
FIND_EVERY = 5.0  # s between two questions to nsqlookupd
MOST_CONNECTIONS = 4096
MOST_REASONS = 1000  # for refusals that are remembered, so that the log does not repeat them
KEEP_AGAIN = 10_000_000_000  # ns after which cluster.json is written again when that has failed
QUIET = 60_000_000_000  # ns between two lines about one reason
# Both sides of a connection between nodes always read: how much may wait for the network is bounded by what is sent.
BOUNDS = OutputBounds(unsent=1 << 40)


class ClusterPort:
    """The connections of this node to the other nodes. Implements nsqd.core.cluster_view.ClusterView.

    All methods belong to the reactor's thread.
    """

    def __init__(
        self,
        cluster: Cluster,
        reactor: Reactor,
        directory: Path,
        lease: Callable[[], int],
        refused: Counter[str],
        tls: MutualCertificates | None = None,
    ) -> None:
        """Begin without a connection.

        `directory`: where cluster.json is kept; `lease`: returns the message id below which ids may have been issued; `tls`:
        the certificates for every connection, None: there is no TLS.
        """
        self.cluster = cluster
        self._reactor = reactor
        self._directory = directory
        self._tls = tls
        self._lease = lease
        self._limiter = ConnectionLimiter("CLUSTER", ConnectionLimits(MOST_CONNECTIONS), refused)
        self._peers: dict[ClusterPeer, None] = {}
        self._cuts: Cuts | None = None  # the nodes that are cut off; None: none ever is, there are no debug routes
        self._known = NO_FACTS  # as the file has it; none: the start may have found no space for it
        self._until_kept: list[Callable[[bool], None]] = []  # who waits until what is known now is in the file
        self._keep_due = 0  # when the file is written at the earliest, monotonic ns
        self._connected: dict[int, Link] = {}  # the links that the log was told of, by node number
        self._forgotten: set[bytes] = set()  # ids of logs that were forgotten, which the log was told of
        self._quiet_until: dict[str, int] = {}  # by address and reason: when the log tells of it again, monotonic ns
        self._refused = ""  # what the log was told of
        self.copying: Copying | None = None  # copies of logs, in both directions
        self.adoptions: Adoptions | None = None  # the logs that this node has taken over
        self.claims: Claims | None = None  # on the logs of nodes that are lost
        self.leaving = Leaving(cluster)
        self.leaving.keep = self.keep
        self.times: LogTimes | None = None  # of logs
        self.in_flight: Callable[[], int] = lambda: 0  # returns how many messages clients have
        # is told of each greater epoch by which another node owns the log into which this one publishes
        self.on_fenced: Callable[[bytes, Epoch], None] = lambda log_id, epoch: None
        # is told of each connection from an IP address that was refused
        self.on_refused: Callable[[str], None] = lambda ip: None
        self.tellers: dict[bytes, CountsTeller] = {}  # one for each log that this node owns, by log id
        self.ends: dict[bytes, Extent] = {}  # how far adopted logs went that are not copied any more, by log id
        self._is_stopping = False
        self._keep_now = trio.Event()  # somebody waits until cluster.json is written

    def listen(self, sock: socket.socket) -> None:
        """Accept connections of other nodes at a listening socket."""
        wrap = self._tls.accept if self._tls else None
        self._reactor.listen(sock, self._make_peer, self._limiter, bounds=BOUNDS, wrap=wrap)

    def _make_peer(self, transport: Transport, ip: str, port: str, now: int, wall: int) -> Conversation:
        return self._peer(self.cluster.accepted(now), transport, ip, port)

    def _peer(self, link: Link | None, transport: Transport, ip: str, port: str) -> ClusterPeer:
        common = link, transport, ip, port, self.events, self._gone, self._tls is not None
        peer = ClusterPeer(*common) if self._cuts is None else CuttablePeer(*common, self._cuts)
        self._peers[peer] = None
        return peer

    def _gone(self, peer: ClusterPeer) -> None:
        self._peers.pop(peer, None)
        if peer.link is not None:
            if peer.link.peer is None and peer.link.closing and not peer.link.closing.endswith(SECOND_CONNECTION):
                self._report_refusal(peer)
                if not peer.link.is_dialer:
                    self.on_refused(peer.remote_ip)
            self.cluster.closed(peer.link, time.monotonic_ns())
            self.events()

    def events(self) -> None:
        """Take note of what came, and let every connection say what it has to say."""
        self._report()
        if self.copying is not None:
            self.copying.turn(time.monotonic_ns())
        self.flush()

    def wake(self) -> None:
        """Go on after work that was done elsewhere."""
        self.events()
        self._reactor.wake()

    def copied_group(self, is_awaited: bool, is_durable: bool, origin: Origin | None = None) -> None:
        """Send the newest group to the followers before this node syncs it, so that all sync at the same time.

        `is_awaited`: replies wait until they have written it or, with `is_durable`, have synced it. What nobody waits for is
        sent together with the next groups, within SEND_WITHIN. `origin`: the copies of a log that this node has taken over,
        None: those of its own log.
        """
        if self.copying is not None:
            origin = origin or self.copying.origin
            if is_awaited:
                origin.ask_for_word(is_durable)
            elif origin.has_batch:
                self._wake_by(self._reactor.now + SEND_WITHIN)
        for peer in self._peers:
            peer.send_now()

    def _wake_by(self, due: int) -> None:
        """Have `events` called at `due`, monotonic ns, or earlier."""
        peer = next(iter(self._peers), None)
        if peer is not None and not any(one.is_due for one in self._peers):
            peer.wake_by(due)

    def flush(self) -> None:
        """Let every connection say what it has to say with this turn."""
        for peer in list(self._peers):
            peer.flush()

    # by the clock

    async def run(self, nursery: trio.Nursery) -> None:
        """Dial nodes, send heartbeats, and find out who is silent, until cancelled."""
        nursery.start_soon(self._keep_facts)
        while True:
            now = time.monotonic_ns()
            if self._cuts is not None:
                self._heal(self._cuts, self._cuts.over(now))
            self.cluster.lease = self._lease()
            self.cluster.is_full = self._is_full()
            for number in self.cluster.tick(now):
                log.warning("CLUSTER: node %d at %s is silent", number, self._address(number))
            while (address := self.cluster.take_due(now)) is not None:
                nursery.start_soon(self._dial, address)
            for part in self.cluster.parts:
                part.tick(now)
            self._tick_leaving(now)
            self.events()
            self._reactor.wake()
            await trio.sleep(TICK / 1e9)

    def _tick_leaving(self, now: int) -> None:
        """Go on with leaving the cluster, if this node does."""
        if self.cluster.is_leaving and self.copying is not None:
            self.leaving.tick(now, self.in_flight(), [origin.followed() for origin in self.copying.origins.values()])

    def leave(self, limit: int) -> None:
        self.leaving.begin(limit, time.monotonic_ns())
        self._reactor.wake()

    def own_extent(self, log_id: bytes) -> Extent:
        """Return how far a log goes that this node owns, or how far it went; NO_MIRROR: this was not known in this run."""
        origin = self.copying.origins.get(log_id) if self.copying is not None else None
        return origin.extent() if origin is not None else self.ends.get(log_id, NO_MIRROR)

    def configured(self, topic: str, config: TopicConfig) -> None:
        self.cluster.configs.configure(topic, config, time.time_ns() // 1_000_000, self.cluster.own.number)
        self.flush()

    def config_of(self, topic: str) -> TopicConfig | None:
        known = self.cluster.configs.known.get(topic)
        return known.config if known is not None else None

    def leaving_state(self) -> dict[str, Any]:
        return self.leaving.figures()

    def _is_full(self) -> bool:
        """Return True if there is no space for another mirror: those that are here give up at two thirds of this."""
        try:
            usage = disk_usage(self._directory)
        except OSError:
            return True
        return usage.free < 3 * reserve_of(usage.total)

    async def discover(self, find: Callable[[str], Awaitable[list[str] | None]]) -> None:
        """Ask `find` again and again for addresses of nodes of the cluster with that name, until cancelled; None: ask soon."""
        while True:
            found = await find(self.cluster.name)
            if found is not None:
                self.cluster.set_found(found)
            await trio.sleep(FIND_EVERY if found is not None else TICK / 1e9)

    async def _dial(self, address: str) -> None:
        while self._cuts is not None and address in map(self._address, self._cuts.numbers):
            await trio.sleep(TICK / 1e9)  # as a connection over a network that drops every packet
        try:
            with trio.fail_after(DIAL_TIMEOUT + 1):
                sock = await trio.to_thread.run_sync(_connect, address, abandon_on_cancel=True)
        except (OSError, UnicodeError, trio.TooSlowError) as error:
            log.debug("CLUSTER: cannot connect to %s: %s", address, error)
            self.cluster.dial_failed(address, time.monotonic_ns())
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

    async def _keep_facts(self) -> None:
        """Write cluster.json whenever something in it has changed. A disk that hangs holds up no heartbeat."""
        while True:
            await self._keep()
            with trio.move_on_after(TICK / 1e9):
                await self._keep_now.wait()

    async def _keep(self) -> None:
        """Write cluster.json if anything in it has changed."""
        known = facts_of(self.cluster)
        self._keep_now = trio.Event()
        if known != self._known and time.monotonic_ns() < self._keep_due and not self._until_kept:
            return
        waiting, self._until_kept = self._until_kept, []
        if known != self._known:
            try:
                await trio.to_thread.run_sync(partial(write_facts, self._directory, known))
            except OSError as error:
                log.error("CLUSTER: cannot write what is known of the nodes: %s; trying again", error)
                self._keep_due = time.monotonic_ns() + KEEP_AGAIN
            else:
                self._known = known
        for then in waiting:
            then(known == self._known)
        if waiting:
            self.wake()

    def keep(self, then: Callable[[bool], None]) -> None:
        """Write what is known of the cluster, and call `then` when it is durable (True) or cannot be written."""
        self._until_kept.append(then)
        self._keep_due = 0
        self._keep_now.set()

    def announce_restart(self, grace: int) -> None:
        """Tell the other nodes that this one stops, and will be back within `grace` ns."""
        self.cluster.announce_restart(grace // 1_000_000)
        self.flush()
        self._reactor.wake()

    def stop_adopting(self) -> None:
        """Take over no log any more: this node stops. No thread that does so is waited for longer than for what is at hand."""
        self._is_stopping = True
        if self.adoptions is not None:
            self.adoptions.stop()

    def close(self) -> None:
        """Sync and close what this node keeps of other nodes' logs, when the reactor has closed all connections."""
        if self.adoptions is not None:
            self.adoptions.close()
        if self.copying is not None:
            self.copying.close()

    def forget(self, number: int, then: Callable[[bool], None]) -> None:
        self.cluster.forget(number, time.monotonic_ns())
        self.keep(then)
        self.events()

    def adopt(self, log_id: bytes) -> None:
        if self.claims is None:
            raise KeyError(log_id)
        self.claims.adopt(log_id)

    def allow_cuts(self) -> None:
        """Let `cut_off` be called. It must come before the first connection."""
        self._cuts = Cuts()

    def cut_off(self, number: int, duration: int) -> list[int]:
        assert self._cuts is not None
        if number == self.cluster.own.number:
            raise ValueError("a node is not cut off from itself")
        self._cuts.begin(number, time.monotonic_ns() + duration if duration else UNTIL_HEALED)
        log.info("CLUSTER: cut off from node %d, as a debug route asked", number)
        return self._cuts.numbers

    def heal(self, number: int | None) -> list[int]:
        assert self._cuts is not None
        self._heal(self._cuts, self._cuts.numbers if number is None else {number}.intersection(self._cuts.numbers))
        self.events()
        return self._cuts.numbers

    def _heal(self, cuts: Cuts, numbers: Collection[int]) -> None:
        """End cuts. A connection that lived through one lacks what was dropped, so another one takes its place."""
        for peer in list(self._peers):
            if peer.link is not None and cuts.number_of(peer.link) in numbers:
                peer.link.give_up(CUT_OFF)
                peer.flush()
        cuts.end(numbers)
        for number in numbers:
            log.info("CLUSTER: no longer cut off from node %d", number)

    # the log

    def _report(self) -> None:
        links = self.cluster.links
        for number, link in links.items():
            if self._connected.get(number) is not link:
                log.info("CLUSTER: connected to node %d at %s", number, self._address(number))
        for number in self._connected.keys() - links.keys():
            why = self._connected[number].closing
            log.info("CLUSTER: no connection to node %d at %s: %s", number, self._address(number), why)
        if links != self._connected:
            self._connected = dict(links)
        forgotten = self.cluster.membership.forgotten
        if len(forgotten) != len(self._forgotten):
            for log_id in forgotten.keys() - self._forgotten:
                log.info("CLUSTER: node %d was forgotten, with its log %s", forgotten[log_id].node.number, log_id.hex())
            self._forgotten = set(forgotten)
        if self.cluster.refused_itself != self._refused:
            self._refused = self.cluster.refused_itself
            log.error("CLUSTER: another node says: %s", self._refused)

    def _report_refusal(self, peer: ClusterPeer) -> None:
        """Tell why a connection ended before the other node was proved, each reason once in a while."""
        assert peer.link is not None
        now, why = time.monotonic_ns(), f"{peer.remote_ip} {peer.link.closing}"
        if now >= self._quiet_until.get(why, 0):
            if len(self._quiet_until) >= MOST_REASONS:
                self._quiet_until.clear()
            self._quiet_until[why] = now + QUIET
            log.warning("CLUSTER: refused: %s:%s: %s", peer.remote_ip, peer.port, peer.link.closing)

    def _address(self, number: int) -> str:
        word = self.cluster.membership.words.get(number)
        return word.node.address if word is not None else "an unknown address"

    def figures(self) -> dict[str, object]:
        """Return what is known of the nodes and of the copies of logs, for /cluster."""
        refusals = sorted(self.cluster.refusals.items())
        figures: dict[str, object] = {
            "nodes": self._nodes(),
            "refused": [{"node": node, "address": address, "reason": why} for node, (address, why) in refusals],
            "closed": [describe_closed(word) for word in self.cluster.ownership.closed.values()],
            **{part.shown_as: part.figures() for part in self.cluster.parts if part.shown_as},
        }
        if self.copying is not None:
            origin, mirrors = self.copying.origin, self.copying.mirrors
            figures |= {"copies": origin.figures(), "followers": origin.states(), "mirrors": mirrors.states()}
            figures["mirror_failures"] = mirrors.failures
            figures["owned"] = self._owned(self.copying)
        if self.adoptions is not None:
            figures["takeovers"] = self.adoptions.takeovers.figures()
        return figures

    def _owned(self, copying: Copying) -> list[dict[str, object]]:
        """Return what is told of the logs that this node owns: first that into which it publishes."""
        own = {"node": self.cluster.own.number, "state": SERVING, **copying.origin.owned()}
        adopted = self.adoptions.figures() if self.adoptions is not None else []
        begun = {log_id.hex(): origin.owned() for log_id, origin in copying.origins.items()}
        return [own, *(told_of_adopted(one, begun.get(str(one["log_id"]))) for one in adopted)]

    def http_addresses(self) -> dict[int, str]:
        """Return where the nodes that are connected answer over HTTP, by node number. Any thread may ask."""
        words = self.cluster.membership.words
        return {number: words[number].node.http for number in list(self.cluster.links) if number in words}

    def mirror(self, log_id: bytes, start: int) -> tuple[Sequence[BackupPart], Mapping[str, bytes]]:
        if self.copying is None:
            raise KeyError(log_id)
        kept = self.copying.mirrors.kept[log_id]
        parts = self.copying.mirrors.parts(kept, start)
        if start:
            return parts, {}
        metadata = Metadata(ids=safe_id(self.cluster, kept.node, time.time_ns()))
        known = for_another(facts_of(self.cluster), kept.node)
        return parts, {METADATA: encode(metadata), FACTS: content_of(known)}

    def readable_mirror(self, log_id: bytes) -> ReadableMirror:
        if self.copying is None:
            raise KeyError(log_id)
        kept = self.copying.mirrors.kept[log_id]
        mirror, disk = kept.mirror, kept.disk
        if mirror is None or disk is None or not mirror.durable:
            raise KeyError(log_id)
        manifest, durable = mirror.manifest, mirror.durable
        return ReadableMirror(manifest.files, durable, lambda: read_mirror(disk, manifest, durable, self.interrupt))

    def interrupt(self) -> None:
        """Raise OSError if this node stops: no thread that reads a copy is waited for."""
        if self._is_stopping:
            raise OSError("this node stops")

    def adopted_logs(self) -> dict[bytes, tuple[int, AdoptedLog]]:
        owned = self.adoptions.logs.values() if self.adoptions is not None else ()
        return {one.log_id: (one.node, one.log) for one in owned if one.state == SERVING and one.log is not None}

    def is_opening(self, log_id: bytes) -> bool:
        kept = self.copying.mirrors.kept.get(log_id) if self.copying is not None else None
        if kept is not None:
            return kept.mirror is None
        return self.adoptions is not None and self.adoptions.owns(log_id)

    def _nodes(self) -> list[dict[str, object]]:
        """Return what is known of each node, by its number."""
        cluster = self.cluster
        suspected = cluster.membership.suspected
        return [
            {
                "node": number,
                "address": word.node.address,
                "http_address": word.node.http,
                "standing": Standing(word.standing).name.lower(),
                "connected": number in cluster.links,
                "suspected": number in suspected,
                "restarting": cluster.membership.is_going(number) and number not in suspected,
                "incarnation": word.node.incarnation,
                "log_id": word.node.log_id.hex(),
                "lease": cluster.lease if word.node is cluster.own else cluster.leases.get(number, 0),
            }
            for number, word in sorted(cluster.membership.words.items())
        ]


def safe_id(cluster: Cluster, number: int, wall: int) -> int:
    """Return the message id with which a lost node is to go on at `wall` (ns since the epoch).

    It is above all that the others were told, and above the time: the node may have been lost before, and have issued ids since
    that nobody was told of.
    """
    lease = cluster.leases.get(number, 0)
    try:
        return first_of_new_log(wall, lease)
    except ClockError as error:
        log.error("CLUSTER: message ids of the lost node %d depend on its last report: %s", number, error)
        return lease + SAFE_LEASES * LEASE


def told_of_adopted(adopted: dict[str, Any], begun: dict[str, Any] | None) -> dict[str, object]:
    """Return what /cluster tells of an adopted log. `begun`: its epochs and its end; None: it is not open."""
    if begun is not None:
        return {"opening": False, **begun, **adopted}
    return {"epochs": [], "end": 0, "opening": adopted["state"] not in (LOST, CLOSED), **adopted}


def _connect(address: str) -> socket.socket:
    """Return a connection to host:port. Raises OSError."""
    parsed = parse_address(address)
    return socket.create_connection((parsed.host, parsed.port), DIAL_TIMEOUT)

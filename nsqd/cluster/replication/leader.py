"""The leader's side of copying: which followers get a log of this node, and how far each has it. `sending` has how they get it.

A follower first reports what it has; the epochs of both copies show what it lacks.

See docs/contributing/design/cluster-protocol.md#replicas.
"""

from __future__ import annotations

from typing import Any

from nsqd.cluster.membership.cluster import Cluster
from nsqd.cluster.membership.leader_frames import LogExtent
from nsqd.cluster.replication import stream
from nsqd.cluster.replication.follower import Follower, KnownNode, Phase, Work, chosen
from nsqd.cluster.replication.in_sync import InSync
from nsqd.cluster.replication.lag import LAGGING, WriteTimes
from nsqd.cluster.replication.sending import LogSender
from nsqd.cluster.replication.waits import WaitReports
from nsqd.cluster.wire.frames import FrameKind, PeerError
from nsqd.cluster.wire.link import Link
from nsqd.core.message.epoch import NO_EPOCH
from nsqd.core.message.epoch import unpack as unpack_epoch
from nsqd.storage.log.copies import Copies
from nsqd.storage.log.copying import LogSource
from shared.log import log
from shared.values import SECOND

ASK_OTHERWISE = 5_000_000_000  # ns after which a follower that knows another leader is asked again
# ns for which a node that stopped for lack of space is not chosen, unless there is no other
NO_ROOM_FOR = 600_000_000_000
OUT_OF_SYNC = 5_000_000_000  # ns after which a follower that does not keep up is removed from the in-sync ones


class LeaderSide:
    """The copies of a log that this node leads."""

    def __init__(
        self,
        cluster: Cluster,
        source: LogSource,
        copies: Copies,
        work: Work,
        replicas: int,
        patience: int,
        rate: int = 0,
    ) -> None:
        """`replicas`: how many other nodes keep a copy, if no topic asks for more; `patience`: ns until a dead one is replaced.

        `rate`: bytes a second that are read from files, for all followers that are far behind; 0: no limit.
        """
        self.log_id = source.log_id
        is_own = source.log_id == cluster.own.log_id
        self._whose = "this node's log" if is_own else f"the promoted log {source.log_id.hex()}"
        self.sender = LogSender(source, cluster.own.log_id, work, rate, self._whose, self._update_copies)
        self.followers = self.sender.followers  # by node number
        self.copies = copies
        self._reports = WaitReports(copies, self._whose)
        self._without_room: dict[int, int] = {}  # when nodes stopped for lack of space, by number, monotonic ns
        self.in_sync = InSync(source.followers, source.end, OUT_OF_SYNC, cluster.own.number)
        self.has_news = False  # another follower is in sync, or has caught up, since InSyncReports looked
        self._away: list[int] = []  # numbers of the assigned followers without a connection
        self._cluster = cluster
        self.source = source
        self._replicas = replicas
        self._patience = patience
        self._last_seen: dict[int, int] = {}  # when each node had a connection last, monotonic ns
        self._now = 0  # time of the last tick
        self._write_times = WriteTimes(source.end)
        self._reached = 0  # position up to which a follower had a log whose sync has failed
        self._settled: int | None = None  # log's end when only those that are chosen began to count; None: others count
        self._dropped: dict[int, Link] = {}  # nodes that were sent DROP, with the connection

    # connections

    def tick(self, now: int) -> None:
        """Choose followers, ask the new ones, and report how far all are. Call it several times a second."""
        self.sender.tick(now)
        links, self._now = self._cluster.links, now
        for number in links:
            self._last_seen[number] = now
        for number in [one for one, follower in self.followers.items() if links.get(one) is not follower.link]:
            self.sender.lose(number)
        wanted = self._chosen(now)
        self._away = [number for number in wanted if number not in links]
        for number in wanted:
            link = links.get(number)
            if link is not None and number not in self.followers:
                self.followers[number] = Follower(number, link)
                self._dropped.pop(number, None)  # it gets DROP again when it is no longer chosen
                self._ask(self.followers[number])
        for follower in self.followers.values():
            if 0 < follower.ask_at <= now:
                self._ask(follower)
        self._update_copies()
        self._record_in_sync(wanted, now)
        self._release(wanted)
        self._reports.report_late(
            now, (number for number, one in self.followers.items() if one.written < self.source.end)
        )
        self.copies.expire(now)
        self._reports.report_given_up(now)
        self._write_times.note(self.source.end, now)
        self._write_times.forget(
            min((one.written for one in self.followers.values() if one.has_replica), default=self.source.end)
        )
        self.sender.pump()

    def _ask(self, follower: Follower) -> None:
        """Ask a follower what it has. Its earlier reports no longer count."""
        follower.ask_at, follower.phase = 0, Phase.ASKED
        follower.asked += 1
        self.sender.send(follower.link, stream.pack_follow(follower.asked))

    def _chosen(self, now: int) -> list[int]:
        """Return the numbers of the nodes that are to be followers, best first."""
        cluster = self._cluster
        own = cluster.own
        candidates = [
            KnownNode(
                node.number,
                now - self._last_seen.setdefault(node.number, now) < self._patience,
                self._has_room(node.number, now),
                not own.zone or node.zone != own.zone,
            )
            for node in cluster.membership.members
            if node is not own
        ]
        return chosen(self.log_id, candidates, self.wanted)

    @property
    def wanted(self) -> int:
        """Return the number of followers: one more than topics wait for, so that publishes outlive the loss of one.

        And at least as many as publishes had that are in the log, whatever topics wait for now.
        """
        most = self.copies.configured
        return max(self._replicas, most if most > 1 else 0, self.in_sync.stated.most - 1)

    def _has_room(self, number: int, now: int) -> bool:
        """Return True if a node may have space for a replica. A node that stopped for lack of it counts as full for a while."""
        gave_up = number in self._without_room and now - self._without_room[number] < NO_ROOM_FOR
        return number in self.in_sync.named or not (gave_up or number in self._cluster.full)

    def _release(self, wanted: list[int]) -> None:
        """Send DROP to the nodes that are not assigned.

        They get DROP once only assigned followers are in sync, and these have durably all that the log had at that time.
        """
        if not self.in_sync.is_confirmed or self.in_sync.named != set(wanted) or len(wanted) < self.wanted:
            self._settled = None
            return
        if self._settled is None:
            self._settled = self.source.end
        followers = [self.followers.get(number) for number in wanted]
        if not all(one and one.is_caught_up and one.durable >= self._settled for one in followers):
            return
        for number, link in self._cluster.links.items():
            if number not in wanted and self._dropped.get(number) is not link:
                self._dropped[number] = link
                self.sender.lose(number)
                self.sender.send(link, stream.pack_epochs(FrameKind.DROP, self.source.epochs()))
        self._update_copies()

    def receive(self, link: Link, kind: FrameKind, content: bytes) -> None:
        """Take what a follower says. Raises PeerError."""
        follower = self.followers.get(link.node.number)
        if follower is None or follower.link is not link:
            return  # it was let go meanwhile
        if kind is FrameKind.HAVE:
            have = stream.unpack_have(content)
            if follower.phase is not Phase.ASKED or have.asked != follower.asked:
                return  # it has written more since then, or will get another frame
            try:
                self.sender.begin(follower, have)
            except OSError as error:  # a segment was removed or rewritten at this moment
                log.warning("CLUSTER: cannot read the log for node %d: %s", follower.number, error)
                self.sender.ask_again(follower)
        elif kind is FrameKind.COPIED:
            written, durable = stream.unpack_copied(content)
            if not durable <= written <= self.source.end:
                raise PeerError("a replica cannot have more than the log")
            follower.written, follower.durable = written, durable
            follower.has_replica = True
            self._update_copies()
        else:
            self._gave_up(follower, stream.unpack_gave_up(content) or "for no reason")

    def _gave_up(self, follower: Follower, why: str) -> None:
        """Handle that a follower cannot continue at present. It reports again what it has when it can."""
        follower.failure = why
        follower.phase = Phase.ASKED
        follower.has_replica = follower.is_caught_up = False
        if why == stream.NOT_LEADER:  # it does not know yet that this node has promoted the log
            follower.ask_at = self._now + ASK_OTHERWISE
        else:
            log.warning("CLUSTER: node %d cannot copy %s at present: %s", follower.number, self._whose, why)
        if why == stream.NO_SPACE:
            self._without_room[follower.number] = self._now
        self._update_copies()

    # how far the copies are

    def _update_copies(self) -> None:
        """Move the marks of the copies to where the in-sync followers are, and note which followers have caught up."""
        whole = [follower for follower in self.followers.values() if follower.has_replica]
        for follower in whole:
            if follower.is_live and not follower.is_caught_up:
                follower.is_caught_up = self.has_news = True
        if not self.in_sync.is_confirmed:
            durable = {follower.number: follower.durable for follower in whole}
            if self.in_sync.confirm(self.source.durable, durable):
                self.has_news = True
                log.info("CLUSTER: in-sync followers of %s: %s", self._whose, sorted(self.in_sync.named) or "none")
        counted = [follower for follower in whole if follower.number in self.in_sync.counting]
        self.copies.update([(follower.written, follower.durable) for follower in counted], self.in_sync.fewest)
        self.copies.set_available(1 + sum(follower.is_caught_up for follower in counted))

    def close(self) -> None:
        """Release all followers: this node no longer leads the log."""
        for number in list(self.followers):
            self.sender.lose(number)

    def _record_in_sync(self, wanted: list[int], now: int) -> None:
        """Record the in-sync followers in the log, if they changed."""
        if self.source.is_broken:
            return
        membership = self._cluster.membership
        caught_up = [number for number, follower in self.followers.items() if follower.is_caught_up]
        members = {node.number for node in membership.members}
        going = [one for one in self.in_sync.named & members if membership.is_going(one)]
        expected = [one for one in going if one not in membership.suspected]
        needed = wanted if len(wanted) == self.wanted else []
        fewest, most = self.copies.asked
        change = self.in_sync.wanted(caught_up, expected, needed, (fewest, min(most, 1 + self.wanted)), now)
        if change is not None:
            self.in_sync.change(change, self.source.state_followers(change))
            self.sender.request_sync(is_durable=True)

    def led(self) -> dict[str, Any]:
        """Return the entry of a log that this node leads, for /cluster: its epochs in hex with their positions, and its end."""
        epochs = [(epoch.hex(), start) for epoch, start in self.source.epochs()]
        return {"log_id": self.log_id.hex(), "epochs": epochs, "end": self.source.end}

    def whole_followers(self) -> list[int]:
        """Return the numbers of the nodes that have all of the log durably, those that are in sync first."""
        end, counting = self.source.end, self.in_sync.counting
        whole = [number for number, one in self.followers.items() if one.has_replica and one.durable >= end]
        return sorted(whole, key=lambda number: (number not in counting, number))

    def extent(self) -> LogExtent:
        """Return the extent of the log. After a failed sync: as far as a follower was known to have it at an earlier call."""
        end = self.source.end
        if self.source.is_broken:
            self._reached = max([self._reached, *(one.written for one in self.followers.values() if one.has_replica)])
            end = self._reached
        epochs = [epoch for epoch, start in self.source.epochs() if start < end]
        return LogExtent(unpack_epoch(epochs[-1]) if epochs else NO_EPOCH, end)

    def figures(self) -> dict[str, Any]:
        """Return the possible copies, the disconnected and the in-sync nodes, and the replies given up, for /cluster."""
        return {
            "available": self.copies.available,
            "away": self._away,
            "counting": sorted(self.in_sync.named),
            "replies_given_up": self.copies.given_up,
        }

    def states(self) -> list[dict[str, Any]]:
        """Return the state of each follower, for /cluster."""
        return [self._state_of(follower) for _, follower in sorted(self.followers.items())]

    def _state_of(self, follower: Follower) -> dict[str, Any]:
        end = self.source.end
        lag = self._write_times.age(follower.written, self._now) if follower.has_replica else None
        return {
            "node": follower.number,
            "state": _state(follower, follower.number in self.in_sync.named, lag or 0),
            "behind": end - follower.written if follower.has_replica else end - min(end, self.sender.sent(follower)),
            "lag_seconds": round(lag / SECOND, 3) if lag is not None else None,
            "written": follower.written,
            "durable": follower.durable,
            "failure": follower.failure,
        }


def _state(follower: Follower, counts: bool, lag: int) -> str:
    if follower.failure:
        return "failed"
    if follower.phase is Phase.ASKED:
        return "asked"
    if not (follower.is_caught_up and counts):
        return "catching up"
    return "lagging" if lag > LAGGING else "in sync"

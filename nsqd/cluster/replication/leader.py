"""The leader's side of copying: which followers get a log of this node, from which position on, and how far each has it.

A follower that keeps up gets each group when it is written. One that does not gets the log from its files, until it has
reached the end: then it keeps up. A follower first reports what it has; the epochs of both copies show what it lacks.

Nothing here does input or output by itself: files are read by `LogSource`, work that takes time goes to `Work`.

See docs/contributing/design/cluster-protocol.md#replicas.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from nsqd.cluster.membership.cluster import Cluster
from nsqd.cluster.membership.leader_frames import LogExtent
from nsqd.cluster.replication import stream
from nsqd.cluster.replication.common_point import common_end, continued, first_missing
from nsqd.cluster.replication.follower import Batch, Follower, KnownNode, Phase, Work, chosen
from nsqd.cluster.replication.in_sync import InSync
from nsqd.cluster.replication.lag import LAGGING, WriteTimes
from nsqd.cluster.wire.frames import FrameKind, PeerError, encode
from nsqd.cluster.wire.link import Link
from nsqd.core.message.epoch import NO_EPOCH
from nsqd.core.message.epoch import unpack as unpack_epoch
from nsqd.storage.log.copies import Copies
from nsqd.storage.log.copying import LogSource, whole_records
from nsqd.storage.log.files import SegmentFile
from nsqd.storage.log.records import HEADER_SIZE, SegmentHeader
from shared.log import log
from shared.values import SECOND

BATCH = 64 * 1024  # bytes without a waiting client that are sent together
MOST_LIVE = 1024 * 1024  # bytes that a connection may leave unsent while each group is sent at once
MOST_BEHIND = 64 * 1024 * 1024  # bytes that a follower may have been sent without saying that it wrote them
CHUNK = 512 * 1024  # bytes that are read at a time
LAST = 64 * 1024  # bytes: the last ones are read in the turn, so that a follower reaches the end of a log that grows
ASK_AFTER = 1_000_000_000  # ns after which a follower is asked once more, if the log could not be read for it
ASK_OTHERWISE = 5_000_000_000  # ns after which a follower that knows another leader is asked again
# ns for which a node that stopped for lack of space is not chosen, unless there is no other
NO_ROOM_FOR = 600_000_000_000
HOLD = 30_000_000_000  # ns for which segments are kept after some bytes were sent
OUT_OF_SYNC = 5_000_000_000  # ns after which a follower that does not keep up is removed from the in-sync ones
KEEP_EVERY = 1_000_000_000  # ns between two checks of which segments are gone
REPORT_EVERY = 60_000_000_000  # ns between two lines about replies that were given up, or about publishes that wait
LATE = 500_000_000  # ns that a publish waits for copies until a line says for which nodes


class LeaderSide:
    """The copies of a log that this node leads. Implements nsqd.storage.log.writer.Tap."""

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
        self._rate = rate
        self._allowed = 0  # bytes that may be read for them before the next tick
        self.followers: dict[int, Follower] = {}  # by node number
        self.copies = copies
        self._batch = Batch()
        self._without_room: dict[int, int] = {}  # when nodes stopped for lack of space, by number, monotonic ns
        self.in_sync = InSync(source.followers, source.end, OUT_OF_SYNC, cluster.own.number)
        self._away: list[int] = []  # numbers of the assigned followers without a connection
        self._cluster = cluster
        self.source = source
        self._work = work
        self._replicas = replicas
        self._patience = patience
        self._last_seen: dict[int, int] = {}  # when each node had a connection last, monotonic ns
        self._keep_due = 0
        self._now = 0  # time of the last tick
        self._write_times = WriteTimes(source.end)
        self._late_due = 0  # monotonic ns: when the log may have the next line about publishes that wait
        self._reported = 0  # replies given up that the log has a line about
        self._report_due = 0  # monotonic ns: when it may have the next one
        self._reached = 0  # position up to which a follower had a log whose sync has failed
        self._settled: int | None = None  # log's end when only those that are chosen began to count; None: others count
        self._dropped: dict[int, Link] = {}  # nodes that were sent DROP, with the connection

    # connections

    def tick(self, now: int) -> None:
        """Choose followers, ask the new ones, and send all the removed segments. Call it several times a second."""
        self.send_batch()
        self._allowed = min(self._rate, self._allowed + self._rate * min(now - self._now, SECOND) // SECOND)
        links, self._now = self._cluster.links, now
        for number in links:
            self._last_seen[number] = now
        for number in [one for one, follower in self.followers.items() if links.get(one) is not follower.link]:
            self._lose(number)
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
        if now >= self._keep_due:
            self._keep_due = now + KEEP_EVERY
            self._send_segments()
        self._report_late(now)
        self.copies.expire(now)
        self._report_given_up(now)
        self._write_times.note(self.source.end, now)
        self._write_times.forget(
            min((one.written for one in self.followers.values() if one.has_replica), default=self.source.end)
        )
        self.pump()

    def _report_given_up(self, now: int) -> None:
        """Log the replies that were given up since the last line about them, at most once in REPORT_EVERY."""
        count = self.copies.given_up - self._reported
        if count and now >= self._report_due:
            log.warning("CLUSTER: %d replies to publishes into %s were given up: no copy in time", count, self._whose)
            self._reported, self._report_due = self.copies.given_up, now + REPORT_EVERY

    def _report_late(self, now: int) -> None:
        """Log for which nodes publishes have waited for long, at most once in REPORT_EVERY."""
        waited = self.copies.longest_wait(now)
        if waited >= LATE and now >= self._late_due:
            late = sorted(number for number, one in self.followers.items() if one.written < self.source.end)
            log.info(
                "CLUSTER: publishes into %s have waited for copies for %.1f s: nodes %s have not confirmed them",
                self._whose, waited / SECOND, late,
            )  # fmt: skip
            self._late_due = now + REPORT_EVERY

    def _ask(self, follower: Follower) -> None:
        """Ask a follower what it has. Its earlier reports no longer count."""
        follower.ask_at, follower.phase = 0, Phase.ASKED
        follower.asked += 1
        self._send(follower.link, stream.pack_follow(follower.asked))

    def _send(self, link: Link, frame: bytes) -> None:
        """Send a frame about this log to another node."""
        link.send_of(self.log_id, self._cluster.own.log_id, frame)

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

    def _lose(self, number: int) -> None:
        self.source.hold(number, 0)
        del self.followers[number]
        self._update_copies()

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
                self.followers.pop(number, None)
                self._send(link, stream.pack_epochs(FrameKind.DROP, self.source.epochs()))
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
                self._begin(follower, have)
            except OSError as error:  # a segment was removed or rewritten at this moment
                log.warning("CLUSTER: cannot read the log for node %d: %s", follower.number, error)
                self._ask_again(follower)
        elif kind is FrameKind.COPIED:
            written, durable = stream.unpack_copied(content)
            if not durable <= written <= self.source.end:
                raise PeerError("a replica cannot have more than the log")
            follower.written, follower.durable = written, durable
            follower.has_replica = True
            self._update_copies()
            self.pump()
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

    # resync

    def _begin(self, follower: Follower, have: stream.Have) -> None:
        """Decide from where on the log is sent to a follower. Raises OSError if a segment cannot be read."""
        follower.has_replica = follower.is_caught_up = False
        follower.failure = ""
        follower.kept = []
        source = self.source
        epochs = source.epochs()
        common = common_end(epochs, source.end, have.epochs, have.end)
        bases = source.bases()
        place = continued(source, bases, common, have)
        if place is not None:
            follower.phase = Phase.CATCHING_UP
            follower.base, follower.at = place
            follower.file = source.file(follower.base) if follower.at else None
            self._send(follower.link, stream.pack_epochs(FrameKind.RESUME, epochs))
        else:
            follower.phase = Phase.RESYNCING
            follower.base, follower.at, follower.file = first_missing(source, bases, common, have), 0, None
            self._send(follower.link, stream.pack_resync(follower.base, epochs))
        self._hold(follower)
        log.info(
            "CLUSTER: node %d copies %s, %s: %d bytes behind",
            follower.number,
            self._whose,
            "from scratch" if follower.is_resyncing else "from where it was",
            source.end - (follower.base if follower.is_resyncing else common),
        )
        self.pump()

    # output

    def began(self, header: SegmentHeader) -> None:
        self.send_batch()
        for follower in self.followers.values():
            if follower.is_live:
                self._send(follower.link, encode(FrameKind.SEGMENT, header.encode()))
                follower.base, follower.at, follower.file = header.base, HEADER_SIZE, None

    def wrote(self, segment: int, at: int, buffers: list[bytes], size: int) -> None:
        if any(follower.is_live for follower in self.followers.values()):
            self._batch.add(segment, at, buffers, size)
            if self._batch.size >= BATCH:
                self.send_batch()

    @property
    def has_batch(self) -> bool:
        """Return True if something was written that is not sent yet."""
        return self._batch.size > 0

    def send_batch(self) -> None:
        """Send what was written to the followers that keep up."""
        batch = self._batch
        if not batch.size:
            return
        segment, at, size = batch.segment, batch.at, batch.size
        frames = batch.drain()
        for follower in self.followers.values():
            if not follower.is_live:
                continue
            link = follower.link
            is_behind = follower.has_replica and self.source.end - follower.written > MOST_BEHIND
            if link.backlog > MOST_LIVE or is_behind:
                follower.phase = Phase.CATCHING_UP
                follower.base, follower.at = segment, at
                follower.file = self.source.file(segment)
                continue
            for frame in frames:
                self._send(link, frame)
            follower.at = at + size

    def request_sync(self, is_durable: bool) -> None:
        """Send SYNC: a client waits until the followers have written, or have durably, the bytes so far."""
        self.send_batch()
        frame = stream.pack_sync(is_durable)
        for follower in self.followers.values():
            if follower.is_live:
                self._send(follower.link, frame)

    def pump(self) -> None:
        """Send the next pieces to the followers that do not keep up, as far as their connections take them.

        Written groups are sent first to followers that keep up: one that reaches the log's end here has them from the files.
        """
        self.send_batch()
        if self.source.is_broken:
            return
        for follower in list(self.followers.values()):
            try:
                while self._send_next(follower):
                    pass
            except FileNotFoundError:
                self._ask_again(follower)
            except OSError as error:
                log.error("CLUSTER: cannot read the log for node %d: %s", follower.number, error)
                self._ask_again(follower)

    def _ask_again(self, follower: Follower) -> None:
        """Begin again with a follower, soon: the file that was being sent no longer exists."""
        follower.ask_at = self._now + ASK_AFTER
        follower.phase, follower.is_caught_up = Phase.ASKED, False
        self._update_copies()

    def _send_next(self, follower: Follower) -> bool:
        """Send the next bytes to a follower, or have it read. Returns False if nothing more can be done now. Raises OSError."""
        link, source = follower.link, self.source
        if not follower.reads_files or follower.is_reading or link.closing or link.backlog > CHUNK:
            return False
        if follower.has_replica and self._sent(follower) - follower.written > MOST_BEHIND:
            return False
        bases = source.bases()
        if not bases:
            return False  # nothing was ever written
        following = next((base for base in bases if base > follower.base), None)
        file = source.file(follower.base)
        if not follower.is_resyncing and file.generation:
            raise FileNotFoundError("the segment was rewritten before it was reached")
        if follower.at == 0:
            try:
                header = source.header(file)
            except FileNotFoundError:
                if following is None:
                    raise
                follower.is_reading = True
                restore = partial(source.restore, follower.base, file, source.file_end(follower.base, following))
                self._work.run(restore, partial(self._restored, follower, follower.base))
                return False
            self._send(link, encode(FrameKind.SEGMENT, header))
            follower.file, follower.at = file, HEADER_SIZE
        if follower.file is not None and follower.file != file:
            raise FileNotFoundError("the segment was rewritten meanwhile")
        end = source.file_end(follower.base, following)
        if follower.at < end:
            return self._send_from(follower, file, end, following is None)
        if following is not None:
            if not follower.is_resyncing and end != HEADER_SIZE + following - follower.base:
                raise FileNotFoundError("a segment was removed before it was reached")
            follower.base, follower.at, follower.file = following, 0, None
            self._hold(follower)
            return True
        if follower.is_resyncing:
            self._send(link, stream.pack_switch(source.end))
        follower.phase = Phase.LIVE
        source.hold(follower.number, 0)
        self._send(link, stream.pack_sync(True))  # replies may wait for what was sent from the files
        self._update_copies()
        log.info("CLUSTER: node %d has been sent all of %s", follower.number, self._whose)
        return False

    def _send_from(self, follower: Follower, file: SegmentFile, end: int, is_newest: bool) -> bool:
        """Send the bytes of a file up to the offset `end` if they are few and the newest, or have the next ones read.

        Returns True if they were sent. Raises OSError.
        """
        self._hold(follower)
        if is_newest and end - follower.at <= LAST:
            found = self.source.read(file, follower.at, end, LAST)
            if not found[1]:
                self._send_bytes(follower, file, found)
                return True
        if self._rate and self.source.end - self._sent(follower) > MOST_BEHIND:
            if self._allowed <= 0:
                return False  # the next tick continues
            self._allowed -= min(CHUNK, end - follower.at)
        follower.is_reading = True
        read = partial(self.source.read_repaired, follower.base, file, follower.at, end, CHUNK)
        self._work.run(read, partial(self._read, follower, file, follower.at))
        return False

    def _hold(self, follower: Follower) -> None:
        """Hold the segments that a follower still needs. A full resync can use later segments as they will be then."""
        last = follower.base if follower.is_resyncing else None
        self.source.hold(follower.number, HOLD, follower.base, last)

    def _read(self, follower: Follower, file: SegmentFile, at: int, result: tuple[bytes, int] | OSError) -> None:
        follower.is_reading = False
        if self.followers.get(follower.number) is not follower or not follower.reads_files:
            return
        if (follower.file, follower.at) != (file, at):  # it has said meanwhile that it needs something else
            self.pump()
            return
        if isinstance(result, OSError):
            log.error("CLUSTER: cannot read the log for node %d: %s", follower.number, result)
            self._ask_again(follower)
            return
        if result[0]:
            self._send_bytes(follower, file, result)
        else:  # the file was cut, and no node has the rest
            self.source.note_cut(follower.base, at)
        self.pump()

    def _restored(self, follower: Follower, base: int, result: bool | OSError) -> None:
        """Continue with the segment at `base`, whose file was gone, or without it, after other nodes were asked for it."""
        follower.is_reading = False
        if isinstance(result, OSError):
            log.error("CLUSTER: cannot read the log for node %d: %s", follower.number, result)
        elif not result:
            log.error("CLUSTER: the segment at %d is missing here, and no other node has it", base)
            self.source.forget(base)
        if result is not True and self.followers.get(follower.number) is follower and follower.phase is not Phase.ASKED:
            self._ask_again(follower)
        self.pump()

    def _send_bytes(self, follower: Follower, file: SegmentFile, found: tuple[bytes, int]) -> None:
        data, wrong = found
        if wrong:
            start = follower.at + whole_records(data, file.seed, follower.at)
            log.error("CLUSTER: %d bytes of %s from %d on are corrupt here, or missing", wrong, file.name, start)
        for frame in stream.pack_bytes(follower.base, follower.at, [data], len(data)):
            self._send(follower.link, frame)
        follower.at += len(data)

    def _sent(self, follower: Follower) -> int:
        """Return the position up to which the log was sent, if the current segment was never rewritten."""
        return follower.base + max(0, follower.at - HEADER_SIZE)

    def _send_segments(self) -> None:
        """Send KEEP to the followers if there are other segments: one may have been begun and removed since the last check."""
        if not self.followers:
            return
        bases = self.source.bases()
        for follower in self.followers.values():
            if follower.has_replica and follower.phase in (Phase.CATCHING_UP, Phase.LIVE) and follower.kept != bases:
                self._send(follower.link, stream.pack_keep(self.source.end, bases))
                follower.kept = bases

    # how far the copies are

    def _update_copies(self) -> None:
        """Move the marks of the copies to where the in-sync followers are, and note which followers have caught up."""
        whole = [follower for follower in self.followers.values() if follower.has_replica]
        for follower in whole:
            follower.is_caught_up |= follower.is_live
        if not self.in_sync.is_confirmed:
            durable = {follower.number: follower.durable for follower in whole}
            if self.in_sync.confirm(self.source.durable, durable):
                log.info("CLUSTER: in-sync followers of %s: %s", self._whose, sorted(self.in_sync.named) or "none")
        counted = [follower for follower in whole if follower.number in self.in_sync.counting]
        self.copies.update([(follower.written, follower.durable) for follower in counted], self.in_sync.fewest)
        self.copies.set_available(1 + sum(follower.is_caught_up for follower in counted))

    def close(self) -> None:
        """Release all followers: this node no longer leads the log."""
        for number in self.followers:
            self.source.hold(number, 0)
        self.followers.clear()

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
            self.request_sync(is_durable=True)

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
            "behind": end - follower.written if follower.has_replica else end - min(end, self._sent(follower)),
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

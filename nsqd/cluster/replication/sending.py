"""The bytes that the leader of a log sends its followers: each group when it is written, or else those of the log's files.

A follower that keeps up gets each group when it is written. One that does not gets the log from its files, until it has
reached the end: then it keeps up.

Nothing here does input or output by itself: files are read by `LogSource`, work that takes time goes to `Work`.

See docs/contributing/design/cluster-protocol.md#replicas.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from nsqd.cluster.replication import stream
from nsqd.cluster.replication.common_point import common_end, continued, first_missing
from nsqd.cluster.replication.follower import Batch, Follower, Phase, Work
from nsqd.cluster.wire.frames import FrameKind, encode
from nsqd.cluster.wire.link import Link
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
HOLD = 30_000_000_000  # ns for which segments are kept after some bytes were sent
KEEP_EVERY = 1_000_000_000  # ns between two checks of which segments are gone


class LogSender:
    """Sends one log to its followers. Implements nsqd.storage.log.writer.Tap."""

    def __init__(
        self, source: LogSource, own: bytes, work: Work, rate: int, name: str, changed: Callable[[], None]
    ) -> None:
        """`own`: id of the log into which this node publishes; `name`: of the log that is sent, for the program's log.

        `rate`: bytes a second that are read from files, for all followers that are far behind; 0: no limit. `changed` is called
        when a follower is in another phase.
        """
        self.followers: dict[int, Follower] = {}  # by node number
        self._source, self._own, self._work, self._name, self._changed = source, own, work, name, changed
        self._batch = Batch()
        self._rate = rate
        self._allowed = 0  # bytes that may be read for followers that are far behind before the next tick
        self._keep_due = 0
        self._now = 0  # time of the last tick

    def tick(self, now: int) -> None:
        """Send what was written, and the list of segments if it is due. The time since the last tick allows further reads."""
        self.send_batch()
        self._allowed = min(self._rate, self._allowed + self._rate * min(now - self._now, SECOND) // SECOND)
        self._now = now
        if now >= self._keep_due:
            self._keep_due = now + KEEP_EVERY
            self._send_segments()

    def lose(self, number: int) -> None:
        """Send nothing more to a follower, and keep no segments for it."""
        self._source.hold(number, 0)
        self.followers.pop(number, None)

    def begin(self, follower: Follower, have: stream.Have) -> None:
        """Decide from where on the log is sent to a follower. Raises OSError if a segment cannot be read."""
        follower.has_replica = follower.is_caught_up = False
        follower.failure = ""
        follower.kept = []
        source = self._source
        epochs = source.epochs()
        common = common_end(epochs, source.end, have.epochs, have.end)
        bases = source.bases()
        place = continued(source, bases, common, have)
        if place is not None:
            follower.phase = Phase.CATCHING_UP
            follower.base, follower.at = place
            follower.file = source.file(follower.base) if follower.at else None
            self.send(follower.link, stream.pack_epochs(FrameKind.RESUME, epochs))
        else:
            follower.phase = Phase.RESYNCING
            follower.base, follower.at, follower.file = first_missing(source, bases, common, have), 0, None
            self.send(follower.link, stream.pack_resync(follower.base, epochs))
        self._hold(follower)
        log.info(
            "CLUSTER: node %d copies %s, %s: %d bytes behind",
            follower.number,
            self._name,
            "from scratch" if follower.is_resyncing else "from where it was",
            source.end - (follower.base if follower.is_resyncing else common),
        )
        self.pump()

    def send(self, link: Link, frame: bytes) -> None:
        """Send a frame about this log to another node."""
        link.send_of(self._source.log_id, self._own, frame)

    def began(self, header: SegmentHeader) -> None:
        self.send_batch()
        for follower in self.followers.values():
            if follower.is_live:
                self.send(follower.link, encode(FrameKind.SEGMENT, header.encode()))
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
            is_behind = follower.has_replica and self._source.end - follower.written > MOST_BEHIND
            if link.backlog > MOST_LIVE or is_behind:
                follower.phase = Phase.CATCHING_UP
                follower.base, follower.at = segment, at
                follower.file = self._source.file(segment)
                continue
            for frame in frames:
                self.send(link, frame)
            follower.at = at + size

    def request_sync(self, is_durable: bool) -> None:
        """Send SYNC: a client waits until the followers have written, or have durably, the bytes so far."""
        self.send_batch()
        frame = stream.pack_sync(is_durable)
        for follower in self.followers.values():
            if follower.is_live:
                self.send(follower.link, frame)

    def _send_segments(self) -> None:
        """Send KEEP to the followers if there are other segments: one may have been begun and removed since the last check."""
        if not self.followers:
            return
        bases = self._source.bases()
        for follower in self.followers.values():
            if follower.has_replica and follower.phase in (Phase.CATCHING_UP, Phase.LIVE) and follower.kept != bases:
                self.send(follower.link, stream.pack_keep(self._source.end, bases))
                follower.kept = bases

    def pump(self) -> None:
        """Send the next pieces to the followers that do not keep up, as far as their connections take them.

        Written groups are sent first to followers that keep up: one that reaches the log's end here has them from the files.
        """
        self.send_batch()
        if self._source.is_broken:
            return
        for follower in list(self.followers.values()):
            try:
                while self._send_next(follower):
                    pass
            except FileNotFoundError:
                self.ask_again(follower)
            except OSError as error:
                log.error("CLUSTER: cannot read the log for node %d: %s", follower.number, error)
                self.ask_again(follower)

    def ask_again(self, follower: Follower) -> None:
        """Begin again with a follower, soon: the file that was being sent no longer exists."""
        follower.ask_at = self._now + ASK_AFTER
        follower.phase, follower.is_caught_up = Phase.ASKED, False
        self._changed()

    def _send_next(self, follower: Follower) -> bool:
        """Send the next bytes to a follower, or have it read. Returns False if nothing more can be done now. Raises OSError."""
        link, source = follower.link, self._source
        if not follower.reads_files or follower.is_reading or link.closing or link.backlog > CHUNK:
            return False
        if follower.has_replica and self.sent(follower) - follower.written > MOST_BEHIND:
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
            self.send(link, encode(FrameKind.SEGMENT, header))
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
            self.send(link, stream.pack_switch(source.end))
        follower.phase = Phase.LIVE
        source.hold(follower.number, 0)
        self.send(link, stream.pack_sync(True))  # replies may wait for what was sent from the files
        self._changed()
        log.info("CLUSTER: node %d has been sent all of %s", follower.number, self._name)
        return False

    def _send_from(self, follower: Follower, file: SegmentFile, end: int, is_newest: bool) -> bool:
        """Send the bytes of a file up to the offset `end` if they are few and the newest, or have the next ones read.

        Returns True if they were sent. Raises OSError.
        """
        self._hold(follower)
        if is_newest and end - follower.at <= LAST:
            found = self._source.read(file, follower.at, end, LAST)
            if not found[1]:
                self._send_bytes(follower, file, found)
                return True
        if self._rate and self._source.end - self.sent(follower) > MOST_BEHIND:
            if self._allowed <= 0:
                return False  # the next tick continues
            self._allowed -= min(CHUNK, end - follower.at)
        follower.is_reading = True
        read = partial(self._source.read_repaired, follower.base, file, follower.at, end, CHUNK)
        self._work.run(read, partial(self._read, follower, file, follower.at))
        return False

    def _hold(self, follower: Follower) -> None:
        """Hold the segments that a follower still needs. A full resync can use later segments as they will be then."""
        last = follower.base if follower.is_resyncing else None
        self._source.hold(follower.number, HOLD, follower.base, last)

    def _read(self, follower: Follower, file: SegmentFile, at: int, result: tuple[bytes, int] | OSError) -> None:
        follower.is_reading = False
        if self.followers.get(follower.number) is not follower or not follower.reads_files:
            return
        if (follower.file, follower.at) != (file, at):  # it has said meanwhile that it needs something else
            self.pump()
            return
        if isinstance(result, OSError):
            log.error("CLUSTER: cannot read the log for node %d: %s", follower.number, result)
            self.ask_again(follower)
            return
        if result[0]:
            self._send_bytes(follower, file, result)
        else:  # the file was cut, and no node has the rest
            self._source.note_cut(follower.base, at)
        self.pump()

    def _restored(self, follower: Follower, base: int, result: bool | OSError) -> None:
        """Continue with the segment at `base`, whose file was gone, or without it, after other nodes were asked for it."""
        follower.is_reading = False
        if isinstance(result, OSError):
            log.error("CLUSTER: cannot read the log for node %d: %s", follower.number, result)
        elif not result:
            log.error("CLUSTER: the segment at %d is missing here, and no other node has it", base)
            self._source.forget(base)
        if result is not True and self.followers.get(follower.number) is follower and follower.phase is not Phase.ASKED:
            self.ask_again(follower)
        self.pump()

    def _send_bytes(self, follower: Follower, file: SegmentFile, found: tuple[bytes, int]) -> None:
        data, wrong = found
        if wrong:
            start = follower.at + whole_records(data, file.seed, follower.at)
            log.error("CLUSTER: %d bytes of %s from %d on are corrupt here, or missing", wrong, file.name, start)
        for frame in stream.pack_bytes(follower.base, follower.at, [data], len(data)):
            self.send(follower.link, frame)
        follower.at += len(data)

    def sent(self, follower: Follower) -> int:
        """Return the position up to which the log was sent, if the current segment was never rewritten."""
        return follower.base + max(0, follower.at - HEADER_SIZE)

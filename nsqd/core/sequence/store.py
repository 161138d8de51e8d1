"""What the core asks of storage. The commit log implements it; storage/memory.py is the log's memory, and alone serves tests.

The core states it and never looks behind it. Each verb appends one record; `commit` closes the turn's group and says up to
where the log must be durable before the turn's replies may leave. Reading is an event: `read` answers at once what is in
memory, or None and calls `on_read` of the core later. Topics and channels are named by numbers never used again, so what
is deleted and created anew under its old name starts clean (specs/log-and-channel.md rules 8 to 10).
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

from nsqd.core.retention.cursors import Cursor
from nsqd.core.retention.keeping import Keeping, TopicConfig
from shared.histogram import Histogram


class Extent:
    """A stretch of a topic's sequence: frames `first` to `end`, published alike. It grows at its end, nothing else changes.

    A frame that no channel owes any more may be replaced by b"": the store gives its memory back.
    """

    __slots__ = ("delayed", "first", "frames", "ids", "largest")

    def __init__(self, first: int, delayed: bool) -> None:
        self.first = first  # ordinal of frames[0]
        self.delayed = delayed  # True: published with a delay; the topic's delay lane hands them out, each at its time
        self.frames: list[bytes] = []
        self.ids = bytearray()  # the frames' ids, 16 bytes each, end to end
        self.largest = 0  # bytes of the largest frame: bounds what a consumer is given at once

    @property
    def end(self) -> int:
        """The ordinal after the last."""
        return self.first + len(self.frames)


@dataclass(frozen=True, slots=True)
class LogFigures:
    """One look at the log."""

    size: int  # bytes of its segments
    segments: int
    live: int  # bytes of messages that are owed or retained, at the last look
    checkpoints: int  # since the start
    unsynced: int  # bytes that were written and are not durable
    memory: int  # bytes of messages in memory
    damage: int  # bytes found wrong at the start, and messages found damaged since
    torn: int  # bytes cut off at the log's end by the start; they may have been acknowledged
    retries: int  # reads that failed and were tried again: the disk fails, or descriptors are missing
    replay: float  # s that the start took
    syncs: Histogram  # ns


class Store(Protocol):
    """Records go in, extents come out."""

    @property
    def durable(self) -> int:
        """Every record before this position survives a power cut."""

    def begin(self, now: int, wall: int) -> None:
        """A turn begins at `now` (monotonic ns) and `wall` (ns since the epoch)."""

    @property
    def refusal(self) -> str:
        """Why nothing more can be published, e.g. for want of space; "" if it can."""

    @property
    def broken(self) -> bool:
        """True if `durable` will never move again: whoever waits for it waits in vain."""

    def promise(self, topic: int) -> None:
        """Somebody will be told of what was recorded of the topic in this turn: `commit` shall say what to wait for."""

    @property
    def stuck(self) -> bool:
        """True if the last group could not be written yet: no promise of it holds before `durable` is there."""

    def commit(self) -> int:
        """Close the group of this turn. Returns the position that `durable` must reach before replies leave that wait for a
        sync, and if it is `stuck` all that promise; 0: none need wait."""

    def lease(self, ceiling: int) -> bool:
        """Ids below `ceiling` may be issued from now on. Durable on return; False if that cannot be had now."""

    def create_topic(self, topic: int, name: str) -> None:
        """`topic` is the number of a new topic of that name."""

    def keep(self, topic: int, keeping: Keeping) -> None:
        """How the topic's messages are kept from now on."""

    def configure(self, topic: int, config: TopicConfig) -> None:
        """What the topic itself says of that, to be told after a restart; `keep` follows."""

    def hold(self, topic: int, cursors: Mapping[str, Cursor]) -> None:
        """What these have not read stays while they hold it. They change; called once."""

    def set_cursor(self, topic: int, name: str, cursor: Cursor | None) -> None:
        """A cursor of the topic stands there, or (None) is gone."""

    def create_channel(self, topic: int, channel: int, name: str, start: int) -> None:
        """`channel` is the number of a new channel of that name; messages before `start` are not its."""

    def owe_again(self, topic: int, first: int, end: int) -> list[tuple[int, int, bool]]:
        """One channel more owes all there is of messages first..end, whoever has finished them: they are retained.

        Returns the parts (first, end, delayed). Follows upon `create_channel` with that start.
        """

    def pause(self, topic: int, channel: int, paused: bool) -> None:
        """The topic (`channel` 0), or the channel, was paused or is not any more."""

    def advance(self, topic: int, channel: int, cursor: int) -> None:
        """`channel` has delivered what is before `cursor` at least once. At most one a channel and turn; never synced for."""

    def publish(
        self, topic: int, first: int, frames: list[bytes], ids: bytes, largest: int, due: int, attributes: bytes = b""
    ) -> None:
        """Messages `first`.. were published to `topic`, to be held back until `due` (monotonic ns; 0: not at all).

        `ids`: 16 bytes each, end to end; no frame is longer than `largest` bytes; `attributes`: packed (attributes.py).
        """

    def distribute(
        self, topic: int, first: int, end: int, channels: int, owners: Collection[int] | None = None
    ) -> None:
        """Messages first..end now belong to each of the topic's `channels` channels.

        `owners`: only the channels with these numbers owe the messages, and the others are done with them: the caller does
        not call `finish` for those. The messages are those of the `publish` just before. One record says all of it.
        """

    def finish(self, topic: int, channel: int, first: int, count: int) -> None:
        """`channel` is done with messages first..first+count."""

    def requeue(self, topic: int, channel: int, ordinal: int, attempts: int, due: int) -> None:
        """A message was handed back (by REQ or time-out) after `attempts` deliveries, to be ready at `due` (0: at once).

        Or it is delivered again, for the `attempts`th time: should we end before its FIN, it is ready at once.
        """

    def job(self, topic: int, channel: int, ordinal: int, row: bytes) -> None:
        """A message is a job as `row` says (nsqd/core/work_queue/job.py), from now on."""

    def bury(self, topic: int, channel: int, ordinal: int, message_id: bytes, attempts: int, reason: str) -> None:
        """A message was given up on after `attempts` deliveries. It is still owed; `requeue` or `finish` takes it back."""

    def finish_all(self, topic: int, channel: int, end: int, owed: Iterable[tuple[int, int]]) -> None:
        """`channel` is done with everything before `end`. `owed`: the (first, count) it still owed of that."""

    def hole(self, topic: int, first: int, end: int) -> None:
        """Messages first..end, not distributed yet, are dropped for everybody."""

    def drop_channel(self, topic: int, channel: int) -> None:
        """The channel is gone; it was done with everything."""

    def drop_topic(self, topic: int) -> None:
        """The topic is gone, with all its messages."""

    def extents(self, topic: int, first: int, end: int) -> Iterable[tuple[int, int, bool]]:
        """The parts (first, end, delayed) of first..end of which something is owed, ascending; in memory or not.

        Looks as it goes: nothing may change meanwhile.
        """

    def cold(self, topic: int, first: int, end: int) -> int:
        """How many of messages first..end are on disk only."""

    def look(self, topic: int, ordinal: int, attributes: bool = True) -> bytes:
        """The message's frame if it is in memory; else b"". Nothing is read for it. `attributes`: b"" also if it has any."""

    def published(self, topic: int, ordinal: int) -> int:
        """When the message was published, ns since the epoch: exact if it is in memory, else about; 0: nobody owes it, or
        knows. Nothing is read for it."""

    def published_plain(self, topic: int, ordinal: int) -> int:
        """The same of the first message from there on that somebody owes and that was published without a delay."""

    def file_number(self, topic: int, ordinal: int) -> int:
        """The number of the file in which the message is, about, from 1 on; later ones are higher. 0: it is in none."""

    def read(self, topic: int, ordinal: int) -> Extent | None:
        """The extent that holds `ordinal`; if nobody owes that any more and it is gone, the next there is; at the end of the
        sequence an empty one. None: it is being read, and `Broker.read_completed(topic)` will be called."""

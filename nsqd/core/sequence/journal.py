"""The protocols by which the core records changes and reads messages: storage bound to one topic or to one reader.

The core defines these protocols and knows no implementation. Each verb is one record in the log, or nothing for what is
ephemeral. Reading is asynchronous: `read` returns at once what is in memory, or None; in that case Broker.read_completed is
called later.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Protocol

from nsqd.core.retention.cursors import Cursor
from nsqd.core.retention.policy import StoragePolicy
from nsqd.core.sequence.extent import Extent
from nsqd.core.sequence.gate import Gate
from nsqd.core.sequence.mark import Mark
from nsqd.core.timing.pause import Pause
from shared.topic_config import TopicConfig


class Extents(Protocol):
    """The messages of a topic that at least one reader references, or that no reader was given yet."""

    def read(self, ordinal: int) -> Extent | None:
        """Return the extent that holds `ordinal`, or the next one that still exists, or an empty one at the end.

        None: the extent is being read from disk, and `Broker.read_completed(topic)` will be called.
        """

    def extents(self, first: int, end: int) -> Iterable[tuple[int, int, bool]]:
        """Return the parts (first, end, delayed) of first..end that still exist, in memory or not, ascending.

        The sequence is examined during the iteration, so nothing may change meanwhile.
        """

    def next_with_headers(self, first: int, end: int) -> int:
        """Return the first of first..end whose extent may have headers, in memory or not; `end` if there is none."""

    def expired_before(self, first: int, end: int, wall: int, ttl: int) -> int:
        """Return an ordinal of first..end before which all messages have expired at `wall` (see Extent.leading).

        It is the greatest, unless messages are on disk only, of which just whole extents are looked at.
        """

    def cold(self, first: int, end: int) -> int:
        """Return the number of messages first..end that are on disk only."""

    def mean_size(self) -> int:
        """Return about how many bytes a message takes that is not released; 0: there is none."""

    def frame_in_memory(self, ordinal: int, attributes: bool = True) -> bytes:
        """Return the message's frame if it is in memory, else b"". Reads nothing from disk.

        `attributes`: return b"" also if messages of its extent have attributes, which are on disk only.
        """

    def copied_end(self) -> int:
        """Return the ordinal before which messages may be shown to clients: those from there on may wait for their copies."""

    def published(self, ordinal: int) -> int:
        """Return the message's publish time (ns since the epoch): exact if it is in memory, else approximate.

        0: the message is released, or the time is not known. Reads nothing from disk.
        """

    def published_plain(self, ordinal: int) -> int:
        """Return the same, of the first message from `ordinal` on that is not released and was published without a delay."""

    def references(self, ordinal: int) -> int:
        """Return the number of readers that reference the message; -1: the distributed offset has not passed it."""

    def is_pending(self, ordinal: int) -> bool:
        """Return True if a reader references the message, or the distributed offset has not passed it."""

    def file_number(self, ordinal: int) -> int:
        """Return about which file holds the message: numbers count from 1, and later files have higher ones; 0: none."""


class ReaderJournal(Protocol):
    """The journal of one reader: what happens to messages there."""

    def promise(self) -> tuple[Mark, ...]:
        """Note that a reply waits until the topic's marks, which are returned, have reached the records of this turn."""

    def finish(self, first: int, count: int) -> None:
        """Record that the reader is done with messages first..first+count."""

    def finish_each(self, ordinals: list[int]) -> None:
        """Record that the reader is done with these messages, ascending."""

    def finish_all(self, end: int) -> None:
        """Record that the reader is done with everything before `end`.

        `release` follows, in this turn or later, for all messages that the reader was not done with.
        """

    def release(self, first: int, end: int) -> None:
        """Let messages first..end go, with which the reader is done according to `finish_all`. This records nothing.

        Does nothing for messages that are gone because they were corrupt, or because the topic was deleted.
        """

    def advance(self, cursor: int) -> None:
        """Record that the reader has delivered everything before `cursor` at least once.

        Calls of a turn are collected, and none of them asks for a sync.
        """

    def requeue(self, ordinals: Collection[int], attempts: int, failures: int, due: int) -> None:
        """Record that messages came back, by REQ or timeout, after `attempts` deliveries each, `failures` of which failed.

        They are ready at `due` (monotonic ns; 0: at once). A redelivery, the `attempts`th delivery, is recorded in the same
        way: if the process ends before the FIN, the message is ready at once.
        """

    def bury(self, ordinal: int, message_id: bytes, attempts: int, failures: int, reason: str) -> None:
        """Record that a message is buried after `attempts` deliveries, `failures` of which failed.

        `requeue` or `finish` ends the burial.
        """

    def job(self, ordinal: int, row: bytes) -> None:
        """Record the present state of a job: `row` is packed as in nsqd/core/work_queue/job.py."""

    def pause(self, paused: Pause | None) -> None:
        """Record that the reader was paused; None: resumed."""

    def drop(self) -> None:
        """Record that the reader was deleted, after it was done with everything."""

    # Nothing is recorded

    def resume(self, cursor: int, holes: list[tuple[int, int]]) -> None:
        """Note after a restart where a channel's cursor is, and which spans (first, end) after that it will skip."""

    def detach(self) -> None:
        """Note that the reader delivers no longer, because the node does not lead its promoted log any longer."""


class TopicJournal(Extents, Protocol):
    """The journal of one topic: its messages, readers, cursors and settings."""

    @property
    def gate(self) -> Gate | None:
        """Return the gate that holds the messages back until they have copies; None: there is none. `set_policy` changes it."""

    def promise(self) -> None:
        """Note that a reply waits until the topic's marks have reached the records of this turn."""

    def publish(
        self,
        first: int,
        frames: list[bytes],
        ids: bytes,
        largest: int,
        due: int,
        attributes: bytes,
        references: int,
        owners: Collection[int] | None = None,
    ) -> None:
        """Record messages published from ordinal `first` on, to be held back until `due` (monotonic ns; 0: not at all).

        `ids`: 16 bytes each, end to end. No frame is longer than `largest` bytes. `attributes`: packed (attributes.py).
        `references`: how many readers reference the messages from now on; 0: the distributed offset has not passed them.
        `owners`: only the readers with these numbers reference them; the others are done with them, and `finish` is not called
        for them. One record holds all.
        """

    def ask_for_copies(self, count: int, has_limit: bool = False) -> tuple[Mark, ...]:
        """Have what is published in this turn wait for `count` copies, 2 or more. Returns the marks that its replies wait for.

        `has_limit`: the replies wait for the last mark, which is that of the copies, until a limit of their own.
        `gate` is not None afterwards.
        """

    def await_copies(self, count: int) -> tuple[Mark, ...]:
        """Note that something waits until `count` nodes have the records of this turn, however late. Returns its marks."""

    def distribute(self, first: int, end: int, references: int) -> None:
        """Record that messages first..end, published before, now belong to each of the topic's `references` readers."""

    def add_references(self, first: int, end: int) -> list[tuple[int, int, bool]]:
        """Let one more reader reference messages first..end, including finished ones, all of which must be retained.

        Returns the parts (first, end, delayed) that exist. Call `reader` with that start before.
        """

    def hole(self, first: int, end: int) -> None:
        """Record that messages first..end, which were not distributed yet, are dropped."""

    def reader(self, number: int, name: str, kind: int, start: int) -> ReaderJournal:
        """Record a new reader with that number, which begins with message `start`, and return its journal.

        A reader is not logged if its name ends in #ephemeral, or if the log knows its number already.
        """

    def pause(self, paused: Pause | None) -> None:
        """Record that the topic was paused; None: resumed."""

    def set_policy(self, policy: StoragePolicy) -> tuple[Mark, ...]:
        """Set how the topic's messages are kept from now on. Returns the marks for which replies about them wait.

        Topics that wait for the same marks get the same tuple.
        """

    def configure(self, config: TopicConfig) -> None:
        """Record the topic's own settings of durability and retention, so that they hold after a restart."""

    def hold(self, cursors: Mapping[str, Cursor]) -> None:
        """Give the topic's cursors, whose unread messages stay while the cursors hold them.

        Called once: the mapping is the core's own, and changes.
        """

    def set_cursor(self, name: str, cursor: Cursor | None) -> None:
        """Record that a cursor of the topic was set, or deleted (None)."""

    def drop(self) -> None:
        """Record that the topic was deleted with all its messages. Their memory is freed by `reclaim`."""

    def reclaim(self) -> Iterator[None]:
        """Free the memory of the messages of a dropped topic, a part with each step. Nothing else is used meanwhile."""

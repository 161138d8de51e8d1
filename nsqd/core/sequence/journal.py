"""What the core has recorded, and what it reads back: storage bound to one topic, and to one of its readers.

The core states it and never looks behind it. Each verb is one record in the log, or nothing for what is ephemeral. Reading is
an event: `read` answers at once what is in memory, or None, and Broker.read_completed is called later.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import Protocol

from nsqd.core.retention.cursors import Cursor
from nsqd.core.retention.keeping import Keeping, TopicConfig
from nsqd.core.sequence.extent import Extent
from nsqd.core.sequence.mark import Mark


class Extents(Protocol):
    """The messages of a topic, as far as somebody owes them."""

    def read(self, ordinal: int) -> Extent | None:
        """The extent that holds `ordinal`; if nobody owes that any more and it is gone, the next there is; at the end of the
        sequence an empty one. None: it is being read, and `Broker.read_completed(topic)` will be called."""

    def extents(self, first: int, end: int) -> Iterable[tuple[int, int, bool]]:
        """The parts (first, end, delayed) of first..end of which something is owed, ascending; in memory or not.

        Looks as it goes: nothing may change meanwhile.
        """

    def cold(self, first: int, end: int) -> int:
        """How many of messages first..end are on disk only."""

    def look(self, ordinal: int, attributes: bool = True) -> bytes:
        """The message's frame if it is in memory; else b"". Nothing is read for it. `attributes`: b"" also if it has any."""

    def published(self, ordinal: int) -> int:
        """When the message was published, ns since the epoch: exact if it is in memory, else about; 0: nobody owes it, or
        knows. Nothing is read for it."""

    def published_plain(self, ordinal: int) -> int:
        """The same of the first message from there on that somebody owes and that was published without a delay."""

    def file_number(self, ordinal: int) -> int:
        """The number of the file in which the message is, about, from 1 on; later ones are higher. 0: it is in none."""


class ReaderJournal(Protocol):
    """What becomes of messages in one reader."""

    def promise(self) -> None:
        """Somebody will be told of what is recorded in this turn, once the topic's marks have come to it."""

    def finish(self, first: int, count: int) -> None:
        """The reader is done with messages first..first+count."""

    def finish_all(self, end: int, owed: Iterable[tuple[int, int]]) -> None:
        """The reader is done with everything before `end`. `owed`: the (first, count) it still owed of that."""

    def advance(self, cursor: int) -> None:
        """It has delivered what is before `cursor` at least once. At most one a turn is recorded; never synced for."""

    def requeue(self, ordinal: int, attempts: int, due: int) -> None:
        """A message was handed back (by REQ or time-out) after `attempts` deliveries, to be ready at `due` (0: at once).

        Or it is delivered again, for the `attempts`th time: should we end before its FIN, it is ready at once.
        """

    def bury(self, ordinal: int, message_id: bytes, attempts: int, reason: str) -> None:
        """A message was given up on after `attempts` deliveries. It is still owed; `requeue` or `finish` takes it back."""

    def job(self, ordinal: int, row: bytes) -> None:
        """A message is a job as `row` says (nsqd/core/work_queue/job.py), from now on."""

    def pause(self, paused: bool) -> None:
        """The reader was paused or is not any more."""

    def drop(self) -> None:
        """The reader is gone; it was done with everything."""


class TopicJournal(Extents, Protocol):
    """What becomes of a topic."""

    def promise(self) -> None:
        """Somebody will be told of what is recorded in this turn, once the topic's marks have come to it."""

    def publish(
        self,
        first: int,
        frames: list[bytes],
        ids: bytes,
        largest: int,
        due: int,
        attributes: bytes,
        owing: int,
        owners: Collection[int] | None = None,
    ) -> None:
        """Messages `first`.. were published, to be held back until `due` (monotonic ns; 0: not at all).

        `ids`: 16 bytes each, end to end; no frame is longer than `largest` bytes; `attributes`: packed (attributes.py).
        `owing`: so many readers owe them from now on; 0: the edge has not passed them. `owners`: only the readers with these
        numbers owe them, and the others are done with them: nobody calls `finish` for those. One record says all of it.
        """

    def distribute(self, first: int, end: int, owing: int) -> None:
        """Messages first..end, published before, now belong to each of the topic's `owing` readers."""

    def owe_again(self, first: int, end: int) -> list[tuple[int, int, bool]]:
        """One reader more owes all there is of messages first..end, whoever has finished them: they are retained.

        Returns the parts (first, end, delayed). Follows upon `reader` with that start.
        """

    def hole(self, first: int, end: int) -> None:
        """Messages first..end, not distributed yet, are dropped for everybody."""

    def reader(self, number: int, name: str, kind: int, start: int) -> ReaderJournal:
        """A reader with that number was made; messages before `start` are not its. A name that ends in #ephemeral is not
        logged."""

    def pause(self, paused: bool) -> None:
        """The topic was paused or is not any more."""

    def keep(self, keeping: Keeping) -> tuple[Mark, ...]:
        """This is how the topic's messages are kept from now on. Returns the marks that replies about them wait for.

        Topics that wait for the same marks get the same tuple.
        """

    def configure(self, config: TopicConfig) -> None:
        """The topic has these words of its own on that, also after a restart."""

    def hold(self, cursors: Mapping[str, Cursor]) -> None:
        """The topic's cursors: what they have not read stays while they hold it. They change; called once."""

    def set_cursor(self, name: str, cursor: Cursor | None) -> None:
        """A cursor of the topic stands there, or (None) is gone."""

    def drop(self) -> None:
        """The topic is gone, with all its messages."""

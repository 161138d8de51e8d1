"""The durable state of a channel: how records change it, what a checkpoint holds of it, and how to make it live again.

This file alone knows how the fields of a live channel map to the state that survives a restart. A channel references (has not
finished) three kinds of messages, and no message is of two kinds:
* messages that are not `passed`. Those before the cursor were delivered once, those from the cursor on are ready. Those that
  were published with a delay wait for their time, on either side of the cursor;
* messages that wait singly, because they were requeued, delivered again, or taken out of the sequence: `returned`, `pages`;
* messages that are `buried`.
Times are ns of one clock, which is the log's clock for states that come from the log; a time of 0 means at once.

A checkpoint holds [number, name, paused, start, cursor, holes, pages, buried]: holes are the spans (first, end) from the cursor
on that are passed, pages are as in nsqd/core/timing/deferred_pages.py, and buried is a list of chunks as in buried.py. A number
instead of a page or a chunk is that of the CHUNK record that holds it; instead of a page may stand [page or number, messages
that have left it], see `remaining` in deferred_pages.py.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, ClassVar

from nsqd.core import records
from nsqd.core.channel.buried import DeadLetter, pack_letters, unpack_letters
from nsqd.core.channel.channel import Channel
from nsqd.core.reader import Reader, ReaderKind
from nsqd.core.reader_state import Kinds, ReaderState
from nsqd.core.records import RecordKind
from nsqd.core.sequence.finished import Finished, Span
from nsqd.core.sequence.spans import overlap, remove, without
from nsqd.core.timing.deferred import MINUTE, Message, counts_of, message_of, pack
from nsqd.core.timing.deferred_pages import (
    DeferredPages,
    Page,
    between,
    due_soon,
    in_order,
    pages_of,
    shifted,
)
from nsqd.core.timing.pause import Pause, dump_pause, load_pause
from nsqd.core.written_chunks import NamedChunk, WrittenChunks


@dataclass(slots=True)
class ChannelState(ReaderState):
    """The durable state of one channel, as it is replayed, put into a checkpoint, loaded or taken from a live channel."""

    kind: ClassVar[ReaderKind] = ReaderKind.CHANNEL

    cursor: int  # messages from this ordinal on were never delivered, except those that are passed
    passed: Finished  # messages that are finished, or wait singly, or are buried
    paused: Pause | None = None
    pages: DeferredPages = field(default_factory=DeferredPages)
    returned: dict[int, tuple[int, int]] = field(default_factory=dict)  # ordinal -> (counts as in deferred.py, due)
    buried: dict[int, tuple[bytes, DeadLetter]] = field(default_factory=dict)  # by ordinal, the first buried first
    # more of `pages` and of `buried`, packed; only in the state of a live channel that is put into a checkpoint
    chunks: list[NamedChunk] = field(default_factory=list)
    letters: list[NamedChunk] = field(default_factory=list)

    # records of the log

    def apply(self, kind: RecordKind, content: bytes) -> Iterable[Span]:
        if kind is RecordKind.FINISH:
            return self._finish(content)
        if kind is RecordKind.ADVANCE:
            self.cursor = records.ADVANCE.unpack_from(content)[2]
        elif kind is RecordKind.REQUEUE:
            for ordinal, attempts, failed, due in records.RETURNED.iter_unpack(content[records.CHANNEL_OF.size :]):
                self._wait(ordinal, counts_of(attempts, failed), due)
        elif kind is RecordKind.BURY:
            _, _, ordinal, attempts, failed, wall, message_id = records.BURY.unpack_from(content)
            self._take_out(ordinal)
            reason = content[records.BURY.size :].decode()
            self.buried[ordinal] = message_id, DeadLetter(ordinal, attempts, reason, wall, failed)
        elif kind is RecordKind.FINISH_ALL:
            return self._finish_all(records.FINISH_ALL.unpack_from(content)[2])
        elif kind is RecordKind.PAUSE:
            self.paused = records.unpack_pause(content)
        return ()

    def _finish_all(self, end: int) -> list[Span]:
        unfinished = self.drop(end)
        self.passed.add_all(end)
        self.start = self.cursor = max(self.cursor, end)
        self.pages = DeferredPages()
        self.returned.clear()
        self.buried.clear()
        return unfinished

    def _wait(self, ordinal: int, counts: int, due: int) -> None:
        self._take_out(ordinal)
        self.returned[ordinal] = counts, due

    def _take_out(self, ordinal: int) -> None:
        """Take a message that the channel references out of `returned`, `buried` or `pages`, or mark it as passed."""
        known = self.returned.pop(ordinal, None) or self.buried.pop(ordinal, None)
        if known is None and not self.pages.remove_one(ordinal):
            self.passed.add(ordinal, ordinal + 1)

    def finish(self, first: int, end: int) -> None:
        """Note that messages first..end are no longer referenced: finished, dropped, or never meant for this channel."""
        self.pages.remove_span(first, end)
        if self.returned:
            remove(self.returned, first, end)
        if self.buried:
            remove(self.buried, first, end)
        self.passed.add(first, end)

    def drop(self, distributed: int) -> list[Span]:
        return [*self.passed.missing(distributed), *_singles(chain(self.pages.ordinals(), self.returned, self.buried))]

    # conclusions from the records

    def conclude(self, distributed: int, delayed: Mapping[int, int], kinds: Kinds) -> Iterable[Span]:
        """Enter into `returned` each message that waits and that the cursor will not come by. See ReaderState.

        These are messages published with a delay, and messages before the cursor that were delivered and not finished.
        """
        self.cursor = max(self.passed.floor, min(self.cursor, distributed))
        for ordinal in self.passed.without(one for one in delayed if self.cursor <= one < distributed):
            self._wait(ordinal, 0, delayed[ordinal])
        for first, end in list(self.passed.missing(self.cursor)):
            for start, stop, _ in kinds(first, end):
                for ordinal in range(start, stop):
                    due = delayed.get(ordinal)
                    self.returned[ordinal] = (1, 0) if due is None else (0, due)
        self.passed.add_all(self.cursor)
        self.cursor = self.passed.floor
        self._forget_lost(kinds)
        return ()

    def _forget_lost(self, kinds: Kinds) -> None:
        """Forget messages in `returned` and `buried` that the topic no longer has because they are corrupt on disk."""
        if not self.returned and not self.buried:
            return
        end = max(chain(self.returned, self.buried)) + 1
        there = Finished(0, ((first, stop) for first, stop, _ in kinds(0, end)))
        for ordinal in there.without(chain(self.returned, self.buried)):
            self.returned.pop(ordinal, None)
            self.buried.pop(ordinal, None)

    @property
    def reached(self) -> int:
        waiting = max(chain(self.returned, self.buried), default=-1) + 1
        return max(self.start, self.cursor, self.passed.end, waiting)

    def figures(self, distributed: int, plain: list[Span]) -> dict[str, int]:
        waiting = [due for _, due in self.returned.values()] + [due for _, due, _ in self.pages.entries()]
        due = sum(one > 0 for one in waiting)
        ready = self._ready(distributed, plain) + len(waiting) - due
        return {"ready": ready, "deferred": due, "buried": len(self.buried)}

    def delivered(self) -> int:
        known = sum(counts > 0 and not due for counts, due in self.returned.values())
        return known + sum(counts > 0 and not due for _, due, counts in self.pages.entries())

    def _ready(self, distributed: int, plain: list[Span]) -> int:
        """Return the number of messages that the cursor will reach; `plain` are the spans of messages without a delay."""
        return overlap(plain, [(self.cursor, distributed)]) - overlap(plain, self.passed.spans(self.cursor))

    def dues(self, ordinals: Collection[int], delayed: Mapping[int, int]) -> dict[int, int]:
        waiting = {one: delayed[one] for one in self.passed.without(one for one in ordinals if one in delayed)}
        packed = {ordinal: due for ordinal, due, counts in self.pages.entries() if not counts}
        known = {ordinal: due for ordinal, (counts, due) in self.returned.items() if not counts}
        return {ordinal: due for ordinal, due in (waiting | packed | known).items() if ordinal in ordinals}

    # checkpoints

    def dump(self, queued: DeferredPages) -> list[Any]:
        own = [(one, due, counts) for one, (counts, due) in self.returned.items() if one not in queued]
        returned = b"".join([pack(*entry) for entry in own])
        chunks = [page.tobytes() for page in queued.others(self.pages.pages())]
        pages = [*self.chunks, *chunks, *([returned] if returned else [])]
        buried = [*self.letters, *([pack_letters(self.buried.values())] if self.buried else [])]
        holes = self.passed.spans(self.cursor)
        return [self.number, self.name, dump_pause(self.paused), self.start, self.cursor, holes, pages, buried]

    @staticmethod
    def begin(number: int, name: str, start: int) -> list[Any]:
        return [number, name, None, start, start, [], [], []]

    @classmethod
    def load(cls, array: list[Any], offset: int, distributed: int, queued: list[Page], kinds: Kinds) -> ChannelState:
        number, name, paused, start, cursor, holes, pages, buried = array
        passed, position = Finished(cursor), cursor
        for first, end, is_delayed in kinds(cursor, distributed):
            for begin, stop in () if is_delayed else without(first, end, holes):
                passed.add(position, begin)
                position = stop
        passed.add(position, distributed)
        waiting = [*pages_of(pages, offset), *(between(page, start, distributed) for page in queued)]
        letters = {letter.ordinal: (one, letter) for chunk in buried for one, letter in unpack_letters(chunk)}
        return cls(number, name, start, cursor, passed, load_pause(paused), DeferredPages(waiting), {}, letters)

    def referenced_spans(self, distributed: int, kinds: Kinds) -> Iterator[Span]:
        yield from self.passed.missing(distributed)
        yield from _singles(self.buried)

    def flags(self, first: int, end: int) -> bytes:
        return self.pages.flags(first, end)

    # the live channel

    @classmethod
    def from_reader(cls, reader: Reader, written: WrittenChunks) -> ChannelState:
        """Return the durable state of a live channel, with times of the monotonic clock.

        `written`: chunks that the checkpoint has already.

        Waiting messages are copied as they are packed in memory. Messages in the topic's delay queue are left out: they
        belong to the topic's state.
        """
        assert isinstance(reader, Channel)
        passed = Finished(reader.backlog.cursor, reader.backlog.holes)
        return cls(
            number=reader.number,
            name=reader.name,
            start=reader.start,
            cursor=passed.floor,
            passed=passed,
            paused=reader.paused,
            chunks=written.named([*reader.deferred.packed(), *reader.in_flight.packed(), *reader.backlog.packed()]),
            letters=written.named(reader.buried.packed()),
        )

    def revive(self, reader: Reader, plain: list[Span], queued: DeferredPages, offset: int, now: int) -> None:
        """Fill a live channel that was just created with this state, which must be settled. See ReaderState."""
        assert isinstance(reader, Channel)
        channel = reader
        channel.start, channel.paused = self.start, self.paused
        holes = self.passed.spans(self.cursor)
        channel.journal.resume(self.cursor, holes)
        channel.backlog.resume(self.cursor, self._ready(channel.offsets.distributed, plain))
        for first, end in holes:
            channel.skip(first, end, 0)
        later: list[Page] = []
        single = ((one, due, counts) for one, (counts, due) in self.returned.items() if one not in queued)
        soon = due_soon(queued.others(self.pages.pages()), now + offset + MINUTE, later)
        for ordinal, due, counts in in_order(chain(single, soon)):
            restore_message(channel, message_of(ordinal, counts), due - offset if due else 0, now)
        for page in later:
            channel.deferred.load(shifted(page, -offset).tobytes())
        channel.schedule_deferred()
        for message_id, letter in self.buried.values():
            channel.buried.add(message_id, letter)
        channel.revived(now)


def restore_message(channel: Channel, message: Message, due: int, now: int) -> None:
    """Restore an unfinished message from before the cursor: make it ready, or defer it until `due` (monotonic ns)."""
    if due > now:
        channel.deferred.push(due, message, now)
        channel.schedule_deferred()
    else:
        channel.backlog.put_first(message)


def _singles(ordinals: Iterable[int]) -> Iterator[Span]:
    return ((ordinal, ordinal + 1) for ordinal in ordinals)

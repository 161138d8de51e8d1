"""Buried messages, the dead letters of a channel: failed too often, kept with the reason until an operator acts on them.

NSQ has no such state, so it is opt-in (`--max-attempts`); beanstalkd's bury is the same. A buried message is neither ready
nor in flight nor deferred. The channel still references it, so the store keeps it.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, dropwhile, islice

import msgpack

EXPIRED, OVERFLOW = "expired", "overflow"  # reasons other than failures (failures.py) and those of operators
CHUNK_LETTERS = 1000  # messages that a checkpoint writes together: half a millisecond


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """The record of one buried message: when and why it was buried."""

    ordinal: int
    attempts: int  # deliveries it had
    reason: str  # e.g. "timed out"
    buried: int  # ns since the epoch
    failures: int = 0  # of these deliveries, those that failed: see failures.py


class LetterChunk:
    """Messages that were buried one after the other, and that a checkpoint writes together."""

    __slots__ = ("names", "packed")

    def __init__(self) -> None:
        self.names: dict[bytes, None] = {}  # their ids, in order
        self.packed = b""  # all of them, once that was asked for; b"" if it was not since the last change


# never changed: ten thousand channels without buried messages share these
_NO_CHUNK_OF: dict[int, LetterChunk] = {}
_NO_CHUNKS: dict[LetterChunk, None] = {}


class Buried(dict[bytes, DeadLetter]):
    """All buried messages of a channel by message id, the first buried first.

    It is a subclass of dict so that len() stays cheap: statistics count ten thousand empty ones in no time.
    """

    __slots__ = ("_chunk_of", "_chunks")

    def __init__(self) -> None:
        self._chunk_of = _NO_CHUNK_OF  # by ordinal
        self._chunks = _NO_CHUNKS  # in order; only the last one may be filled further

    def add(self, message_id: bytes, letter: DeadLetter) -> None:
        """Add a message to the buried ones, as the last."""
        self[message_id] = letter
        if self._chunks is _NO_CHUNKS:
            self._chunk_of, self._chunks = {}, {}
        chunk = next(reversed(self._chunks), None)
        if chunk is None or len(chunk.names) >= CHUNK_LETTERS:
            self._chunks[chunk := LetterChunk()] = None
        chunk.names[message_id], chunk.packed = None, b""
        self._chunk_of[letter.ordinal] = chunk

    def pop_letters(self, message_ids: Iterable[bytes]) -> list[DeadLetter]:
        """Remove and return the messages with these ids; ignore ids that are not buried."""
        return [self._pop(message_id) for message_id in message_ids if message_id in self]

    def pop_batch(self, limit: int) -> list[DeadLetter]:
        """Remove and return up to `limit` messages, any ones; [] if none is left."""
        return self.pop_letters(list(islice(next(reversed(self._chunks)).names, limit))) if self else []

    def _pop(self, message_id: bytes) -> DeadLetter:
        letter = self.pop(message_id)
        chunk = self._chunk_of.pop(letter.ordinal)
        del chunk.names[message_id]
        chunk.packed = b""
        if not chunk.names:
            del self._chunks[chunk]
        return letter

    def oldest(self, count: int) -> list[bytes]:
        """Return the ids of the `count` messages that were buried first."""
        return list(islice(self, count))

    def after(self, message_id: bytes | None, count: int) -> list[tuple[bytes, DeadLetter]]:
        """Return up to `count` messages after the one with that id; start with the first if the id is None or not buried."""
        letter = self.get(message_id) if message_id is not None else None
        if letter is None:
            return list(islice(self.items(), count))
        first = self._chunk_of[letter.ordinal]
        chunks = dropwhile(lambda chunk: chunk is not first, self._chunks)
        names = dropwhile(lambda name: name != message_id, chain.from_iterable(chunk.names for chunk in chunks))
        return [(name, self[name]) for name in islice(names, 1, count + 1)]

    def has_ordinal(self, ordinal: int) -> bool:
        """Return True if the message with this ordinal is buried."""
        return ordinal in self._chunk_of

    def ordinals(self) -> Iterator[int]:
        """Return the ordinals of all buried messages, the first buried first."""
        return (letter.ordinal for letter in self.values())

    def packed(self) -> list[bytes]:
        """Return all messages in their order, packed in chunks. Those that did not change since the last call are the same."""
        return [self._packed(chunk) for chunk in self._chunks]

    def frozen_chunks(self) -> Iterator[bytes]:
        """Yield the chunks that `packed` returns, each packed when it is asked for, except for the last one."""
        for chunk in list(self._chunks)[:-1]:
            if chunk.names:
                yield self._packed(chunk)

    def _packed(self, chunk: LetterChunk) -> bytes:
        chunk.packed = chunk.packed or pack_letters((name, self[name]) for name in chunk.names)
        return chunk.packed

    def check(self) -> None:
        """Raise AssertionError if an invariant of this class does not hold."""
        assert [name for chunk in self._chunks for name in chunk.names] == list(self)
        assert all(self._chunk_of[self[name].ordinal] is chunk for chunk in self._chunks for name in chunk.names)
        assert len(self._chunk_of) == len(self)
        assert all(chunk.names for chunk in self._chunks)

    def __repr__(self) -> str:
        return f"<Buried: {len(self)}>"


def pack_letters(letters: Iterable[tuple[bytes, DeadLetter]]) -> bytes:
    """Return buried messages with their ids as a chunk."""
    packed: bytes = msgpack.packb(
        [(name, one.ordinal, one.attempts, one.reason, one.buried, one.failures) for name, one in letters]
    )
    return packed


def unpack_letters(chunk: bytes) -> Iterator[tuple[bytes, DeadLetter]]:
    """Yield the messages of a chunk with their ids."""
    return ((name, DeadLetter(*of)) for name, *of in msgpack.unpackb(chunk))

"""Chunks of messages that a checkpoint has written before it writes the state of their topic.

A topic may have millions of messages that are deferred, came back or are buried. To describe them all in one turn takes tenths
of a second, and half a dozen copies of them. But nearly all are in chunks that never change (nsqd/core/timing/deferred.py,
nsqd/core/channel/retry.py), or seldom (nsqd/core/channel/buried.py), or of which is known which messages have left since
(nsqd/core/channel/inflight.py). So a checkpoint writes these chunks first, one record
each, over several turns. Then it writes the state of the topic in one turn, as ever: that names a chunk by its number if the
topic still has that very chunk, and holds all others.
"""

from collections.abc import Iterable, Iterator
from typing import TypeAlias

from nsqd.core import records
from nsqd.core.records import RecordKind
from nsqd.core.timing.deferred_pages import PackedChunk

# A PackedChunk, where the number of the CHUNK record that holds it may stand instead of the chunk.
NamedChunk: TypeAlias = "int | bytes | tuple[int | bytes, int | bytes]"


class WrittenChunks:
    """The chunks of one topic that were written, by identity."""

    __slots__ = ("_topic", "_written")

    def __init__(self, topic: int) -> None:
        """Begin without chunks. `topic`: the topic's number."""
        self._topic = topic
        # id() of the chunk -> its number, and the chunk, so that it lives
        self._written: dict[int, tuple[int, bytes]] = {}

    def __repr__(self) -> str:
        return f"<WrittenChunks of topic {self._topic}: {len(self._written)}>"

    def records(self, chunks: Iterable[bytes]) -> Iterator[tuple[RecordKind, bytes]]:
        """Yield a CHUNK record for each of these chunks that was not written."""
        for chunk in chunks:
            if chunk and id(chunk) not in self._written:
                number = len(self._written)
                self._written[id(chunk)] = number, chunk
                yield RecordKind.CHUNK, records.CHUNK.pack(self._topic, number) + chunk

    def named(self, chunks: Iterable[PackedChunk]) -> list[NamedChunk]:
        """Return the number instead of each chunk that was written, and the other chunks that are not empty, in their order."""
        parts = (chunk if isinstance(chunk, tuple) else (chunk, b"") for chunk in chunks)
        return [self._name(chunk) if left == b"" else (self._name(chunk), left) for chunk, left in parts if chunk]

    def _name(self, chunk: bytes) -> int | bytes:
        return self._written[id(chunk)][0] if id(chunk) in self._written else chunk

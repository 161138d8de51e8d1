"""Chunks of messages that a checkpoint has written before it writes the state of their topic.

A topic may have millions of messages that are deferred, came back or are buried. To describe them all in one turn takes tenths
of a second, and half a dozen copies of them. But nearly all are in chunks that never change (nsqd/core/timing/deferred.py,
nsqd/core/channel/retry.py), or seldom (nsqd/core/channel/buried.py). So a checkpoint writes these chunks first, one record
each, over several turns. Then it writes the state of the topic in one turn, as ever: that names a chunk by its number if the
topic still has that very chunk, and holds all others.
"""

from collections.abc import Iterable, Iterator
from typing import TypeAlias

from nsqd.core import records
from nsqd.core.records import RecordKind

NamedChunk: TypeAlias = "int | bytes"  # a chunk, or the number of the CHUNK record that holds it


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

    def named(self, chunks: Iterable[bytes]) -> list[NamedChunk]:
        """Return the number instead of each chunk that was written, and the other chunks that are not empty, in their order."""
        return [self._written[id(chunk)][0] if id(chunk) in self._written else chunk for chunk in chunks if chunk]

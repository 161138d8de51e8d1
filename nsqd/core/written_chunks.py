"""Chunks of waiting messages that a checkpoint has written before it writes the state of their topic.

A topic may have millions of deferred messages. To describe them all in one turn takes a tenth of a second, and half a dozen
copies of them. But nearly all of them are in chunks that never change (nsqd/core/timing/deferred.py). So a checkpoint writes
these chunks first, one record each, over several turns. Then it writes the state of the topic in one turn, as ever: that names
a chunk by its number if the topic still has that very chunk, and holds all others.
"""

from collections.abc import Iterable, Iterator

from nsqd.core import records
from nsqd.core.records import RecordKind
from nsqd.core.timing.deferred import CHUNK_BYTES

WORTH_IT = 8 * CHUNK_BYTES  # bytes of chunks; fewer are written with the state


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
        """Yield a WAITING record for each of these chunks, which must never change."""
        for chunk in chunks:
            number = len(self._written)
            self._written[id(chunk)] = number, chunk
            yield RecordKind.WAITING, records.WAITING.pack(self._topic, number) + chunk

    def split(self, chunks: Iterable[bytes]) -> tuple[list[int], list[bytes]]:
        """Return the numbers of those chunks that were written, and the other chunks."""
        numbers, others = [], []
        for chunk in chunks:
            written = self._written.get(id(chunk))
            if written is None:
                others.append(chunk)
            else:
                numbers.append(written[0])
        return numbers, others

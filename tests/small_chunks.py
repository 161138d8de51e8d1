"""Small chunks of messages, and small steps of freeing: a dozen messages have several, so much lies between them."""

from collections.abc import Iterable, Iterator

import pytest

from nsqd.core.channel import buried, inflight, retry, unfinished
from nsqd.core.timing import agenda, deferred
from nsqd.core.timing.deferred import unpack
from nsqd.core.timing.deferred_pages import PackedChunk, remaining

CHUNK = 3  # messages


def entries_of(chunks: Iterable[PackedChunk]) -> list[tuple[int, int, int]]:
    """Return (ordinal, due, counts) of all messages in these chunks, in order, those that have left excluded."""
    packed = [remaining(*chunk) if isinstance(chunk, tuple) else chunk for chunk in chunks]
    return sorted(unpack(b"".join(packed)))


@pytest.fixture(scope="package", autouse=True)
def small_chunks() -> Iterator[None]:
    """Have chunks of CHUNK messages, and free one message in a turn of what was emptied."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(deferred, "CHUNK_BYTES", CHUNK * deferred.PAGED_SIZE)
        patch.setattr(inflight, "CHUNK_BYTES", CHUNK * deferred.PAGED_SIZE)
        patch.setattr(retry, "CHUNK_BYTES", CHUNK * deferred.PAGED_SIZE)
        patch.setattr(buried, "CHUNK_LETTERS", CHUNK)
        patch.setattr(agenda, "AT_ONCE", 1)
        patch.setattr(unfinished, "SINGLES", 1)
        yield

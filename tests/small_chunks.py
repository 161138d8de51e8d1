"""Small chunks of messages, and small steps of freeing: a dozen messages have several, so much lies between them."""

from collections.abc import Iterator

import pytest

from nsqd.core.channel import buried, retry, unfinished
from nsqd.core.timing import agenda, deferred

CHUNK = 3  # messages


@pytest.fixture(scope="package", autouse=True)
def small_chunks() -> Iterator[None]:
    """Have chunks of CHUNK messages, and free one message in a turn of what was emptied."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(deferred, "CHUNK_BYTES", CHUNK * deferred.PAGED_SIZE)
        patch.setattr(retry, "CHUNK_BYTES", CHUNK * deferred.PAGED_SIZE)
        patch.setattr(buried, "CHUNK_LETTERS", CHUNK)
        patch.setattr(agenda, "AT_ONCE", 1)
        patch.setattr(unfinished, "SINGLES", 1)
        yield

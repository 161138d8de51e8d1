"""The messages published over HTTP, by address and topic. A request is often the only one of its connection.

The protocols of NSQ have counts for each connection; `/stats` lists both for those who ask for more than NSQ's keys.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from shared.values import SECOND

MOST = 1000  # pairs of an address and a topic; the one that came first is forgotten for one more


class HttpPublisher(NamedTuple):
    """An address that has published to a topic."""

    address: str  # IP address; "": by a unix socket
    topic: str
    messages: int
    since: int  # s since the epoch: about the first of them


class HttpPublishers:
    """The messages that addresses have published over HTTP. It belongs to the trio thread."""

    def __init__(self) -> None:
        self._counts: dict[tuple[str, str], list[int]] = {}  # messages, and the wall time of the first, in ns

    def note(self, address: str, topic: str, messages: int, wall: int) -> list[int]:
        """Count messages of an address. Returns the counts: callers may add to the first. `wall`: ns since the epoch."""
        counts = self._counts.get((address, topic))
        if counts is None:
            if len(self._counts) >= MOST:
                del self._counts[next(iter(self._counts))]
            counts = self._counts[address, topic] = [0, wall]
        counts[0] += messages
        return counts

    def all(self) -> Iterator[HttpPublisher]:
        """Yield all publishers, in the order in which they came."""
        for (address, topic), (messages, since) in self._counts.items():
            yield HttpPublisher(address, topic, messages, since // SECOND)

"""Partitions of this node from others, without a change of the network. For drills and tests.

During a partition, everything that comes over a connection with the other node is dropped unread, and nothing is sent; the
connection stays open until it times out. Only a route of -debug-routes begins one.

See docs/contributing/design/cluster-protocol.md#partitions-for-drills.
"""

from __future__ import annotations

from collections.abc import Collection

from nsqd.cluster.wire.link import Link

UNTIL_HEALED = 1 << 62  # ns
CUT_OFF = "the node was partitioned for a drill"


class Cuts:
    """The nodes from which this one is partitioned."""

    def __init__(self) -> None:
        self._until: dict[int, int] = {}  # by node number: when the cut ends by itself, monotonic ns

    def begin(self, number: int, until: int) -> None:
        """Cut a node off until a time, monotonic ns; an earlier cut of it is replaced."""
        self._until[number] = until

    def end(self, numbers: Collection[int]) -> None:
        """End the cuts of these nodes, as far as there are any."""
        for number in numbers:
            self._until.pop(number, None)

    @property
    def numbers(self) -> list[int]:
        """Return the numbers of the partitioned nodes, in ascending order."""
        return sorted(self._until)

    def over(self, now: int) -> list[int]:
        """Return the numbers of the nodes whose cut was to end by `now`, monotonic ns."""
        return [number for number, until in self._until.items() if until <= now]

    def number_of(self, link: Link | None) -> int | None:
        """Return the number of the node at the other end if it is partitioned. None if not, or not known yet."""
        if not self._until or link is None:
            return None
        peer = link.handshake.peer
        return peer.number if peer is not None and peer.number in self._until else None

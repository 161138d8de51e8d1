"""The in-sync followers of a log: the content of the record FOLLOWERS.

See docs/contributing/design/cluster-protocol.md#in-sync-replicas.
"""

from __future__ import annotations

from struct import Struct
from typing import NamedTuple

from nsqd.core.records import FOLLOWERS

MOST = 16  # followers that a record names
_NUMBER = Struct(">H")


class Followers(NamedTuple):
    """The in-sync followers of a log, and how many copies its publishes asked for, the leader's one included."""

    numbers: tuple[int, ...] = ()  # numbers of the nodes, ascending
    fewest: int = 0  # the smallest number of copies above 1 that a publish asked for; 0: none did
    most: int = 1  # the largest number of copies

    def pack(self) -> bytes:
        """Return the content of the record."""
        return FOLLOWERS.pack(self.fewest, self.most) + b"".join(map(_NUMBER.pack, self.numbers))


def unpack(content: bytes) -> Followers:
    """Return the followers in the content of a record FOLLOWERS."""
    fewest, most = FOLLOWERS.unpack_from(content)
    whole = (len(content) - FOLLOWERS.size) // _NUMBER.size
    numbers = tuple(_NUMBER.unpack_from(content, FOLLOWERS.size + at * _NUMBER.size)[0] for at in range(whole))
    return Followers(numbers, fewest, most)

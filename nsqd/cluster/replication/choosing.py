"""Which nodes keep a copy of a log. Pure: the leader's side of copying says what it knows of them.

See docs/contributing/design/cluster-protocol.md#replicas.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import sha256


@dataclass(frozen=True, slots=True)
class KnownNode:
    """A node that may become a follower."""

    number: int  # of the node
    is_here: bool = True  # it has a connection, or had one lately
    has_room: bool = True  # there is space for another replica, or it has this log's already
    is_apart: bool = True  # it is in another zone than the leader, or no zone is known


def chosen(log_id: bytes, nodes: Iterable[KnownNode], count: int) -> list[int]:
    """Return the numbers of the `count` nodes to place a replica on, best first.

    Nodes that are here come first, of these those with room, then those in other zones. A hash of log and node decides the
    rest, so the logs of many nodes are spread.
    """

    def rank(one: KnownNode) -> tuple[bool, bool, bool, bytes]:
        place = sha256(log_id + one.number.to_bytes(2)).digest()
        return not one.is_here, not one.has_room, not one.is_apart, place

    return [one.number for one in sorted(nodes, key=rank)[:count]]


@dataclass(frozen=True, slots=True)
class Followed:
    """A log that a node leads, and the nodes that have all of it."""

    log_id: bytes
    whole: tuple[int, ...]  # numbers of the nodes that have all of it durably, the best first


def best_first(followers: Iterable[tuple[int, bool, int]], end: int) -> tuple[int, ...]:
    """Return the nodes that have a log up to `end` durably: of each its number, whether it counts, and how far it has it."""
    whole = [(not counts, number) for number, counts, durable in followers if durable >= end]
    return tuple(number for _, number in sorted(whole))

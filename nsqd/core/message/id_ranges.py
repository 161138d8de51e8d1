"""Ranges of message ids: which a log holds or may still issue. Two logs of a cluster must not have ids in common.

See docs/contributing/design/cluster-protocol.md#message-ids.
"""

from collections.abc import Iterable
from typing import NamedTuple

from nsqd.core.message.ids import SEQUENCE

NO_END = SEQUENCE + 1  # end of the range from which a node issues its ids
MOST_RANGES = 4  # of a log: as many as fit into the member record of a node


class IdRange(NamedTuple):
    """Message ids of one node number, from one sequence up to another."""

    node: int
    first: int
    end: int  # after the last one


def common_number(one: Iterable[IdRange], other: Iterable[IdRange]) -> int | None:
    """Return a node number of which both have ids in common; None if there is none."""
    others = list(other)
    pairs = ((a, b) for a in one for b in others if a.node == b.node)
    return next((a.node for a, b in pairs if max(a.first, b.first) < min(a.end, b.end)), None)

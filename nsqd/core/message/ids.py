"""Message ids: node number (16 bits) and sequence (48 bits), as 16 hex digits; strictly increasing, never issued twice.

Ids are leased durably ahead, in blocks. After a crash, the node continues above the last lease, so no other message gets an id
that a consumer has seen, whatever the crash left on disk. A clean stop gives back the rest of the lease, so ids continue
without a gap.

See docs/contributing/design/log.md#ids.
"""

from collections.abc import Callable
from datetime import UTC, datetime

from shared.version import RELEASED

SEQUENCE = (1 << 48) - 1  # the bits of an id, as a number, that are its sequence
LEASE = 1 << 24  # ids: one durable write for 16 million messages
MOST_LEASE = SEQUENCE // 2  # what other nodes and files say is not believed beyond this: ids must not run out
SAFE_LEASES = 2  # leases above the last one that is known of a lost log: it may have taken another one since
_IDS_PER_SECOND = 1 << 17  # more than a node issues over its life, on average
_BEGINNING = 1_704_067_200  # s since the epoch, 2024-01-01
_END = _BEGINNING + (1 << 30)  # 2058: half of the sequences are left then
_LOW_DIGITS = [b"%03x" % i for i in range(4096)]


class ClockError(Exception):
    """The wall clock is wrong. The text says so, and what to do."""


def first_of_new_log(wall: int, lease: int) -> int:
    """Return the sequence with which a log begins whose node may have issued ids before, of which this node may not know.

    It is above every id that the node has issued, if its earlier logs began like this and it issued fewer than 2^17 ids a
    second since. `wall`: ns since the epoch; `lease`: the highest one that is known of the node. Raises ClockError.
    """
    second = wall // 1_000_000_000
    if not RELEASED <= second < _END:
        what = "before this version was released" if second < RELEASED else "too far in the future"
        raise ClockError(
            f"the clock of this machine says {datetime.fromtimestamp(second, UTC).date()}, which is {what}, and the first"
            " message ids of a log are made from the time: set the clock, and try again"
        )
    return max(lease + SAFE_LEASES * LEASE if lease else 0, (second - _BEGINNING) * _IDS_PER_SECOND)


class Ids:
    """Consecutive ids that share all but their last three digits. Those come from a table, so no object is made for an id."""

    __slots__ = ("lows", "prefix")

    def __init__(self, prefix: bytes, lows: list[bytes]) -> None:
        self.prefix = prefix  # 13 digits
        self.lows = lows  # 3 digits each

    @property
    def joined(self) -> bytes:
        """Return the ids, 16 bytes each, end to end."""
        return self.prefix + self.prefix.join(self.lows)

    def __repr__(self) -> str:
        return f"<{len(self.lows)} Ids of {self.prefix.decode()}...>"


def ids_from(first: int, count: int) -> list[Ids]:
    """Return the `count` ids from the one with the number `first` on, in blocks."""
    blocks, end = [], first + count
    while first < end:
        high, low = divmod(first, 4096)
        block = Ids(b"%013x" % high, _LOW_DIGITS[low : low + end - first])
        blocks.append(block)
        first += len(block.lows)
    return blocks


def between(first: bytes, last: bytes, count: int) -> bytes:
    """Return the ids from `first` to `last`, 16 bytes each, end to end, if there are exactly `count` of them; else b""."""
    start = int(first, 16)
    if int(last, 16) - start != count - 1:
        return b""
    return b"".join([block.joined for block in ids_from(start, count)])


class IdSource:
    """The issuer of the ids of one node."""

    __slots__ = ("_lease", "_node", "_renew_at", "next")

    def __init__(self, node: int, first: int, lease: Callable[[int], bool]) -> None:
        """Lease a block from `first` on, the lowest sequence that was never leased.

        `lease(n)` makes it durable that ids below n may have been issued, and returns whether it could. If it could not, it is
        tried again soon, long before the block is used up. If that fails too, ids continue beyond the block: it is better to
        take messages than to keep the promise.
        """
        if not 0 <= node < 1 << 16:
            raise ValueError(f"node number {node} is not within 16 bits")
        self._node = node
        self.next = first  # the sequence of the next id
        self._lease = lease
        self._renew_at = 0  # the sequence at which the next block is leased
        self._renew(first)

    @property
    def node(self) -> int:
        """Return the number of the node that issues the ids, or has issued them."""
        return self._node

    def issue_id(self) -> bytes:
        """Issue the next id: 16 hex digits."""
        number = self.next
        self.next = end = number + 1
        if end > self._renew_at:
            self._renew(end)
        return b"%04x%012x" % (self._node, number)

    def id_bytes(self, sequence: int) -> bytes:
        """Return the id with that sequence. This does not issue it."""
        return b"%04x%012x" % (self._node, sequence)

    def id_number(self, sequence: int) -> int:
        """Return the id with that sequence as a number, without issuing it."""
        return self._node << 48 | sequence

    def issue_numbers(self, n: int) -> int:
        """Issue the next n ids. Returns the first as a number; the others follow it."""
        first = self.next
        self.next = end = first + n
        if end > self._renew_at:
            self._renew(end)
        return self._node << 48 | first

    def issue_ids(self, n: int) -> list[Ids]:
        """Issue the next n ids, in order and in blocks."""
        return ids_from(self.issue_numbers(n), n)

    def _renew(self, end: int) -> None:
        leased = self._lease(end + LEASE)
        self._renew_at = end + (LEASE // 2 if leased else LEASE // 64)

    def __repr__(self) -> str:
        return f"<IdSource of node {self._node}: {self.next} is next>"


class NoIds(IdSource):
    """The ids of a log into which this node does not publish: none is issued."""

    def __init__(self, node: int, next_id: int) -> None:
        """`node` is the number of the node that published into the log; it may have issued all sequences below `next_id`."""
        super().__init__(node, next_id, lambda ceiling: True)

    def issue_id(self) -> bytes:
        raise AssertionError("nothing is published into the log of another node")

    def issue_numbers(self, n: int) -> int:
        raise AssertionError("nothing is published into the log of another node")

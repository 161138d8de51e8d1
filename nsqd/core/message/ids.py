"""Message ids: node number (16 bits) and sequence (48 bits), as 16 hex digits; strictly increasing, never issued twice.

Ids are leased durably ahead in blocks. After a crash a start continues above the last lease, so an id that a consumer has seen
is not given to another message, whatever the crash left on disk. A clean stop gives the rest of the lease back: ids go on.
"""

from collections.abc import Callable

SEQUENCE = (1 << 48) - 1  # the bits of an id, as a number, that are its sequence
LEASE = 1 << 24  # ids: one durable write for 16 million messages
_LOW_DIGITS = [b"%03x" % i for i in range(4096)]


class Ids:
    """Consecutive ids that share all but their last three digits, which are taken from a table: nothing is made per id."""

    __slots__ = ("lows", "prefix")

    def __init__(self, prefix: bytes, lows: list[bytes]) -> None:
        self.prefix = prefix  # 13 digits
        self.lows = lows  # 3 digits each

    @property
    def joined(self) -> bytes:
        """The ids, 16 bytes each, end to end."""
        return self.prefix + self.prefix.join(self.lows)

    def __repr__(self) -> str:
        return f"<{len(self.lows)} Ids of {self.prefix.decode()}...>"


def between(first: bytes, last: bytes, count: int) -> bytes:
    """The ids from `first` to `last`, 16 bytes each, end to end, if there are `count` of them; else b""."""
    start = int(first, 16)
    if int(last, 16) - start != count - 1:
        return b""
    joined, end = [], start + count
    while start < end:
        high, low = divmod(start, 4096)
        joined.append(Ids(b"%013x" % high, _LOW_DIGITS[low : low + end - start]).joined)
        start = (high + 1) * 4096
    return b"".join(joined)


class IdSource:
    """Issues the ids of one node."""

    __slots__ = ("_lease", "_node", "_renew_at", "next")

    def __init__(self, node: int, first: int, lease: Callable[[int], bool]) -> None:
        """`first`: the lowest sequence that was never leased; a block from there is leased at once.

        `lease(n)` makes durable that ids below n may be out. False: it could not; it is tried again soon, long before the
        block is used up. Should even that not help, ids go on beyond it: messages are worth more than the promise.
        """
        if not 0 <= node < 1 << 16:
            raise ValueError(f"node number {node} is not within 16 bits")
        self._node = node
        self.next = first  # the sequence of the next id
        self._lease = lease
        self._renew_at = 0  # the id with which the next block is leased
        self._renew(first)

    def one(self) -> bytes:
        """The next id."""
        number = self.next
        self.next = end = number + 1
        if end > self._renew_at:
            self._renew(end)
        return b"%04x%012x" % (self._node, number)

    def named(self, sequence: int) -> bytes:
        """The id with that sequence; it is not issued by this."""
        return b"%04x%012x" % (self._node, sequence)

    def number(self, sequence: int) -> int:
        """Likewise, as a number."""
        return self._node << 48 | sequence

    def take(self, n: int) -> list[Ids]:
        """The next n ids, in order."""
        first = self.next
        self.next = end = first + n
        if end > self._renew_at:
            self._renew(end)
        blocks = []
        while first < end:
            high, low = divmod(first, 4096)
            block = Ids(b"%04x%09x" % (self._node, high), _LOW_DIGITS[low : low + end - first])
            blocks.append(block)
            first += len(block.lows)
        return blocks

    def _renew(self, end: int) -> None:
        leased = self._lease(end + LEASE)
        self._renew_at = end + (LEASE // 2 if leased else LEASE // 64)

    def __repr__(self) -> str:
        return f"<IdSource of node {self._node}: {self.next} is next>"

"""One epoch of a log: a period in which one process leads it.

See docs/contributing/design/log.md#epochs.
"""

from struct import Struct
from typing import NamedTuple

_EPOCH = Struct(">IH8s")
SIZE = _EPOCH.size  # bytes of a packed epoch
RANDOM_SIZE = 8
MOST_NUMBER = (1 << 32) - 1


class Epoch(NamedTuple):
    """One epoch of a log. Of two epochs, the greater one is the later one."""

    number: int  # counts from 1
    node: int  # number of the node that led the log
    random: bytes  # RANDOM_SIZE bytes, which distinguish two epochs that began with the same number

    def pack(self) -> bytes:
        """Return the epoch as SIZE bytes."""
        return _EPOCH.pack(*self)

    def __str__(self) -> str:
        return f"{self.number}.{self.node}.{self.random.hex()}"


NO_EPOCH = Epoch(0, 0, bytes(RANDOM_SIZE))  # in the place of an epoch that is unknown: every epoch is greater


def unpack(data: bytes, at: int = 0) -> Epoch:
    """Return the epoch that is packed at `at`."""
    return Epoch(*_EPOCH.unpack_from(data, at))

"""Named cursors: how far somebody has read a topic back. A cursor may hold retention up, within a cap of its own."""

from dataclasses import dataclass

MOST = 100  # of a topic


@dataclass(frozen=True, slots=True)
class Cursor:
    """One of them."""

    offset: int  # what is before it was read
    owner: str = ""  # who alone may move it; "": anybody
    # ns: what it has not read stays for so long after its publish, beyond retention; 0: time does not cap it
    hold: int = 0
    hold_bytes: int = 0  # likewise the newest so many bytes; 0: size does not cap it. Both 0: it holds nothing
    updated: int = 0  # ns since the epoch

"""Named cursors: how far a client has read a topic back. A cursor may delay retention, within a cap of its own."""

from dataclasses import dataclass

MOST = 100  # cursors of a topic


@dataclass(frozen=True, slots=True)
class Cursor:
    """One named cursor of a topic."""

    offset: int  # everything before this offset was read
    owner: str = ""  # the only one who may move it; "": anyone may
    # ns after its publish for which an unread message stays, beyond retention; 0: time does not cap the hold
    hold: int = 0
    hold_bytes: int = 0  # newest bytes within which unread messages stay; 0: size does not cap it. Both 0: no hold
    updated: int = 0  # when it was set, ns since the epoch

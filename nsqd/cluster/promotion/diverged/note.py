"""The note that a copy was salvaged: a file next to a diverged copy, or in the diverged copy of the node's own log.

See docs/contributing/design/cluster-protocol.md#diverged-copies.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from nsqd.core.message.epoch import Epoch
from nsqd.core.message.epoch import unpack as unpack_epoch
from shared.files import replace_file

OWN_NOTE = "taken-in"  # in the diverged copy of the node's own log


@dataclass(frozen=True, slots=True)
class CopyExtent:
    """The end of a diverged copy, and the epochs in it."""

    end: int  # position
    epochs: tuple[tuple[Epoch, int], ...]  # with the position at which each begins, ascending


@dataclass(frozen=True, slots=True)
class Note:
    """That a copy was salvaged. The log that it names is in its place, or waits for one rename."""

    log_id: bytes  # of the log that was made; b"": the tail has no unfinished or retained messages
    start: int  # the copy was salvaged from this position on
    held: CopyExtent


def write_note(path: Path, note: Note) -> None:
    """Write the file durably. Raises OSError."""
    epochs = [(epoch.pack().hex(), start) for epoch, start in note.held.epochs]
    content = {"log_id": note.log_id.hex(), "start": note.start, "end": note.held.end, "epochs": epochs}
    replace_file(path, json.dumps(content).encode())


def read_note(path: Path) -> Note | None:
    """Return the note. None if it does not exist, or is corrupt. Raises OSError."""
    try:
        content = json.loads(path.read_bytes())
        epochs = tuple((unpack_epoch(bytes.fromhex(epoch)), int(start)) for epoch, start in content["epochs"])
        return Note(bytes.fromhex(content["log_id"]), int(content["start"]), CopyExtent(int(content["end"]), epochs))
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return None

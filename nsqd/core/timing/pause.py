"""Who paused a topic or a channel, when, and until when."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Pause:
    """Who paused a topic or channel, and when the pause ends."""

    by: str = ""  # who paused it; "": not known
    at: int = 0  # when it was paused; 0: not known
    until: int = 0  # 0: until an operator resumes it


NOT_KNOWN = Pause()  # an nsqd of NSQ, or a version before format 9 of the log, paused it


def dump_pause(pause: Pause | None) -> list[Any] | None:
    """Return the value that a checkpoint holds for a pause."""
    return None if pause is None else [pause.by, pause.at, pause.until]


def load_pause(value: list[Any] | bool | None) -> Pause | None:
    """Return the pause that a checkpoint holds. Before format 9 of the log, the value was true or false."""
    if isinstance(value, list):
        return Pause(*value)
    return NOT_KNOWN if value else None

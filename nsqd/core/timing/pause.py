"""Who paused a topic, a channel or a queue, when, and until when."""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Pause:
    """Who paused a topic, a channel or a queue, and when the pause ends."""

    by: str = ""  # who paused it; "": not known
    at: int = 0  # when it was paused; 0: not known
    until: int = 0  # 0: until an operator resumes it
    out: bool = True  # nothing is delivered; False: only for queues of Disque's clients
    into: bool = False  # clients of Disque add nothing; only for their queues

    @property
    def ways(self) -> str:
        """Return the word that Disque has for what is paused: "in", "out" or "all"."""
        return "all" if self.out and self.into else "out" if self.out else "in"


NOT_KNOWN = Pause()  # nsqd.dat says no more than that it is paused


def dump_pause(pause: Pause | None) -> list[Any] | None:
    """Return the value that a checkpoint holds for a pause."""
    if pause is None:
        return None
    return [pause.by, pause.at, pause.until, pause.out, pause.into]


def load_pause(value: list[Any] | None) -> Pause | None:
    """Return the pause that a checkpoint holds."""
    return None if value is None else Pause(*value)

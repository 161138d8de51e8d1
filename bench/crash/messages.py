"""What the checker's books are about: messages, their copies on channels, and the verdict."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from enum import Enum

NEVER = 1 << 62  # ns: later than any time


class Fate(Enum):
    """What became of a publish."""

    UNKNOWN = "unknown"  # no reply came
    OK = "ok"
    REFUSED = "refused"


@dataclass(slots=True)
class Copy:
    """A message as one channel owes it."""

    message: Message
    channel: str
    not_before: int  # the earliest time it may be delivered; 0: at any time; NEVER: not before it is kicked
    deliveries: int = 0
    finished: bool = False  # a FIN was sent since it was delivered last
    returned: bool = False  # likewise a REQ
    commands: int = 0  # of both, ever
    settled: int = 0  # when it was known that the last of them had been handled; 0: it is not
    priority: int | None = 0  # None: that of the last command, or the one before
    stalled: bool = False  # the server may have stood still since it was delivered: a REQ may come behind the time-out


@dataclass(slots=True)
class Message:
    """One attempt to publish."""

    number: int
    size: int  # bytes of the body
    topic: str
    life: int  # of the server: how often it had crashed before
    invoked: int
    due: int  # the earliest time it may be delivered; 0: at any time
    priority: int = 0  # it is published with
    only: str = ""  # the channel that alone it is for; "": for all channels of the topic
    fate: Fate = Fate.UNKNOWN
    answered: int = 0  # when that was known
    copies: dict[str, Copy] = field(default_factory=dict)  # by channel, as they come

    @property
    def body(self) -> bytes:
        """Made anew whenever it is needed: the books hold no bodies."""
        return body(self.number, self.size)


@dataclass(slots=True)
class Verdict:
    """Counts. Messages: acked to excused; deliveries: all the others."""

    acked: int = 0
    survived: int = 0  # of these; not in `lost` or `excused`
    lost: int = 0  # acked, and some channel never gave it, or gave it once, not finished, and never again
    excused: int = 0  # likewise, but acked so short before a power cut, or at that moment, that nothing is promised
    unknown: int = 0  # publishes without a reply, in messages
    refused: int = 0  # publishes with an error for a reply, in messages
    deliveries: int = 0
    duplicated: int = 0  # delivered again though nobody had handed it back
    resurrected: int = 0  # delivered again though its end was settled
    early: int = 0  # delivered before its time
    unexpected: int = 0  # nothing that was ever published, or with another content, or to another topic
    inverted: int = 0  # delivered though something more urgent was ready
    collisions: int = 0  # two messages of a topic under one id

    def add(self, other: Verdict) -> None:
        """Both together."""
        for each in fields(self):
            setattr(self, each.name, getattr(self, each.name) + getattr(other, each.name))


def body(number: int, size: int) -> bytes:
    """The body of message `number`: its number over and over, `size` bytes, but at least the number and a comma."""
    unit = b"%d," % number
    return unit if size <= len(unit) else (unit * (size // len(unit) + 1))[:size]

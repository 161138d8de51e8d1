"""The objects in the checker's ledger: messages, their copies in channels, and the findings."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from enum import Enum

NEVER = 1 << 62  # ns: later than any time


class Reply(Enum):
    """The reply of the server to a publish, as the checker noted it."""

    NONE = "none"  # so it may have been executed or not
    OK = "ok"
    REFUSED = "refused"


@dataclass(slots=True)
class Copy:
    """A message in one channel, with what the channel may still do with it."""

    message: Message
    channel: str
    not_before: int  # the earliest time of the next delivery; 0: at any time; NEVER: not before it is kicked
    deliveries: int = 0
    finished: bool = False  # a FIN was sent since the last delivery
    returned: bool = False  # a REQ, release or bury was sent since the last delivery
    commands: int = 0  # how many commands were sent, ever
    settled: int = 0  # when the last command was known to be handled; 0: that is not known
    priority: int | None = 0  # None: unknown, that of the last command or of the one before
    stalled: bool = False  # the server may have been stopped since the delivery: a REQ may come after the timeout


@dataclass(slots=True)
class Message:
    """One attempt to publish a message."""

    number: int
    size: int  # bytes of the body
    topic: str
    life: int  # of the server: how often it had crashed before
    invoked: int
    due: int  # the earliest time of a delivery; 0: at any time
    priority: int = 0  # the priority with which it is published
    only: str = ""  # the only channel that gets it; "": all channels of the topic
    reply: Reply = Reply.NONE
    answered: int = 0  # when the reply was known
    copies: dict[str, Copy] = field(default_factory=dict)  # by channel, as the copies come

    @property
    def body(self) -> bytes:
        """Return the body, which is made each time: the ledger has no bodies."""
        return body(self.number, self.size)


@dataclass(slots=True)
class Findings:
    """Counts of messages (acked to refused) and of deliveries (all others)."""

    acked: int = 0
    survived: int = 0  # of the acked ones: neither lost nor excused
    lost: int = 0  # acked, and a channel never delivered it, or delivered it, got no FIN, and never delivered it again
    excused: int = 0  # lost, but acked so shortly before a power cut, or at that moment, that nothing is promised
    unknown: int = 0  # messages whose publish got no reply
    refused: int = 0  # messages whose publish got an error
    deliveries: int = 0
    duplicated: int = 0  # delivered again though it was not requeued
    resurrected: int = 0  # delivered again though its FIN was settled
    early: int = 0  # delivered before its time
    unexpected: int = 0  # never published, or with another content, or to another topic
    inverted: int = 0  # delivered after a less urgent job though it was ready
    collisions: int = 0  # two messages of a topic with one id

    def add(self, other: Findings) -> None:
        """Add the counts of the other findings."""
        for each in fields(self):
            setattr(self, each.name, getattr(self, each.name) + getattr(other, each.name))


def body(number: int, size: int) -> bytes:
    """Return the body of message `number`: the number and a comma once, or repeated up to `size` bytes."""
    unit = b"%d," % number
    return unit if size <= len(unit) else (unit * (size // len(unit) + 1))[:size]

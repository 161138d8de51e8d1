"""What a publisher says of messages beside their bodies: headers, and what tells a retry from a new message.

Consumers over TCP never see them (a frame has no room); reading back and listing show them. They are those of all the
messages that were published together, and stand before them in the log, packed as

    [headers, key, producer, sequence less the ordinal of the first message]

so that a part of the messages keeps the same bytes. Jobs (nsqd/core/work_queue/tube.py) have a
fifth element, [priority, ttr, delay].
"""

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import msgpack

MOST_HEADERS = 32
MOST_HEADER_BYTES = 8 * 1024  # of names and values
MOST_WORD = 128  # characters of a key, or of a producer's name
MOST_SEQUENCE = (1 << 62) - 1
_WORD = frozenset(map(chr, range(0x21, 0x7F)))


@dataclass(frozen=True, slots=True)
class Attributes:
    """See above. At most one of `key` and `producer` is there."""

    headers: tuple[tuple[str, str], ...] = ()
    key: str = ""  # of all the messages together
    producer: str = ""
    sequence: int = 0  # the producer's number of the first message; the others follow it
    job: tuple[int, int, int] | None = None  # priority, time to run and delay (s)

    def __bool__(self) -> bool:
        return bool(self.headers or self.key or self.producer or self.job)

    def behind(self, count: int) -> "Attributes":
        """Those of the messages behind the first `count`."""
        return replace(self, sequence=self.sequence + count) if self.producer else self

    def pack(self, ordinal: int) -> bytes:
        """Of messages of which the first has that ordinal."""
        difference = self.sequence - ordinal if self.producer else 0  # so that equal ones have equal bytes
        job = () if self.job is None else (self.job,)
        packed: bytes = msgpack.packb([self.headers, self.key, self.producer, difference, *job])
        return packed

    def told(self) -> dict[str, Any]:
        """For those who read: only what there is."""
        told: dict[str, Any] = {}
        if self.headers:
            told["headers"] = dict(self.headers)
        if self.key:
            told["key"] = self.key
        if self.producer:
            told |= {"producer": self.producer, "sequence": self.sequence}
        if self.job is not None:
            told |= dict(zip(("priority", "ttr", "delay"), self.job, strict=True))
        return told


def unpack(packed: bytes, ordinal: int) -> Attributes:
    """What was packed, of messages of which the first has that ordinal; b"": nothing."""
    if not packed:
        return NONE
    said = _unpacked(packed)
    return replace(said, sequence=said.sequence + ordinal) if said.producer else said


@lru_cache(maxsize=1024)
def _unpacked(packed: bytes) -> Attributes:
    """With the difference in place of the sequence. Jobs that were put on the same terms have the same."""
    headers, key, producer, difference, *job = msgpack.unpackb(packed)
    pairs = tuple((name, value) for name, value in headers)
    terms = (job[0][0], job[0][1], job[0][2]) if job else None
    return Attributes(pairs, key, producer, difference, terms)


@lru_cache(maxsize=1024)
def pack_job(priority: int, ttr: int, delay: int) -> bytes:
    """The attributes of a job that has no others."""
    return Attributes(job=(priority, ttr, delay)).pack(0)


def is_word(text: str) -> bool:
    """It can be a key or a producer's name: printable ASCII without spaces, and not too long."""
    return 0 < len(text) <= MOST_WORD and _WORD.issuperset(text)


def read_sequence(text: str) -> int | None:
    """A producer's number, in decimal; None if it is none."""
    if not text.isascii() or not text.isdigit() or len(text) > len(str(MOST_SEQUENCE)):
        return None
    number = int(text)
    return number if number <= MOST_SEQUENCE else None


NONE = Attributes()

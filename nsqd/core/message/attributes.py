"""Attributes of messages: headers, and the key or sequence that distinguishes a retry from a new message.

Reading back and listing show them. Consumers over TCP see headers if they asked for them in IDENTIFY, and no other attributes,
because NSQ's frame has no room for them. Messages that were published together have their attributes in common. The log has
them before the messages, packed as

    [headers, key, producer, sequence minus the ordinal of the first message; of a key: 1 if it is unique while pending]

so that any part of the messages keeps the same bytes. Jobs (nsqd/core/work_queue/tube.py) have a fifth element,
[priority, ttr, delay], or [priority, ttr, delay, ttl, copies].
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import msgpack

from penstock.protocol.headers import (
    AFTER,
    BATCH,
    DELIVER_AT,
    GROUP,
    MOST_PRIORITY,
    PRIORITY,
    TTL,
    UNIQUE,
    USUAL_PRIORITY,
    Headers,
)
from shared.values import parse_duration

MOST_WORD = 128  # characters of a key, or of a producer's name
MOST_SEQUENCE = (1 << 62) - 1
ASKING = frozenset((BATCH, AFTER, DELIVER_AT, UNIQUE))  # headers that ask something of the node
_WORD = frozenset(map(chr, range(0x21, 0x7F)))
_GROUP_FIRST: bytes = b"\x92" + msgpack.packb(GROUP)  # in msgpack: the beginning of a pair with that name
_GROUP_AT = 2 + len(_GROUP_FIRST)  # the byte of packed attributes that has the size of such a value
_SHORT, _SHORT_SIZES = 0xA0, 32  # that byte for a text of no bytes; from how many bytes on a size takes more
_PRIORITY_NAME: bytes = msgpack.packb(PRIORITY)
_PRIORITIES = {str(number): number for number in range(MOST_PRIORITY + 1)}  # by the text of a header
PACKED_TTL: bytes = msgpack.packb(TTL)  # is in the packed attributes of each message with a ttl of its own
_MOST_TTL = 32  # characters of its value
_NO_HEADERS: int = msgpack.packb(())[0]  # the second byte of packed attributes that have none
_OF_A_JOB = 0x95  # in msgpack: an array of five, the first byte of packed attributes of jobs


@dataclass(frozen=True, slots=True)
class Attributes:
    """The attributes of messages published together. At most one of `key` and `producer` is set."""

    headers: Headers = ()
    key: str = ""  # one for all the messages together
    producer: str = ""
    sequence: int = 0  # the producer's number for the first message; the others have the numbers after it
    job: tuple[int, ...] | None = None  # priority, time to run and delay (s), and perhaps time to live (s) and copies
    while_pending: bool = False  # True: the key is unique while the message is pending; False: for the window

    def __bool__(self) -> bool:
        return bool(self.headers or self.key or self.producer or self.job)

    def behind(self, count: int) -> "Attributes":
        """Return the attributes of the messages that remain without the first `count`."""
        return replace(self, sequence=self.sequence + count) if self.producer else self

    def pack(self, ordinal: int) -> bytes:
        """Return the packed attributes, for messages of which the first has that ordinal."""
        # the difference: so that equal attributes have equal bytes
        difference = self.sequence - ordinal if self.producer else int(self.while_pending)
        job = () if self.job is None else (self.job,)
        packed: bytes = msgpack.packb([self.headers, self.key, self.producer, difference, *job])
        return packed

    def as_dict(self) -> dict[str, Any]:
        """Return the attributes that are set, as a dict for replies over HTTP."""
        fields: dict[str, Any] = {}
        if self.headers:
            fields["headers"] = dict(self.headers)
        if self.key:
            fields["key"] = self.key
        if self.while_pending:
            fields["unique"] = "pending"
        if self.producer:
            fields |= {"producer": self.producer, "sequence": self.sequence}
        if self.job is not None:
            fields |= dict(zip(("priority", "ttr", "delay", "ttl", "copies"), self.job, strict=False))
        return fields


def unpack(packed: bytes, ordinal: int) -> Attributes:
    """Return the attributes that `pack` packed for messages of which the first has that ordinal; NONE for b""."""
    if not packed:
        return NONE
    said = _unpacked(packed)
    return replace(said, sequence=said.sequence + ordinal) if said.producer else said


def has_headers(packed: bytes) -> bool:
    """Return True if packed attributes, which are not b"", have headers."""
    return packed[1] != _NO_HEADERS


def group_in(packed: bytes) -> bytes:
    """Return the group of messages with these packed attributes, which have headers; b"": they are of none."""
    if packed.startswith(_GROUP_FIRST, 2) and 0 <= (size := packed[_GROUP_AT] - _SHORT) < _SHORT_SIZES:
        return packed[_GROUP_AT + 1 : _GROUP_AT + 1 + size]  # a third of the cost, if it is the first header, and short
    return dict(_unpacked(packed).headers).get(GROUP, "").encode()


def groups_in(entries: Sequence[tuple[int, int, bytes]]) -> list[bytes]:
    """Return the group of each of these entries of Extent.headers, as `group_in` does, for half its cost."""
    at, start, name, most = _GROUP_AT, _GROUP_AT + 1, _GROUP_FIRST, _SHORT + _SHORT_SIZES
    less = _SHORT - start
    return [
        one[start : one[at] - less] if one[2:at] == name and one[at] < most else group_in(one) for _, _, one in entries
    ]


def concern_channels(packed: bytes) -> bool:
    """Return True if channels need packed attributes, which are not b"": for headers, or for the priority of a job."""
    return has_headers(packed) or priority_in(packed) != USUAL_PRIORITY


def priority_in(packed: bytes) -> int:
    """Return the priority of messages with these packed attributes; of a job without that header: the hex digits of its pri."""
    if _PRIORITY_NAME not in packed and packed[0] != _OF_A_JOB:
        return USUAL_PRIORITY
    attributes = _unpacked(packed)
    text = dict(attributes.headers).get(PRIORITY)
    if text is None and attributes.job is not None:
        return -(-attributes.job[0].bit_length() // 4)
    return _PRIORITIES.get(text or "", USUAL_PRIORITY)


def ttl_in(packed: bytes) -> int:
    """Return the ns for which messages with these packed attributes, which have headers, may be delivered; 0: at any time."""
    text = dict(_unpacked(packed).headers).get(TTL, "") if PACKED_TTL in packed else ""
    try:
        return read_ttl(text) if text else 0
    except ValueError:
        return 0


def read_ttl(text: str) -> int:
    """Return the ns of a time to live, at least 1, that a text means. Raises ValueError."""
    if len(text) > _MOST_TTL or (ns := parse_duration(text)) <= 0:
        raise ValueError("expected a duration such as 30s or 1h30m")
    return ns


@lru_cache(maxsize=1024)
def _unpacked(packed: bytes) -> Attributes:
    """Return the attributes with the difference in place of the sequence. Jobs with the same options share a cache entry."""
    headers, key, producer, difference, *job = msgpack.unpackb(packed)
    pairs = tuple((name, value) for name, value in headers)
    options = tuple(job[0]) if job else None
    if key:
        return Attributes(pairs, key, job=options, while_pending=bool(difference))
    return Attributes(pairs, key, producer, difference, options)


@lru_cache(maxsize=1024)
def pack_job(job: tuple[int, ...]) -> bytes:
    """Return the packed attributes of a job that has no other attributes."""
    return Attributes(job=job).pack(0)


def is_word(text: str) -> bool:
    """Return True if the text can be a key or the name of a producer: printable ASCII, no spaces, at most MOST_WORD long."""
    return 0 < len(text) <= MOST_WORD and _WORD.issuperset(text)


def read_sequence(text: str) -> int | None:
    """Return the decimal sequence number of a producer, or None if the text is not one."""
    if not text.isascii() or not text.isdigit() or len(text) > len(str(MOST_SEQUENCE)):
        return None
    number = int(text)
    return number if number <= MOST_SEQUENCE else None


NONE = Attributes()

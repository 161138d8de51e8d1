"""The lines of an audit: JSON, each with the SHA-256 of the line before it. Pure.

    {"seq":2,"time":"2026-11-26T03:04:05.678Z","node":7,"who":"ops","by":"token","user":"ann","port":"http",
     "address":"10.0.0.9","action":"topic/delete","target":"orders","outcome":"done","prev":"..."}

`user` and `count` are left out where there is none. A process that can write the file can replace the whole chain, and missing
lines at the end do not show: to notice both, keep the digest of the last line elsewhere, or use the audit topic.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any, NamedTuple

from shared.audit.event import UNKNOWN, Event, bounded

FIRST = "0" * 64  # in the first line, for the digest of the line before it
MOST_LINE = 16 * 1024  # bytes: six texts whose characters take 12 bytes each
_TEXTS = ("time", "who", "by", "port", "address", "action", "target", "outcome", "prev")

Record = dict[str, Any]


class Head(NamedTuple):
    """The end of a chain, which the next record continues."""

    seq: int = 0  # number of the last record; 0: there is none
    digest: str = FIRST  # of its line, without the line's end


EMPTY = Head()


class BrokenChainError(ValueError):
    """A line does not continue the chain. The text says why."""


def encode(head: Head, node: int, wall: int, event: Event) -> tuple[bytes, Head]:
    """Return the line of an event after `head`, without the line's end, and the new end. `wall`: ns since the epoch."""
    event = bounded(event)
    time = datetime.fromtimestamp(wall / 1e9, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    record: Record = {"seq": head.seq + 1, "time": time, "node": node, "who": event.who, "by": event.by}
    if event.user:
        record["user"] = event.user
    record |= {"port": event.port, "address": event.address, "action": event.action, "target": event.target}
    if event.count != UNKNOWN:
        record["count"] = event.count
    record |= {"outcome": str(event.outcome), "prev": head.digest}
    line = json.dumps(record, separators=(",", ":")).encode()
    return line, Head(head.seq + 1, digest(line))


def digest(line: bytes) -> str:
    """Return the SHA-256 of a line, without the line's end, in hex."""
    return sha256(line).hexdigest()


def decode(line: bytes) -> Record:
    """Return the record in a line. Raises BrokenChainError if it is none."""
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        raise BrokenChainError("it is not a record: it is not JSON") from None
    if not isinstance(record, dict) or type(record.get("seq")) is not int or record["seq"] < 1:
        raise BrokenChainError("it is not a record: it has no seq")
    for name in _TEXTS:
        if not isinstance(record.get(name), str):
            raise BrokenChainError(f"it is not a record: it has no {name}")
    return record


def follow(head: Head | None, line: bytes) -> Head:
    """Return the end of the chain after a line. None: the line may be any record. Raises BrokenChainError."""
    record = decode(line)
    if head is not None:
        if record["prev"] != head.digest:
            raise BrokenChainError(
                "it does not follow the line before it: one of them was changed, or lines are missing"
            )
        if record["seq"] != head.seq + 1:
            raise BrokenChainError(f"its number is {record['seq']}, expected {head.seq + 1}")
    return Head(record["seq"], digest(line))

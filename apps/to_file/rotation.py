"""When a file of nsq_to_file is full, old or misnamed, and how many messages go into it before that. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, takewhile

from shared.values import SECOND, format_duration


@dataclass(frozen=True, slots=True)
class Limits:
    """The size and the age at which a file ends and the next one begins."""

    size: int = 0  # bytes before compression, -rotate-size; 0 or less: no limit
    interval: float = 0.0  # seconds since it was opened, -rotate-interval; 0 or less: no limit


@dataclass(slots=True)
class OpenFile:
    """The facts about the open file that decide when it ends."""

    name: str  # with <REV>
    path: str
    opened_at: float  # monotonic seconds
    size: int  # bytes before compression


def reason_to_rotate(file: OpenFile, name: str, now: float, limits: Limits) -> str:
    """Return the reason why `file` ends before the next message, or "". `name`: that of a file opened now."""
    if name != file.name:
        return f"new filename {name}"
    if 0 < limits.interval < now - file.opened_at:
        return f"{format_duration(int((now - file.opened_at) * SECOND))} since last open"
    if 0 < limits.size < file.size:
        return f"{file.path} currently {file.size} bytes (> {limits.size})"
    return ""


def fitting(sizes: Sequence[int], used: int, limits: Limits) -> int:
    """Return the number of messages of these sizes in bytes that fit into a file that has `used` bytes.

    As in the original, the message that exceeds the limit is the last one of a file, not the first one of the next. The
    caller has rotated before, so at least one fits.
    """
    if limits.size <= 0:
        return len(sizes)
    below = takewhile(lambda total: total <= limits.size, accumulate(sizes, initial=used))
    return min(len(sizes), sum(1 for _ in below))

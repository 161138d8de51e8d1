"""The header `deliver-at`: a time before which no channel delivers the message, up to ten years ahead."""

from datetime import datetime

from penstock.protocol.headers import DELIVER_AT, Headers
from shared.values import SECOND

LONGEST = 3660 * 24 * 3600  # s: ten years


def read_time(text: str) -> float:
    """Return a time as in RFC 3339, with an offset, in s since the epoch. Raises ValueError."""
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None or not 1970 < moment.year < 9999:
        raise ValueError("expected a time with an offset")
    return moment.timestamp()


def delay_of(headers: Headers, wall: int) -> int:
    """Return for how many ns from `wall` (ns since the epoch) the headers delay a message. Raises ValueError beyond LONGEST."""
    text = next((value for name, value in headers if name == DELIVER_AT), None)
    delay = round(read_time(text) * SECOND) - wall if text is not None else 0
    if delay > LONGEST * SECOND:
        raise ValueError(f"more than {LONGEST} s ahead")
    return max(0, delay)

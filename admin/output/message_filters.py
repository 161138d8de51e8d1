"""Filters of a list of messages, as the address of a page has them and as nodes are asked. Pure.

A time is "2026-11-21 10:00" (UTC unless it says otherwise), or an age such as "15m": s, m, h and d. All conditions must be met.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime

from penstock.protocol.nsq import MAX_ATTEMPTS
from shared.http.errors import HttpError
from shared.values import SECOND, whole_number

MOST_TEXT = 200  # characters of each field
_AGE = re.compile(r"([0-9]{1,9})\s*([smhd])")
_UNITS = {"s": SECOND, "m": 60 * SECOND, "h": 3600 * SECOND, "d": 86_400 * SECOND}


@dataclass(frozen=True, slots=True)
class Filters:
    """The filters that a user sets. Empty fields set no condition."""

    search: str = ""  # in the body or a header
    header: str = ""  # NAME or NAME=VALUE
    min_attempts: str = ""
    before: str = ""  # a time: published before it
    since: str = ""  # a time: published then or later
    reason: str = ""  # of messages that are buried

    def __bool__(self) -> bool:
        return bool(self.fields())

    @property
    def asks_about_contents(self) -> bool:
        """Return whether only a user who may read bodies may use these filters."""
        return bool(self.search or self.header)

    def fields(self) -> dict[str, str]:
        """Return the fields that are set, as an address or a form has them."""
        return {name: value for name in NAMES if (value := getattr(self, name))}

    def asked(self, now: int) -> dict[str, str]:
        """Return the arguments for a node. `now`: ns since the epoch. Raises HttpError 400 for a field that is invalid."""
        texts = {"contains": self.search, "header": self.header, "reason": self.reason}
        found = {name: value for name, value in texts.items() if value}
        if self.min_attempts:
            try:
                found["min_attempts"] = str(whole_number(self.min_attempts, 0, MAX_ATTEMPTS))
            except ValueError:
                raise HttpError(400, f"Attempts must be a whole number from 0 to {MAX_ATTEMPTS:,}.") from None
        for name, argument in (("before", "published_before"), ("since", "published_after")):
            if value := getattr(self, name):
                found[argument] = str(_time(value, now))
        return found


NAMES = Filters.__slots__


def read_filters(asked: dict[str, str], state: str) -> Filters:
    """Return the filters in the fields of an address or a form. Only buried messages have reasons."""
    found = {name: asked.get(name, "").strip()[:MOST_TEXT] for name in NAMES}
    return Filters(**found | ({} if state == "buried" else {"reason": ""}))


def _time(text: str, now: int) -> int:
    """Return a time in ns since the epoch. Raises HttpError 400."""
    if match := _AGE.fullmatch(text.lower()):
        return max(1, now - int(match[1]) * _UNITS[match[2]])
    try:
        then = datetime.fromisoformat(text.removesuffix(" UTC"))
        seconds = (then if then.tzinfo else then.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        problem = f"Invalid time {text[:40]!r}: use 2026-11-21 10:00 (UTC), or an age such as 15m."
        raise HttpError(400, problem) from None
    return max(1, int(seconds * 1e6) * 1000)

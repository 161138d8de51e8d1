"""When a message that failed is delivered again: the values of the setting `retry`.

The server waits, without the client's help: after a timeout, a lost connection, and a requeue or release that names no delay
of its own.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from shared.values import format_duration, parse_duration

LEAST, LONGEST = 1_000_000, 30 * 86_400 * 1_000_000_000  # ns
_KEPT = 4  # a delay is shorter than its longest by at most a fourth of it
_WRITTEN = re.compile(r"(?:fixed\((?P<fixed>[^(),]+)\)|exponential\((?P<first>[^(),]+),(?P<most>[^(),]+)\))\Z")


@dataclass(frozen=True, slots=True)
class Retry:
    """The delays before further deliveries, in ns: the first, and the longest, to which they double. 0: there is none.

    >>> str(Retry.parse("exponential(1s, 10m)")), Retry.parse("none").delay(7, lambda below: 0)
    ('exponential(1s,10m0s)', 0)
    """

    first: int = 0
    most: int = 0

    def delay(self, failures: int, random_below: Callable[[int], int]) -> int:
        """Return the delay in ns after that number of failures, at least one.

        `random_below(n)` returns a number in 0..n-1. Messages that failed together come back apart: up to a quarter earlier.
        """
        if not self.most:
            return 0
        longest = min(self.first << min(failures - 1, 64), self.most)
        return longest - random_below(longest // _KEPT + 1) if self.first < self.most else longest

    @classmethod
    def parse(cls, text: str) -> Retry:
        """Return the delays that a text means: `none`, `fixed(5s)`, `exponential(1s, 10m)`. Raises ValueError."""
        if text == "none":
            return cls()
        found = _WRITTEN.match(text)
        if found is None:
            raise ValueError("expected none, fixed(...) or exponential(..., ...)")
        first = parse_duration((found["fixed"] or found["first"]).strip())
        most = parse_duration(found["most"].strip()) if found["most"] else first
        if not LEAST <= first <= most <= LONGEST or (found["most"] and first == most):
            raise ValueError("expected delays from 1ms to 30 days, the first below the longest")
        return cls(first, most)

    def __str__(self) -> str:
        if not self.most:
            return "none"
        first, most = format_duration(self.first), format_duration(self.most)
        return f"exponential({first},{most})" if self.first < self.most else f"fixed({first})"

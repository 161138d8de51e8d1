"""Attempts that were refused, in the audit trail: by rights, or because a confirmation did not match.

Repetitions are counted, and so are attempts that exceed a budget, so that an attacker can neither fill the trail nor displace
other records from it. The counts follow later in a record of their own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from admin.users.audit import Actor, Audit

WINDOW = 60.0  # s in which equal attempts are counted instead of recorded
BURST, PER_SECOND = 20.0, 1 / 60  # records at once, and in the long run: less than a megabyte a day
SUMMARY = 600.0  # s between two records of what exceeded the budget
MOST_KINDS = 1000  # kinds of attempts that are counted one by one

_Kind = tuple[str, str, str, str]  # user, action, target, and reason


def _later(seconds: float, do: Callable[[], None]) -> None:
    asyncio.get_running_loop().call_later(seconds, do)


@dataclass(slots=True)
class _Counted:
    ends: float  # s
    actor: Actor
    count: int = 0  # repetitions


@dataclass(slots=True)
class RefusedAttempts:
    """Records refused attempts, and counts those that are repeated or too many."""

    audit: Audit
    clock: Callable[[], float]  # s, monotonic
    later: Callable[[float, Callable[[], None]], None] = _later  # calls a function after some seconds
    _counted: dict[_Kind, _Counted] = field(default_factory=dict)
    _left: float = BURST  # records that may be written now
    _left_at: float = 0.0  # s: when that was so
    _omitted: int = 0  # attempts that no record names
    _is_due: bool = False  # `_omitted` is going to be recorded

    def note(self, action: str, target: str, actor: Actor, reason: str) -> None:
        """Record a refused attempt, or count it."""
        kind = actor.user, action[:100], target[:200], reason[:200]
        known = self._counted.get(kind)
        if known is not None:
            known.count += 1
        elif len(self._counted) >= MOST_KINDS or not self._may_record():
            self._omit(1)
        else:
            self._counted[kind] = _Counted(self.clock() + WINDOW, actor)
            self.audit.note(*kind[1:3], actor, f"refused: {kind[3]}")
            self.later(WINDOW, lambda: self._end(kind))

    def _end(self, kind: _Kind) -> None:
        """End the window of a kind, and record how often the attempt was repeated."""
        ended = self._counted.pop(kind)
        if ended.count and self._may_record():
            self.audit.note(*kind[1:3], ended.actor, f"refused: {kind[3]}", repeated=ended.count)
        elif ended.count:
            self._omit(ended.count)

    def _omit(self, count: int) -> None:
        self._omitted += count
        if not self._is_due:
            self._is_due = True
            self.later(SUMMARY, self._sum_up)

    def _sum_up(self) -> None:
        self._is_due = False
        count, self._omitted = self._omitted, 0
        outcome = "refused: more attempts than are recorded one by one"
        self.audit.note("any", "", Actor("", "", "", ""), outcome, count=count)

    def _may_record(self) -> bool:
        """Return whether the budget has room for a record, and take it."""
        now = self.clock()
        self._left = min(BURST, self._left + (now - self._left_at) * PER_SECOND)
        self._left_at = now
        if self._left < 1:
            return False
        self._left -= 1
        return True

"""The replies of one connection that have a limit of their own, and wait for promises.

Such a reply leaves when its promise is kept. At its limit an error replaces it, and the connection continues. Replies leave
in the order of their commands, so the output of a turn is sealed in parts: each ends with replies of one limit.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, replace
from itertools import groupby

from nsqd.core.sequence.mark import Promise
from nsqd.protocols.outbox import Limited
from nsqd.protocols.transport import NEVER

Sealed = tuple[list[Promise], list[bytes]]  # output, and the promises that must be kept before it leaves


@dataclass(slots=True)
class _Part:
    """A part of the output of one turn whose last replies have a limit."""

    due: int  # monotonic ns
    promise: Promise  # one of those in `sealed`
    sealed: Sealed
    limited: list[tuple[int, Limited]]  # the replies with the limit, by their places in the output of the part


class ReplyLimits:
    """The replies of one connection that have a limit, while they wait."""

    __slots__ = ("_parts", "due")

    def __init__(self) -> None:
        self._parts: deque[_Part] = deque()  # the earliest commands first
        self.due = NEVER  # monotonic ns: `expire` has nothing to do before

    def seal(self, promises: list[Promise], output: list[bytes], limited: list[Limited]) -> list[Sealed]:
        """Divide the output of a turn into parts with the promises that they wait for. `limited`: its replies with a limit."""
        while self._parts and self._parts[0].promise.is_kept:
            self._parts.popleft()
        marks = {one.mark for one in limited}
        usual = [promise for promise in promises if promise.mark not in marks]
        by_mark = {promise.mark: promise for promise in promises if promise.mark in marks}
        parts: list[Sealed] = []
        begin = 0
        for (mark, due), group in groupby(limited, key=lambda one: (one.mark, one.due)):
            replies = list(group)
            end = replies[-1].place + 1
            part = list(usual), output[begin:end]
            promise = by_mark.get(mark)
            if promise is not None:  # else it is kept already
                part[0].append(promise)
                self._parts.append(_Part(due, promise, part, [(one.place - begin, one) for one in replies]))
                self.due = min(self.due, due)
            parts.append(part)
            begin = end
        if begin < len(output):
            parts.append((usual, output[begin:]))
        return parts

    def shorten(self, due: int, error: bytes) -> None:
        """Let no reply that waits now wait any longer than until `due` (monotonic ns). Those that would have become `error`."""
        for part in self._parts:
            if part.due > due:
                part.due = due
                part.limited = [(at, replace(one, instead=error * one.count)) for at, one in part.limited]
        if self._parts:
            self.due = min(self.due, due)

    def expire(self, now: int) -> None:
        """Put errors in the place of the replies whose limits are over at `now` (monotonic ns). They wait no longer."""
        left: deque[_Part] = deque()
        for part in self._parts:
            if part.promise.is_kept:
                continue
            if part.due > now:
                left.append(part)
                continue
            promises, output = part.sealed
            promises.remove(part.promise)
            for place, one in part.limited:
                output[place] = one.instead
                one.mark.in_vain += one.count
        self._parts = left
        self.due = min([part.due for part in left], default=NEVER)

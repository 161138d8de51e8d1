"""The replies of one connection that have a limit of their own, and wait for promises.

Such a reply leaves when its promise is kept. At its limit an error replaces it, and the connection continues. Replies leave
in the order of their commands, so the output of a turn is sealed in parts: each ends with replies of one limit.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
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
        if len(output) == 1:  # nearly always: the client waits for each reply
            one = limited[0]
            others = [promise for promise in promises if promise.mark is not one.mark]
            own = [promise for promise in promises if promise.mark is one.mark]
            return [self._part(others, own[0] if own else None, output, one.due, [(0, one)])]
        marks = {one.mark for one in limited}
        usual = [promise for promise in promises if promise.mark not in marks]
        by_mark = {promise.mark: promise for promise in promises if promise.mark in marks}
        parts: list[Sealed] = []
        begin = 0
        for (mark, due), group in groupby(limited, key=lambda one: (one.mark, one.due)):
            replies = list(group)
            end = replies[-1].place + 1
            placed = [(one.place - begin, one) for one in replies]
            parts.append(self._part(usual, by_mark.get(mark), output[begin:end], due, placed))
            begin = end
        if begin < len(output):
            parts.append((usual, output[begin:]))
        return parts

    def _part(
        self,
        usual: list[Promise],
        promise: Promise | None,
        output: list[bytes],
        due: int,
        limited: list[tuple[int, Limited]],
    ) -> Sealed:
        """Return a part that waits for `usual` and, at most until `due`, for `promise`; None: that is kept already."""
        if promise is None:
            return usual, output
        sealed = [*usual, promise], output
        self._parts.append(_Part(due, promise, sealed, limited))
        if due < self.due:
            self.due = due
        return sealed

    def shorten(self, due: int, error: bytes) -> None:
        """Let no reply that waits now wait any longer than until `due` (monotonic ns). Those that would have become `error`."""
        for part in self._parts:
            if part.due > due:
                part.due = due
                part.limited = [(at, one._replace(instead=error * one.replies)) for at, one in part.limited]
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
                one.mark.in_vain += one.replies
        self._parts = left
        self.due = min([part.due for part in left], default=NEVER)

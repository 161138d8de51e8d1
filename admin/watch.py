"""Pages that are looked at again and again: the nodes are asked once for all who look, and rates come from the time before."""

from __future__ import annotations

import asyncio
import math
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

FRESH = 1.5  # s that an answer serves everybody
POLITE = 50  # times as long as an answer took we do not ask again: nodes spend no more than 2 % of their time on us
MOST_POLITE = 5.0  # s
SOON = 0.08  # s that a page waits for what it can do without for a moment
FORGOTTEN = 60.0  # s after which it is no `before` any more
MOST = 200  # questions that are remembered
MOST_MEMORY = 256 * 1024 * 1024  # bytes that the answers to them hold, of those that say in `memory` what they hold

T = TypeVar("T")


@dataclass(slots=True)
class Seen(Generic[T]):
    """An answer, and the one before it."""

    now: T
    before: T | None = None
    seconds: float = 0.0  # between the two


@dataclass(slots=True)
class _Slot:
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    seen: Seen[Any] | None = None
    asked_at: float = 0.0
    at: float = 0.0  # when it was answered
    polite: float = 0.0  # s that it shall serve, for what it took
    failure: Exception | None = None
    failed_at: float = 0.0


class Watch:
    """See above. Bounded: the question that was asked longest ago is forgotten."""

    def __init__(self, clock: Callable[[], float] = time.monotonic, most_memory: int = MOST_MEMORY) -> None:
        self._clock = clock
        self._most_memory = most_memory
        self._slots: OrderedDict[object, _Slot] = OrderedDict()
        self._changed_at = -math.inf
        self._tasks: set[asyncio.Task[Any]] = set()  # that somebody did not wait for

    async def ask(self, key: object, question: Callable[[], Awaitable[T]], fresh: float = FRESH) -> Seen[T]:
        """An answer of the last `fresh` seconds, and of after the last change.

        Raises what the question raises: to all who ask in the next moment, who shall not wait in turn for a node that hangs.
        """
        slot = self._slots.setdefault(key, _Slot())
        self._slots.move_to_end(key)
        if len(self._slots) > MOST:
            self._slots.popitem(last=False)
        async with slot.lock:
            began = self._clock()
            if slot.asked_at > self._changed_at:
                if slot.seen is not None and slot.failure is None and began - slot.at < max(fresh, slot.polite):
                    return slot.seen
                if slot.failure is not None and began - slot.failed_at < FRESH:
                    raise slot.failure
            slot.asked_at = began
            try:
                answer = await question()
            except Exception as failure:
                slot.failure, slot.failed_at = failure.with_traceback(None), self._clock()
                raise
            slot.failure = None
            now, before = self._clock(), slot.seen
            slot.seen = Seen(answer)
            if before is not None and now - slot.at < FORGOTTEN:
                slot.seen = Seen(answer, before.now, now - slot.at)
            self._forget_the_oldest(key)
            slot.at, slot.polite = now, min(MOST_POLITE, POLITE * (now - began))
            return slot.seen

    async def soon(self, key: object, question: Callable[[], Awaitable[T]], fresh: float = FRESH) -> Seen[T] | None:
        """As `ask`, but who asks waits for SOON at the most: then an older answer stands for it, or None. It is asked on."""
        task = asyncio.create_task(self.ask(key, question, fresh))
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        await asyncio.wait({task}, timeout=SOON)
        if task.done():
            return task.result()
        slot = self._slots.get(key)
        is_young = slot is not None and self._clock() - slot.at < FORGOTTEN and slot.at > self._changed_at
        return slot.seen if slot is not None and is_young else None

    def _forget_the_oldest(self, but: object) -> None:
        """As many answers as are more than may be held; not the one of that key."""
        excess = sum(map(_memory, self._slots.values())) - self._most_memory
        for key in [key for key in self._slots if key != but]:
            if excess <= 0:
                return
            excess -= _memory(self._slots.pop(key))

    def knows(self, key: object) -> bool:
        """There was an answer, however old."""
        slot = self._slots.get(key)
        return slot is not None and slot.seen is not None

    def _ended(self, task: asyncio.Task[Any]) -> None:
        """Nobody may be there any more to hear what went wrong."""
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()

    def forget(self) -> None:
        """Something was changed: the next to look sees it."""
        self._changed_at = self._clock()


def _memory(slot: _Slot) -> int:
    """How many bytes of the budget the answers in a slot hold."""
    seen = slot.seen
    return sum(getattr(answer, "memory", 0) for answer in (seen.now, seen.before)) if seen is not None else 0

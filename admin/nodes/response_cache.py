"""A cache for pages: nodes are asked once for all viewers, and rates come from the previous answer."""

from __future__ import annotations

import asyncio
import math
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from admin.nodes.upstreams import retrieve

FRESH = 1.5  # s that an answer serves all viewers
# Wait this many times the duration of a query before the next: nodes then spend at most 2 % of their time on it.
POLITE = 50
MOST_POLITE = 5.0  # s: the longest such wait
PAGE_WAIT = 0.08  # s that a page waits for an answer that it can do without for now
FORGOTTEN = 60.0  # s after which an answer no longer serves as `before`
MOST = 200  # queries that are remembered
MOST_MEMORY = 256 * 1024 * 1024  # bytes that remembered answers hold, as far as they state it in `memory`

T = TypeVar("T")


@dataclass(slots=True)
class CachedAnswer(Generic[T]):
    """An answer, and the one before it."""

    now: T
    before: T | None = None
    seconds: float = 0.0  # between the two answers


@dataclass(slots=True)
class _Entry:
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    cached: CachedAnswer[Any] | None = None
    asked_at: float = 0.0
    at: float = 0.0  # when the answer came
    polite: float = 0.0  # s that the answer serves because of the time that it took
    failure: Exception | None = None
    failed_at: float = 0.0


class ResponseCache:
    """Remembers the answers of at most MOST queries: the query asked longest ago is forgotten first."""

    def __init__(
        self, clock: Callable[[], float] = time.monotonic, most_memory: int = MOST_MEMORY,
        nodes: Callable[[], object] = lambda: None,
    ) -> None:  # fmt: skip
        """`nodes`: identifies the nodes that answers are from. When it changes, earlier answers are invalid."""
        self._clock = clock
        self._nodes = nodes
        self._known_nodes = nodes()
        self._most_memory = most_memory
        self._entries: OrderedDict[object, _Entry] = OrderedDict()
        self._changed_at = -math.inf
        self._tasks: set[asyncio.Task[Any]] = set()  # queries whose callers did not wait

    def __len__(self) -> int:
        return len(self._entries)

    async def get(self, key: object, query: Callable[[], Awaitable[T]], fresh: float = FRESH) -> CachedAnswer[T]:
        """Return an answer that is at most `fresh` seconds old and newer than the last change, or await the query.

        An exception of the query is raised, also to callers within FRESH after it: they would wait in turn for a slow node.
        """
        if (nodes := self._nodes()) != self._known_nodes:
            self._known_nodes = nodes
            self.invalidate()
        entry = self._entries.setdefault(key, _Entry())
        self._entries.move_to_end(key)
        if len(self._entries) > MOST:
            self._entries.popitem(last=False)
        async with entry.lock:
            began = self._clock()
            if entry.asked_at > self._changed_at:
                if entry.cached is not None and entry.failure is None and began - entry.at < max(fresh, entry.polite):
                    return entry.cached
                if entry.failure is not None and began - entry.failed_at < FRESH:
                    raise entry.failure
            entry.asked_at = began
            try:
                answer = await query()
            except Exception as failure:
                entry.failure, entry.failed_at = failure.with_traceback(None), self._clock()
                raise
            entry.failure = None
            now, before = self._clock(), entry.cached
            entry.cached = CachedAnswer(answer)
            if before is not None and now - entry.at < FORGOTTEN:
                entry.cached = CachedAnswer(answer, before.now, now - entry.at)
            self._evict_oldest(key)
            entry.at, entry.polite = now, min(MOST_POLITE, POLITE * (now - began))
            return entry.cached

    async def get_or_stale(
        self, key: object, query: Callable[[], Awaitable[T]], fresh: float = FRESH
    ) -> CachedAnswer[T] | None:
        """Return the answer of `get`, or after PAGE_WAIT an older one, or None. The query continues in the background."""
        task = asyncio.create_task(self.get(key, query, fresh))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(retrieve)
        await asyncio.wait({task}, timeout=PAGE_WAIT)
        if task.done():
            return task.result()
        entry = self._entries.get(key)
        is_young = entry is not None and self._clock() - entry.at < FORGOTTEN and entry.at > self._changed_at
        return entry.cached if entry is not None and is_young else None

    def _evict_oldest(self, but: object) -> None:
        """Forget the oldest answers until the rest fits into the memory limit, but not that of the key `but`."""
        excess = sum(map(_memory, self._entries.values())) - self._most_memory
        for key in [key for key in self._entries if key != but]:
            if excess <= 0:
                return
            excess -= _memory(self._entries.pop(key))

    def has_answer(self, key: object) -> bool:
        """Return whether there was an answer, however old."""
        entry = self._entries.get(key)
        return entry is not None and entry.cached is not None

    def invalidate(self) -> None:
        """Note a change: answers from before it no longer serve."""
        self._changed_at = self._clock()


def _memory(entry: _Entry) -> int:
    """Return the bytes of the budget that the answers in a entry hold."""
    cached = entry.cached
    return sum(getattr(answer, "memory", 0) for answer in (cached.now, cached.before)) if cached is not None else 0

"""Make an expensive value once at a time: callers that ask meanwhile share the next making."""

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

T = TypeVar("T")


class Coalescing(Generic[T]):
    """Values that are made on demand, one at a time, in the HTTP thread.

    No caller is given a value whose making began before the call, so an answer covers everything done before its request.
    """

    def __init__(self) -> None:
        self._lock = asyncio.Lock()  # held while a value is made
        self._next: dict[Hashable, asyncio.Task[T]] = {}  # the makings that are asked for and have not begun, by key

    async def get(self, key: Hashable, make: Callable[[], Awaitable[T]]) -> T:
        """Return or raise what `make` does. Calls with equal keys may share one result."""
        task = self._next.get(key)
        if task is None:
            task = self._next[key] = asyncio.create_task(self._make(key, make))
        return await asyncio.shield(task)  # a caller that is cancelled does not cancel it for the others

    async def _make(self, key: Hashable, make: Callable[[], Awaitable[T]]) -> T:
        async with self._lock:
            del self._next[key]
            return await make()

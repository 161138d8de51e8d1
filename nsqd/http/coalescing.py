"""What is dear to make is made once at a time: who asks for it meanwhile shares the next making with others who ask."""

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

T = TypeVar("T")


class Coalescing(Generic[T]):
    """See above. (HTTP thread)

    Nobody is given what was begun before he asked, so an answer tells what was done before its question.
    """

    def __init__(self) -> None:
        self._lock = asyncio.Lock()  # held by the one that is being made
        self._next: dict[Hashable, asyncio.Task[T]] = {}  # what is asked for and not begun, by what it is

    async def get(self, key: Hashable, make: Callable[[], Awaitable[T]]) -> T:
        """What `make` returns or raises; `key` says what that is: equal ones are interchangeable."""
        task = self._next.get(key)
        if task is None:
            task = self._next[key] = asyncio.create_task(self._make(key, make))
        return await asyncio.shield(task)  # one who goes away does not take it from the others

    async def _make(self, key: Hashable, make: Callable[[], Awaitable[T]]) -> T:
        async with self._lock:
            del self._next[key]
            return await make()

"""What others are to be told of: one at a time and in order, and whoever does something never waits for it. Bounded."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

MOST_WAITING = 1000  # that were not delivered yet

T = TypeVar("T")


class Outbox(Generic[T]):
    """`deliver` tells of one; what goes wrong with it, it logs itself."""

    def __init__(self, deliver: Callable[[T], Awaitable[None]]) -> None:
        self._deliver = deliver
        self._waiting: asyncio.Queue[T] = asyncio.Queue(MOST_WAITING)
        self._task: asyncio.Task[None] | None = None

    def put(self, item: T) -> bool:
        """To be told soon. False if too many wait already: then it is not."""
        try:
            self._waiting.put_nowait(item)
        except asyncio.QueueFull:
            return False
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._go_on())
        return True

    async def _go_on(self) -> None:
        while True:
            await self._deliver(await self._waiting.get())

"""A bounded queue of items to deliver elsewhere, in order and one at a time, without delay for the caller."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextvars import Context
from typing import Generic, TypeVar

MOST_WAITING = 1000  # items that were not delivered yet

T = TypeVar("T")


class Outbox(Generic[T]):
    """Delivers items by `deliver`, which handles and logs errors itself."""

    def __init__(self, deliver: Callable[[T], Awaitable[None]]) -> None:
        self._deliver = deliver
        self._waiting: asyncio.Queue[T] = asyncio.Queue(MOST_WAITING)
        self._task: asyncio.Task[None] | None = None

    def put(self, item: T) -> bool:
        """Queue an item for delivery. Returns False, and drops the item, if too many wait."""
        try:
            self._waiting.put_nowait(item)
        except asyncio.QueueFull:
            return False
        if self._task is None:
            # in a context of its own: the items are not delivered on behalf of the user whose request came first
            self._task = asyncio.get_running_loop().create_task(self._deliver_all(), context=Context())
        return True

    async def _deliver_all(self) -> None:
        while True:
            await self._deliver(await self._waiting.get())

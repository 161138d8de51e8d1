"""An event that one task waits for once. On asyncio it is a bare future, which costs a third of an anyio.Event."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Protocol

import anyio
import sniffio


class Waiter(Protocol):
    """Set once, and waited for by one task. anyio.Event is one."""

    def set(self) -> object: ...
    def wait(self) -> Awaitable[object]: ...


class FutureWaiter:
    """A Waiter on asyncio: a future, which costs less than an anyio.Event."""

    __slots__ = ("_future",)

    def __init__(self, future: "asyncio.Future[None]") -> None:
        self._future = future

    def set(self) -> None:
        """Wake the task. Setting it again does nothing."""
        if not self._future.done():
            self._future.set_result(None)

    def wait(self) -> Awaitable[None]:
        """Return the awaitable of the task."""
        return self._future


def waiters() -> Callable[[], Waiter]:
    """Return the maker of Waiters in the event loop that runs now."""
    if sniffio.current_async_library() != "asyncio":
        return anyio.Event
    create_future = asyncio.get_running_loop().create_future
    return lambda: FutureWaiter(create_future())


def waker(event: anyio.Event) -> Callable[[], None]:
    """Return a function that sets the event from another thread. It does nothing once the event loop is over."""
    post: Callable[..., object]
    if sniffio.current_async_library() == "asyncio":
        post = asyncio.get_running_loop().call_soon_threadsafe
    else:
        import trio

        post = trio.lowlevel.current_trio_token().run_sync_soon

    def wake() -> None:
        with suppress(RuntimeError):  # trio's RunFinishedError is one
            post(event.set)

    return wake

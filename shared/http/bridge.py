"""From the HTTP thread into the trio thread and back: one function serves all waiting calls per wake-up.

`call` runs in the HTTP thread; `serve`, `deliver` and `post` in the trio thread. The owner may put a commit between `serve` and
`deliver`: then no HTTP reply leaves before what it promises is durable.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from shared.http.errors import HttpError

if TYPE_CHECKING:
    import asyncio

T = TypeVar("T")


@dataclass(slots=True)
class Call:
    """One waiting handler: what it wants done, and then what came of it."""

    function: Callable[[], Any]
    future: asyncio.Future[Any]
    result: Any = None
    error: HttpError | None = None


class Bridge:
    """The queue between the two threads. deque and a flag suffice: appends and pops are atomic under the GIL."""

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake  # callable from any thread: makes the trio thread call serve() soon
        self._waiting: deque[Call] = deque()
        self._signalled = False  # True: a wake-up is on its way and will see what is appended now
        self._loop: asyncio.AbstractEventLoop | None = None

    async def call(self, function: Callable[[], T]) -> T:
        """Run `function` in the trio thread; return its result or raise its HttpError. (HTTP thread)"""
        if self._loop is None:
            import asyncio  # the trio thread, which serves TCP, goes without

            self._loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = self._loop.create_future()
        self._waiting.append(Call(function, future))
        if not self._signalled:
            self._signalled = True
            self._loop.call_soon(self._wake)  # not at once: first let the other requests of this pass of the loop join
        return await future

    async def wait(self, begin: Callable[[Callable[[], None]], None]) -> None:
        """Run `begin` in the trio thread, with a function; return when that was called there. (HTTP thread)"""
        import asyncio

        future = asyncio.get_running_loop().create_future()

        def resolve() -> None:
            if not future.done():
                future.set_result(None)

        await self.call(lambda: begin(lambda: self.post(resolve)))
        await future

    def serve(self) -> list[Call]:
        """Run the calls that wait and return them, to be delivered. (trio thread)

        What is asked for meanwhile waits for the next wake-up: the owner's clock was read before it came. Only HttpError is
        an answer; any other exception is a bug of ours and rises.
        """
        self._signalled = False  # before they are counted: what is appended afterwards signals anew
        served = []
        for _ in range(len(self._waiting)):
            call = self._waiting.popleft()
            try:
                call.result = call.function()
            except HttpError as error:
                call.error = error.with_traceback(None)  # which would hold the call, and the request with it
            served.append(call)
        return served

    def refuse(self, served: list[Call]) -> None:
        """What they did cannot be promised: 503 to all of them. (trio thread)"""
        for call in served:
            call.error = HttpError(503, "EXITING")  # the original's word for any failure to put
        self.deliver(served)

    def deliver(self, served: list[Call]) -> None:
        """Hand results back to their handlers, all in one hop. (trio thread)"""
        if served:
            self.post(lambda: _resolve(served))

    def post(self, function: Callable[[], object]) -> None:
        """Have it called in the HTTP thread. (trio thread)"""
        if self._loop is None:
            return
        try:
            self._loop.call_soon_threadsafe(function)
        except RuntimeError:
            pass  # the HTTP loop has closed: its connections are gone, nobody waits any more


def _resolve(served: list[Call]) -> None:
    for call in served:
        if call.future.done():  # the client went away while we worked
            continue
        if call.error is not None:
            call.future.set_exception(call.error)
        else:
            call.future.set_result(call.result)

"""Calls from the HTTP thread into the trio thread and back: one function serves all waiting calls per wake-up.

`call` and `observe` run in the HTTP thread; `serve`, `deliver` and `post` run in the trio thread. The owner may put a commit
between `serve` and `deliver`: then no HTTP reply is sent before what it promises is durable. What `observe` asks for promises
nothing, and is answered by `serve`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from shared.http.errors import HttpError

if TYPE_CHECKING:
    import asyncio

T = TypeVar("T")


@dataclass(slots=True)
class Call:
    """The call of a waiting handler: the function to run, then its result or error."""

    function: Callable[[], Any]
    future: asyncio.Future[Any]
    promises: bool  # False: it changes nothing, and its reply waits for nothing
    result: Any = None
    error: HttpError | None = None


class Done(Protocol):
    """The callback of `Bridge.wait`, for functions that call it with and without an argument. For the trio thread."""

    def __call__(self, is_successful: bool = True) -> None: ...


class Bridge:
    """The queue between the two threads. deque and a flag suffice: appends and pops are atomic under the GIL."""

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake  # callable from any thread: makes the trio thread call serve() soon
        self._waiting: deque[Call] = deque()
        self._signalled = False  # True: a wake-up is pending, and will see what is appended now
        self._is_closed = False
        self._loop: asyncio.AbstractEventLoop | None = None

    async def observe(self, function: Callable[[], T]) -> T:
        """Do as `call`, for a function that changes nothing: its result waits neither for the disk nor for other nodes."""
        return await self.call(function, promises=False)

    async def call(self, function: Callable[[], T], promises: bool = True) -> T:
        """Run `function` in the trio thread and return its result, or raise its HttpError. To be called in the HTTP thread."""
        if self._loop is None:
            import asyncio  # not at the top: the trio thread, which serves TCP, does not need asyncio

            self._loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = self._loop.create_future()
        self._waiting.append(Call(function, future, promises))
        if self._is_closed:
            self._refuse_waiting()
        elif not self._signalled:
            self._signalled = True
            self._loop.call_soon(self._wake)  # later, so that other requests of this pass of the loop can join
        return await future

    async def call_each(self, steps: Iterator[T]) -> list[T]:
        """Run each step in a turn of its own, and return the results when the promises of all of them are kept.

        No step waits for the promises of those before. To be called in the HTTP thread. Raises HttpError of the first step
        that fails, which is the last one.
        """
        import asyncio

        replies, is_over = list[asyncio.Future[list[T]]](), False
        while not is_over:
            ran: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            is_over = True  # unless the step runs, and is not the end

            def step(ran: asyncio.Future[None] = ran) -> list[T]:
                nonlocal is_over
                found = list(islice(steps, 1))
                is_over = not found
                self.post(lambda: ran.set_result(None))
                return found

            replies.append(asyncio.ensure_future(self.call(step)))
            await asyncio.wait((ran, replies[-1]), return_when=asyncio.FIRST_COMPLETED)
        return list(chain.from_iterable(await asyncio.gather(*replies)))

    async def wait(self, begin: Callable[[Done], None]) -> bool:
        """Run `begin` in the trio thread, and return what its callback is called with. To be called in the HTTP thread."""
        import asyncio

        future: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

        def resolve(is_successful: bool) -> None:
            if not future.done():
                future.set_result(is_successful)

        def done(is_successful: bool = True) -> None:
            self.post(lambda: resolve(is_successful))

        await self.call(lambda: begin(done))
        return await future

    def serve(self) -> list[Call]:
        """Run the waiting calls, answer those that promise nothing, and return the others for `deliver`.

        To be called in the trio thread. Calls that arrive meanwhile wait for the next wake-up, because the owner read its
        clock before they came. Only HttpError is an answer; any other exception is a bug and propagates.
        """
        self._signalled = False  # before the calls are counted: later appends signal again
        observed, served = list[Call](), list[Call]()
        for _ in range(len(self._waiting)):
            call = self._waiting.popleft()
            try:
                call.result = call.function()
            except HttpError as error:
                call.error = error.with_traceback(None)  # the traceback would keep the call and the request alive
            (served if call.promises else observed).append(call)
        self.deliver(observed)
        return served

    def refuse(self, served: list[Call], text: str = "EXITING") -> None:
        """Answer 503 to all of these calls, because their effects cannot be promised. To be called in the trio thread.

        `text` says why; the usual one is the original's word for any failure to put.
        """
        for call in served:
            call.error = HttpError(503, text)
        self.deliver(served)

    def close(self) -> None:
        """Answer 503 to the calls that wait and to all later ones. To be called in the trio thread."""
        self._is_closed = True
        self._refuse_waiting()

    def _refuse_waiting(self) -> None:
        waiting = list[Call]()
        while self._waiting:
            try:
                waiting.append(self._waiting.popleft())
            except IndexError:  # the other thread refuses it
                break
        self.refuse(waiting)

    def deliver(self, served: list[Call]) -> None:
        """Pass the results back to the handlers, all in one hop. To be called in the trio thread."""
        if served:
            self.post(lambda: _resolve(served))

    def post(self, function: Callable[[], object]) -> None:
        """Have `function` called in the HTTP thread. To be called in the trio thread."""
        if self._loop is None:
            return
        try:
            self._loop.call_soon_threadsafe(function)
        except RuntimeError:
            pass  # the HTTP loop is closed and its connections are gone, so no handler waits


def _resolve(served: list[Call]) -> None:
    for call in served:
        if call.future.done():  # the client disconnected meanwhile
            continue
        if call.error is not None:
            call.future.set_exception(call.error)
        else:
            call.future.set_result(call.result)

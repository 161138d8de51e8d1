"""The debug routes, at the original's paths, with what CPython can report, as text and not in Go's formats.

They show the inside of the process to every client of the port, so they exist only with --debug-routes. No route
changes what the daemon does; freeing memory and taking a profile cost it time.

See docs/contributing/design/nsq-http.md#debug-routes.
"""

import asyncio
import contextlib
import gc
import re
import sys
import tracemalloc

from starlette.requests import Request
from starlette.responses import Response

from shared.http.argument import Argument, any_text
from shared.http.bridge import Bridge
from shared.http.route import ADMIN, Route
from shared.process.stacks import Sampler, tasks_text, threads_text
from shared.secrets import hide

SECONDS, MOST_SECONDS = 30, 60  # s of a profile: the default (as in Go), and the maximum
MOST_LINES = 50  # lines of tracemalloc's list

_ABSENT = {
    "block": "waiting for locks",
    "symbol": "addresses of functions",
    "threadcreate": "where threads were started",
}
_INDEX = """/debug/pprof/

cmdline    the command line
goroutine  what every thread and every trio task is doing
heap       what is allocated
profile    ?seconds=30: where the time goes, sampled, as folded stacks
"""


class Debug:
    """The handlers of the debug routes."""

    def __init__(self, bridge: Bridge) -> None:
        self._bridge = bridge
        self._profiling = False  # True while a profile is taken: one at a time

    def routes(self) -> list[Route]:
        return [
            Route("GET /debug/pprof/", self.index, ADMIN, (), "List the debug routes"),
            Route("GET /debug/pprof/cmdline", self.cmdline, ADMIN, (), "Return the command line"),
            Route("GET /debug/pprof/goroutine", self.goroutine, ADMIN, (), "Return what every thread and every task is doing"),
            Route("GET /debug/pprof/heap", self.heap, ADMIN, (), "Return what is allocated"),
            Route("GET /debug/pprof/profile", self.profile, ADMIN, (Argument("seconds", _seconds, SECONDS),),
                  "Sample where the time goes"),
            Route("GET /debug/pprof/block", self.absent, ADMIN, (), "Not available in CPython"),
            Route("GET /debug/pprof/threadcreate", self.absent, ADMIN, (), "Not available in CPython"),
            Route("GET /debug/pprof/symbol", self.absent, ADMIN, (), "Not available in CPython"),
            Route("POST /debug/pprof/symbol", self.absent, ADMIN, (), "Not available in CPython"),
            Route("PUT /debug/setblockrate", self.set_block_rate, ADMIN, (any_text("rate", ""),), "Has no effect"),
            Route("POST /debug/freememory", self.free_memory, ADMIN, (), "Collect garbage"),
        ]  # fmt: skip

    async def index(self, request: Request) -> Response:
        """List the debug routes that are available."""
        return _text(200, _INDEX)

    async def cmdline(self, request: Request) -> Response:
        """Return the words of the command line, separated by NUL, without the secrets that /config also hides."""
        return _text(200, "\0".join(map(hide, sys.orig_argv)))

    async def goroutine(self, request: Request) -> Response:
        """Return the stacks of all threads and trio tasks."""
        tasks = await self._bridge.observe(tasks_text)
        return _text(200, f"{threads_text()}\n{tasks}")

    async def heap(self, request: Request) -> Response:
        """Return statistics of Python's allocator and collector, and allocations by line under PYTHONTRACEMALLOC."""
        lines = [f"allocated blocks: {sys.getallocatedblocks()}", f"objects waiting for collection: {gc.get_count()}"]
        lines += [f"generation {number}: {stats}" for number, stats in enumerate(gc.get_stats())]
        lines += [f"objects never collected: {gc.get_freeze_count()}", ""]
        if tracemalloc.is_tracing():
            lines += map(str, tracemalloc.take_snapshot().statistics("lineno")[:MOST_LINES])
        else:
            lines.append("allocations by line: start the daemon with PYTHONTRACEMALLOC=1 in its environment")
        return _text(200, "\n".join(lines) + "\n")

    async def profile(self, request: Request, seconds: int) -> Response:
        """Sample for `seconds` and return folded stacks. Answers 503 while another profile is taken."""
        if self._profiling:
            return _text(503, "a profile is being taken\n")
        self._profiling = True
        sampler = Sampler()
        sampler.start()
        try:
            await _wait(request, seconds)
        finally:
            sampler.stop()
            self._profiling = False
        return _text(200, sampler.folded())

    async def absent(self, request: Request) -> Response:
        """Answer 501 for statistics that CPython does not record."""
        name = request.url.path.rpartition("/")[2]
        return _text(501, f"{name}: CPython does not record {_ABSENT[name]}\n")

    async def set_block_rate(self, request: Request, rate: str) -> Response:
        """Answer 400 for an invalid number, as in the original; else 501, because CPython has no such setting."""
        if not re.fullmatch(r"[+-]?[0-9]{1,18}", rate):
            return _text(400, f"invalid block rate : {rate!a}\n")
        return _text(501, f"setblockrate: CPython does not record {_ABSENT['block']}\n")

    async def free_memory(self, request: Request) -> Response:
        """Collect all cyclic garbage, also the oldest: with a million messages all threads stop for half a second."""
        return _text(200, f"OK, {gc.collect()} objects were unreachable\n")


async def _wait(request: Request, seconds: float) -> None:
    """Wait for `seconds`, or until the client disconnects, or until the daemon stops."""
    with contextlib.suppress(TimeoutError, asyncio.CancelledError):  # a server that stops cancels all requests
        async with asyncio.timeout(seconds):
            while (await request.receive())["type"] != "http.disconnect":
                pass  # an empty body


def _seconds(text: str) -> int:
    """Return the seconds of a profile. As in Go, anything but a positive number means the default."""
    seconds = int(text) if re.fullmatch(r"[0-9]{1,9}", text) else 0
    return min(seconds or SECONDS, MOST_SECONDS)


def _text(status: int, text: str) -> Response:
    return Response(text.encode(errors="backslashreplace"), status, media_type="text/plain; charset=utf-8")

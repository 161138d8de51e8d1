"""The trio program as other threads see it."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable

import trio


class TrioThread:
    """A place to run functions in, and to bring bugs to."""

    def __init__(self) -> None:
        self._token = trio.lowlevel.current_trio_token()
        self._bugs, self._reported = trio.open_memory_channel[BaseException](math.inf)

    def run_soon(self, function: Callable[[], None]) -> None:
        """Run it in the trio thread. Whatever it raises is a bug."""

        def run() -> None:
            try:
                function()
            except Exception as bug:  # not swallowed: raise_bugs lets it rise where the daemon notices
                self._bugs.send_nowait(bug)

        with contextlib.suppress(trio.RunFinishedError):  # the daemon has stopped: nobody waits for this any more
            self._token.run_sync_soon(run)

    def report(self, bug: BaseException) -> None:
        """Stop the daemon for this exception. Any thread may call it."""
        with contextlib.suppress(trio.RunFinishedError):
            self._token.run_sync_soon(self._bugs.send_nowait, bug)

    async def raise_bugs(self) -> None:
        """Wait for the first bug and let it rise."""
        raise await self._reported.receive()

"""Access to the trio thread for other threads."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable

import trio


class TrioThread:
    """Runs functions in the trio thread, and carries bugs of other threads to it."""

    def __init__(self) -> None:
        self._token = trio.lowlevel.current_trio_token()
        self._bugs, self._reported = trio.open_memory_channel[BaseException](math.inf)

    def run_soon(self, function: Callable[[], None]) -> None:
        """Run `function` in the trio thread. Any exception that it raises is a bug."""

        def run() -> None:
            try:
                function()
            except Exception as bug:  # not lost: raise_bugs raises it where the daemon notices
                self._bugs.send_nowait(bug)

        with contextlib.suppress(trio.RunFinishedError):  # the daemon has stopped, so nothing waits for this
            self._token.run_sync_soon(run)

    def report(self, bug: BaseException) -> None:
        """Stop the daemon because of this exception. Any thread may call it."""
        with contextlib.suppress(trio.RunFinishedError):
            self._token.run_sync_soon(self._bugs.send_nowait, bug)

    async def raise_bugs(self) -> None:
        """Wait for the first bug and raise it."""
        raise await self._reported.receive()

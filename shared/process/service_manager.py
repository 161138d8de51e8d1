"""Reports to the service manager that started this process, such as systemd: it serves, reloads, stops, is alive.

The protocol is that of sd_notify(3): datagrams to the unix socket in NOTIFY_SOCKET. Without that variable nothing is sent.
With WATCHDOG_USEC the process is restarted if no sign of life comes from its event loop within that time.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import AsyncIterator, Callable, Mapping
from functools import partial

from shared.log import log
from shared.process.daemon import wait_for_stop

PATIENCE = 3600  # s for which no sign of life is needed between two times of serving: a log may be read meanwhile


class ServiceManager:
    """The service manager of this process, if there is one."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        """Read NOTIFY_SOCKET, WATCHDOG_USEC and WATCHDOG_PID from `environ`. A malformed value counts as absent."""
        self._address = environ.get("NOTIFY_SOCKET", "")
        interval = environ.get("WATCHDOG_USEC", "")
        is_for_us = environ.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
        self._watchdog = int(interval) if is_for_us and interval.isascii() and interval.isdigit() else 0  # us; 0: none

    async def serve(self, signals: AsyncIterator[int], reload: Callable[[], object]) -> None:
        """Report that the daemon serves, wait as `wait_for_stop` does, and report each reload and the stop.

        If it is cancelled, the daemon stops serving for a while, and is given PATIENCE until it serves again.
        """
        if not self._address:
            await wait_for_stop(signals, reload)
            return
        import anyio

        self._expect_life_within(self._watchdog)
        self._send("READY=1")
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._show_life)
                await wait_for_stop(signals, partial(self._reload, reload))
                tasks.cancel_scope.cancel()
            self._send("STOPPING=1")
        finally:
            self._expect_life_within(PATIENCE * 1_000_000)

    def _expect_life_within(self, interval: int) -> None:
        """Have the service manager wait `interval` us for each sign of life, if it has a watchdog."""
        if self._watchdog:
            self._send(f"WATCHDOG_USEC={interval}")

    def _reload(self, reload: Callable[[], object]) -> None:
        self._send("RELOADING=1", f"MONOTONIC_USEC={time.monotonic_ns() // 1000}")
        reload()
        self._send("READY=1")

    async def _show_life(self) -> None:
        """Send a sign of life twice in each interval of the watchdog, until cancelled."""
        import anyio

        while self._watchdog:
            self._send("WATCHDOG=1")
            await anyio.sleep(self._watchdog / 2e6)

    def _send(self, *assignments: str) -> None:
        address = f"\0{self._address[1:]}" if self._address.startswith("@") else self._address
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as manager:
                manager.setblocking(False)
                manager.sendto("\n".join(assignments).encode(), address)
        except OSError as error:
            log.warning("the service manager at %s cannot be reached: %s", self._address, error.strerror or error)

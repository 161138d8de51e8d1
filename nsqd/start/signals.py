"""What signals do to a node: SIGINT and SIGTERM end it, SIGHUP has it read files again."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING

import trio

from nsqd.options import PROGRAM, NsqdOptions
from nsqd.start.audit import note_signal
from nsqd.start.listeners import Listeners
from shared.process.service_manager import ServiceManager
from shared.startup import reload_with_certificates

if TYPE_CHECKING:
    from shared.audit.trail import Trail


async def until_over(signals: AsyncIterator[int], reload: Callable[[], None], *events: trio.Event) -> None:
    """Wait for SIGINT or SIGTERM among `signals`, or for one of the events. Calls `reload` on each SIGHUP."""
    async with trio.open_nursery() as nursery:

        async def until_set(event: trio.Event) -> None:
            await event.wait()
            nursery.cancel_scope.cancel()

        for event in events:
            nursery.start_soon(until_set, event)
        await ServiceManager(os.environ).serve(signals, reload)
        nursery.cancel_scope.cancel()


def reload_files(options: NsqdOptions, listeners: Listeners, trail: Trail | None) -> None:
    """Handle SIGHUP: reload the log level, and the TLS files for future connections."""
    is_valid = reload_with_certificates(
        options,
        PROGRAM,
        (listeners.certificates, ""),
        (listeners.cluster_tls, " of the cluster"),
        (listeners.lookupd_tls, " for nsqlookupd"),
        dates=listeners.dates,
    )
    note_signal(trail, "process/SIGHUP", is_valid)  # the first record of a file that replaces a rotated one

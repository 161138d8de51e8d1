"""What every daemon does about its process: addresses it announces, file descriptors, signals.

No daemon's own state is known here, and no event loop: a daemon listens before it has imported one.
"""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import sys
from collections.abc import AsyncIterator, Callable, Sequence

from shared.listen import Listener, listen, parse_address
from shared.log import log

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def listening(address: str, authorizes: bool = False) -> contextlib.closing[Listener]:
    """Listen, loudly if others than this machine can come and nobody is asked who he is. Raises ListenError."""
    listener = listen(address)
    if not listener.is_loopback and not authorizes:
        log.warning("%s IS OPEN TO OTHER MACHINES, and nobody is asked who he is", listener.address)
    return contextlib.closing(listener)


def listening_if_given(address: str) -> contextlib.AbstractContextManager[Listener | None]:
    """As `listening`; no listener for an empty address."""
    return listening(address) if address else contextlib.nullcontext()


def broadcast_address(given: str, listeners: Sequence[Listener | None], hostname: str) -> str:
    """The address others shall dial: the one given; else our loopback address, if only this machine can; else our name.

    A hostname that does not resolve would make a daemon on this machine unreachable for its neighbours.
    """
    present = [listener for listener in listeners if listener is not None]
    if given:
        return given
    if not all(listener.is_loopback for listener in present):
        return hostname
    return next((host for listener in present if (host := parse_address(listener.address).host)), "127.0.0.1")


class TooFewFilesError(Exception):
    """The program may open fewer files than it needs; one line says how many. The program exits 1."""


def raise_file_limit(needed: int) -> None:
    """As many file descriptors as we are allowed, as Go's runtime does: the usual soft limit is 1024.

    Raises TooFewFilesError unless `needed` can be opened besides those that are open.
    """
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):  # macOS refuses "unlimited": then the soft limit stays
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit == resource.RLIM_INFINITY:
        return
    open_now = sum(number < limit for number in map(int, os.listdir("/dev/fd"))) - 1  # less the one that lists them
    if open_now + needed > limit:
        raise TooFewFilesError(
            f"ulimit -n is {limit}, and at least {open_now + needed} file descriptors are needed to start, then one for each"
            " connection: raise it (systemd: LimitNOFILE=)"
        )


def exit_on_early_signals() -> None:
    """SIGINT and SIGTERM end the program with exit code 0 and no traceback until the event loop receives signals itself."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: sys.exit(0))


async def until_told_to_stop(signals: AsyncIterator[int], reload: Callable[[], object]) -> None:
    """Wait for SIGINT or SIGTERM among SIGNALS. `reload` is called on each SIGHUP."""
    async for number in signals:
        if number != signal.SIGHUP:
            log.info("%s: stopping", signal.Signals(number).name)
            return
        reload()

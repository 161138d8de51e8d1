"""The process of a daemon: the addresses at which it listens, file descriptors, signals, and how its Python was built.

This module knows no daemon's state and no event loop: a daemon listens before it has imported one.
"""

from __future__ import annotations

import contextlib
import os
import resource
import signal
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from typing import Any

from shared.log import log
from shared.process.listen import Listener, listen, parse_address

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def listening(
    address: str, authorizes: bool = False, bind: Callable[[str], Listener] = listen
) -> contextlib.closing[Listener]:
    """Listen, and warn if other machines can connect and no authorization is asked for. Raises ListenError.

    `bind`: `listen`, or `bind_shared`, whose socket does not listen yet.
    """
    listener = bind(address)
    if not (authorizes or listener.is_loopback):
        log.warning("%s accepts connections from other machines without authentication", listener.address)
    return contextlib.closing(listener)


@contextlib.contextmanager
def listening_at_all(addresses: Sequence[str], authorizes: bool) -> Iterator[tuple[Listener, ...]]:
    """Listen at each address as `listening` does. Raises ListenError."""
    with contextlib.ExitStack() as stack:
        yield tuple(stack.enter_context(listening(address, authorizes)) for address in addresses)


def listening_if_given(
    address: str, authorizes: bool = False, bind: Callable[[str], Listener] = listen
) -> contextlib.AbstractContextManager[Listener | None]:
    """Listen as `listening` does, or return a context of None for an empty address."""
    return listening(address, authorizes, bind) if address else contextlib.nullcontext()


def broadcast_address(given: str, listeners: Sequence[Listener | None], hostname: str) -> str:
    """Return the address that others should dial.

    This is the given one; else our loopback address, if only this machine can connect; else our hostname. A hostname
    that does not resolve would make a daemon on this machine unreachable for its neighbors.
    """
    present = [listener for listener in listeners if listener is not None]
    if given:
        return given
    if not all(listener.is_loopback for listener in present):
        return hostname
    return next((host for listener in present if (host := parse_address(listener.address).host)), "127.0.0.1")


class StartError(Exception):
    """The daemon cannot start. The text says why, in one line, and the program exits with 1."""


class TooFewFilesError(StartError):
    """The process may open fewer files than it needs. The text says how many."""


def raise_file_limit(needed: int) -> None:
    """Raise the limit of file descriptors as far as allowed, as Go's runtime does: the usual soft limit is 1024.

    Raises TooFewFilesError unless `needed` further files can be opened.
    """
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):  # macOS refuses "unlimited"; the soft limit then stays
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit == resource.RLIM_INFINITY:
        return
    # Minus the descriptor that lists them.
    open_now = sum(number < limit for number in map(int, os.listdir("/dev/fd"))) - 1
    if open_now + needed > limit:
        raise TooFewFilesError(
            f"ulimit -n is {limit}, and at least {open_now + needed} file descriptors are needed to start, then one for each"
            " connection: raise it (systemd: LimitNOFILE=)"
        )


async def wait_for_stop(signals: AsyncIterator[int], reload: Callable[[], object]) -> None:
    """Wait for SIGINT or SIGTERM among `signals`. Calls `reload` on each SIGHUP."""
    async for number in signals:
        if number != signal.SIGHUP:
            log.info("%s: stopping", signal.Signals(number).name)
            return
        reload()


def lacks_pgo(variables: Mapping[str, Any]) -> bool:
    """Return True if the interpreter was certainly built without profile-guided optimization (PGO).

    `variables` are sysconfig's. `configure --enable-optimizations` is the usual way to PGO. Debian records neither that nor its
    own way, but empties PGO_PROF_USE_FLAG, which otherwise has the compiler's flags whether they were used or not.
    """
    arguments, flags = variables.get("CONFIG_ARGS") or "", variables.get("PGO_PROF_USE_FLAG")
    return bool(arguments and flags) and "--enable-optimizations" not in arguments


def note_slow_interpreter() -> None:
    """Log a line if the interpreter could be faster. Call this when the daemon serves: it takes milliseconds."""
    import sysconfig

    if lacks_pgo(sysconfig.get_config_vars()):
        log.info(
            "PYTHON: this interpreter was built without profile-guided optimization; one that was may take less CPU for each"
            " message (deploy/README.md#which-python)"
        )

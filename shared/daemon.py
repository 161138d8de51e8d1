"""What every daemon does about its process: addresses it announces, file descriptors, bugs of other threads, and exits.

No daemon's own state is known here.
"""

from __future__ import annotations

import contextlib
import math
import os
import resource
import signal
import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import TypeVar

import trio

from shared.configuration import parse, read
from shared.daemon_options import DaemonOptions
from shared.flags import HelpRequested
from shared.listen import Listener, listen, parse_address
from shared.log import LEVELS, configure, escape, level_name, log
from shared.options import OptionError
from shared.print_config import as_toml

Options = TypeVar("Options", bound=DaemonOptions)
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Exit(Exception):
    """The program ends before it began: `code` is its exit code, and all was said."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


def read_options(
    cls: type[Options],
    program: str,
    argv: Sequence[str],
    environ: Mapping[str, str],
    check: Callable[[Options], str] = lambda options: "",
) -> Options:
    """The options; or Exit, after all was said, if a flag asked for that only or something is wrong.

    `check` finds what is wrong beyond the options, such as files that cannot be loaded, for --check-config. What is odd is in
    `options.warnings`, for the log.
    """
    try:
        reading = read(cls, program, argv, environ)
    except HelpRequested as usage:
        sys.stderr.write(str(usage))
        raise Exit(0) from None
    if reading.options.check_config:
        raise Exit(_check_config(program, reading.options, reading.errors, check))
    if reading.errors:
        raise Exit(_refuse(program, reading.errors[0]))
    if reading.options.print_config:
        sys.stdout.write(as_toml(reading, program))
        raise Exit(0)
    return reading.options


def start_log(options: DaemonOptions) -> None:
    """The log as the options want it; its first lines are what was odd about them."""
    configure(options.log_prefix, options.log_level, options.log_format)
    for line in options.warnings:
        log.warning("%s", line)


def reread(
    current: Options,
    program: str,
    argv: Sequence[str],
    environ: Mapping[str, str],
    check: Callable[[Options], str] = lambda options: "",
) -> Options:
    """The options as the same words give them now that the config file may have changed. Raises OptionError."""
    if current.config and not os.path.isfile(current.config):  # a pipe would keep us waiting for ever
        raise OptionError(f"failed to load config file {current.config} - no such regular file", code=1)
    options = parse(type(current), program, argv, environ)
    if wrong := check(options):
        raise OptionError(wrong, code=1)
    return options


def _check_config(
    program: str, options: Options, errors: Sequence[OptionError], check: Callable[[Options], str]
) -> int:
    """Say all that is wrong, and what is odd; return the exit code."""
    wrong = [str(error) for error in errors] or list(filter(None, [check(options)]))
    for line in [*wrong, *(f"warning: {odd}" for odd in options.warnings)]:
        print(f"{program}: {escape(line)}", file=sys.stderr)
    if wrong:
        return 2
    print("configuration is valid")
    return 0


def _refuse(program: str, error: OptionError) -> int:
    """Say what is wrong, as NSQ does it: a fatal log line with exit code 1, a plain one with 2."""
    if error.code == 1:
        configure(f"[{program}] ", "info")
        log.critical("%s", error)
    else:
        print(f"{program}: {escape(str(error))}", file=sys.stderr)
    return error.code


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


def raise_file_limit() -> None:
    """As many file descriptors as we are allowed, as Go's runtime does: the usual soft limit is 1024."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):  # macOS refuses "unlimited": then the soft limit stays
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


async def until_told_to_stop(signals: AsyncIterator[int], reload: Callable[[], object]) -> None:
    """Wait for SIGINT or SIGTERM among SIGNALS. `reload` is called on each SIGHUP."""
    async for number in signals:
        if number != signal.SIGHUP:
            log.info("%s: stopping", signal.Signals(number).name)
            return
        reload()


def reload_log_level(options: Options, program: str) -> Options | None:
    """SIGHUP: read all options again and take over the log level. None, and it is logged, if something is wrong with them."""
    try:
        reread_options = reread(options, program, sys.argv[1:], os.environ)
    except OptionError as error:
        log.error("SIGHUP: everything stays as it is: %s", error)
        return None
    log.setLevel(LEVELS[reread_options.log_level])
    log.info("SIGHUP: log level %s", level_name())
    return reread_options


class TrioThread:
    """The trio program as other threads see it: a place to run functions in, and to bring bugs to."""

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

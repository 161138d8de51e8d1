"""The start of a daemon: it reads its options, once at the start and again on SIGHUP, listens, and serves.

Exit codes: 0 after a signal, -help, -version, -check-config and -print-config; 2 for wrong flags; 1 where NSQ logs FATAL.
"""

from __future__ import annotations

import contextlib
import gc
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeVar

from shared.configuration import parse, read
from shared.daemon_options import DaemonOptions
from shared.flags import HelpRequested
from shared.log import LEVELS, configure, escape, level_name, log
from shared.options import InstantiationError, OptionError, specs
from shared.tls.info import TlsError
from shared.version import version_line

if TYPE_CHECKING:
    from shared.tls.dates import CertificateDates

Options = TypeVar("Options", bound=DaemonOptions)


@dataclass(eq=False)
class Exit(Exception):
    """The program ends before it starts to serve. The reason is in the log already."""

    code: int  # exit code


def read_options(
    cls: type[Options],
    program: str,
    argv: Sequence[str],
    environ: Mapping[str, str],
    check: Callable[[Options], str] = lambda options: "",
) -> Options:
    """Return the options. Raises Exit for errors, which are logged, and for flags such as --print-config.

    `check` finds errors beyond the options, such as files that cannot be loaded, for --check-config. Oddities are in
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
        from shared.print_config import as_toml

        sys.stdout.write(as_toml(reading, program))
        raise Exit(0)
    return reading.options


def run_daemon(
    cls: type[Options],
    program: str,
    check: Callable[[Options], str],
    files_needed: Callable[[Options], int],
    serve: Callable[[Options], None],
) -> int:
    """Read the options, start the log, and call `serve`, which raises StartError. Return the exit code of the process.

    `check` as in `read_options`. `files_needed`: file descriptors that are opened before the first client comes. Most modules
    of a daemon are imported only by `serve`: -version, -help and wrong options do not need them.
    """
    try:
        options = read_options(cls, program, sys.argv[1:], os.environ, check)
    except Exit as ended:
        return ended.code
    if options.version:
        print(version_line(program))
        return 0
    from shared.process.daemon import StartError, raise_file_limit
    from shared.process.listen import ListenError

    start_log(options)
    log.info(version_line(program))
    try:
        raise_file_limit(files_needed(options))
        serve(options)
    except (TlsError, ListenError) as error:
        log.critical("failed to instantiate %s - %s", program, error)
        return 1
    except StartError as error:
        log.critical("%s", error)
        return 1
    return 0


@contextlib.contextmanager
def importing() -> Iterator[None]:
    """Collect no garbage while the block imports a daemon: no imported object is garbage, and it saves a tenth of the time."""
    gc.disable()
    yield
    gc.enable()


def start_log(options: DaemonOptions) -> None:
    """Configure the log as the options say. Its first lines are the oddities of the options."""
    configure(options.log_prefix, options.log_level, options.log_format)
    for line in options.warnings:
        log.warning("%s", line)


def reread(current: Options, program: str, argv: Sequence[str], environ: Mapping[str, str]) -> Options:
    """Read the options again from the same flags and environment: the config file may have changed. Raises OptionError."""
    if current.config and not os.path.isfile(current.config):  # opening a pipe would block forever
        raise OptionError(f"failed to load config file {current.config} - no such regular file", code=1)
    return parse(type(current), program, argv, environ)


def _check_config(
    program: str, options: Options, errors: Sequence[OptionError], check: Callable[[Options], str]
) -> int:
    """Print all errors and oddities, and return the exit code."""
    from shared.tls.dates import CertificateDates

    dates = CertificateDates(options)
    wrong = [str(error) for error in errors] or [*options.obstacles(), *filter(None, [check(options)]), *dates.errors()]
    for line in [*wrong, *(f"warning: {odd}" for odd in (*options.warnings, *dates.warnings()))]:
        print(f"{program}: {escape(line)}", file=sys.stderr)
    if wrong:
        return 2
    print("configuration is valid")
    return 0


def _refuse(program: str, error: OptionError) -> int:
    """Report an error as NSQ does, by a fatal log line (code 1) or a plain line (code 2), and return the exit code."""
    if error.code == 1:
        configure(f"[{program}] ", "info")
        context = f"failed to instantiate {program} - " if isinstance(error, InstantiationError) else ""
        log.critical("%s%s", context, error)
    else:
        print(f"{program}: {escape(str(error))}", file=sys.stderr)
    return error.code


def reload_log_level(options: Options, program: str) -> Options | None:
    """Read all options again, apply the log level, and log which others need a restart. None, and a line, if they are wrong."""
    try:
        reread_options = reread(options, program, sys.argv[1:], os.environ)
    except OptionError as error:
        log.error("SIGHUP: cannot reload the configuration, nothing was changed: %s", error)
        return None
    for line in reread_options.warnings:
        if line not in options.warnings:
            log.warning("SIGHUP: %s", line)
    log.setLevel(LEVELS[reread_options.log_level])
    log.info("SIGHUP: log level %s", level_name())
    if changed := need_restart(options, reread_options, program):
        log.warning("SIGHUP: restart to apply the changes of: %s", ", ".join(changed))
    return reread_options


class Reloadable(Protocol):
    """What holds certificates that files can replace."""

    def reload(self) -> None:
        """Read the files again, for later connections. Raises TlsError, and then keeps the old ones."""


def reload_with_certificates(
    options: DaemonOptions, program: str, *loaded: tuple[Reloadable | None, str], dates: CertificateDates | None
) -> bool:
    """Handle SIGHUP: reload the log level, and the certificates, each with a text for the log such as " of the cluster".

    Returns False, and reloads nothing, if the options are wrong.
    """
    are_loaded = True
    if reload_log_level(options, program) is None:
        return False
    for certificates, whose in loaded:
        if certificates is None:
            continue
        try:
            certificates.reload()
        except TlsError as error:
            log.error("SIGHUP: cannot reload the certificates%s, the current ones stay in use: %s", whose, error)
            are_loaded = False
        else:
            log.info("SIGHUP: reloaded the certificates%s", whose)
    if are_loaded and dates is not None:
        dates.reload()
    return True


def need_restart(before: Options, after: Options, program: str) -> list[str]:
    """Return the keys of the options that differ, except for the log level, which a running daemon can change."""
    fixed = [spec for spec in specs(type(before), program) if spec.in_file and spec.name != "log_level"]
    return [spec.key for spec in fixed if getattr(before, spec.name) != getattr(after, spec.name)]

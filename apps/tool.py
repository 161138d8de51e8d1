"""The part that all of NSQ's tools share: their start and its exit codes, and the checks of topics and addresses.

The texts are the original's. A missing address also gets a hint, because it is the first thing that a new user forgets.
"""

import os
import sys
from collections.abc import Callable, Sequence
from typing import TypeVar

from penstock.protocol import is_valid_name
from penstock.sansio.errors import ClientError
from shared import log
from shared.configuration import parse
from shared.flags import HelpRequested
from shared.options import OptionError
from shared.process.daemon import TooFewFilesError
from shared.version import version_line

T = TypeVar("T")


def run_program(program: str, options_class: type[T], run: Callable[[T], int | None]) -> int:
    """Read the options, configure the log, call `run`, and return its exit code; 2 for wrong flags, and 1 for errors."""
    try:
        options = parse(options_class, program, sys.argv[1:], os.environ)
    except HelpRequested as usage:
        sys.stderr.write(str(usage))
        return 0
    except OptionError as error:
        print(f"{program}: {error}", file=sys.stderr)
        return 2
    if getattr(options, "version", False):
        print(version_line(program))
        return 0
    log.configure(f"[{program}] ", "info")
    try:
        return run(options) or 0
    except (ValueError, ClientError, OSError, TooFewFilesError) as error:
        print(f"{program}: {error}", file=sys.stderr)
        return 1


def check_source(
    program: str, topics: Sequence[str], channel: str, nsqd_addresses: Sequence[str], lookupd_addresses: Sequence[str]
) -> None:
    """Check the flags with the source of messages. Raises ValueError with the original's text."""
    if not topics or not all(topics) or not channel:
        raise ValueError("--topic and --channel are required")
    for topic in topics:
        if not is_valid_name(topic):
            raise ValueError(f"--topic is invalid: {topic!r}")
    if not is_valid_name(channel):
        raise ValueError(f"--channel is invalid: {channel!r}")
    check_tcp_source(program, nsqd_addresses, lookupd_addresses)


def check_given(program: str, flag: str, addresses: Sequence[str]) -> None:
    """Raise ValueError if the flag, named without dashes, has no address."""
    if not addresses:
        raise ValueError(f"--{flag} required ({program} -help lists the flags)")


def check_one_kind(program: str, nsqd: str, nsqds: Sequence[str], lookupd: str, lookupds: Sequence[str]) -> None:
    """Raise ValueError unless exactly one of two flags has addresses. `nsqd` and `lookupd` are the flags, without dashes."""
    check_given(program, f"{nsqd} or --{lookupd}", (*nsqds, *lookupds))
    if nsqds and lookupds:
        raise ValueError(f"use --{nsqd} or --{lookupd} not both")


def check_tcp_source(program: str, nsqds: Sequence[str], lookupds: Sequence[str]) -> None:
    """Check -nsqd-tcp-address and -lookupd-http-address of a program that consumes. Raises ValueError."""
    check_one_kind(program, "nsqd-tcp-address", nsqds, "lookupd-http-address", lookupds)
    check_no_scheme("nsqd-tcp-address", nsqds)


def check_no_scheme(flag: str, addresses: Sequence[str]) -> None:
    """Raise ValueError for an address such as tcp://host:4150, which would be used as the path of a unix socket."""
    if any("://" in address for address in addresses):
        raise ValueError(f"--{flag} error - address should not contain scheme")

"""The checks of the address flags, shared by all tools: what is missing, what contradicts itself, what has a scheme.

The texts are the original's. A missing address also gets a hint, because it is the first thing that a new user forgets.
"""

from collections.abc import Sequence

SCHEME = "address should not contain scheme"


def check_given(program: str, flag: str, addresses: Sequence[str]) -> None:
    """Raise ValueError if the flag, named without dashes, has no address."""
    if not addresses:
        raise ValueError(f"--{flag} required ({_hint(program)})")


def check_one_kind(program: str, nsqd: str, nsqds: Sequence[str], lookupd: str, lookupds: Sequence[str]) -> None:
    """Raise ValueError unless exactly one of two flags has addresses. `nsqd` and `lookupd` are the flags, without dashes."""
    if not nsqds and not lookupds:
        raise ValueError(f"--{nsqd} or --{lookupd} required ({_hint(program)})")
    if nsqds and lookupds:
        raise ValueError(f"use --{nsqd} or --{lookupd} not both")


def check_tcp_source(program: str, nsqds: Sequence[str], lookupds: Sequence[str]) -> None:
    """Check -nsqd-tcp-address and -lookupd-http-address of a program that consumes. Raises ValueError."""
    check_one_kind(program, "nsqd-tcp-address", nsqds, "lookupd-http-address", lookupds)
    check_no_scheme("nsqd-tcp-address", nsqds)


def check_no_scheme(flag: str, addresses: Sequence[str]) -> None:
    """Raise ValueError for an address such as tcp://host:4150, which would be taken for the path of a unix socket."""
    if any("://" in address for address in addresses):
        raise ValueError(f"--{flag} error - {SCHEME}")


def _hint(program: str) -> str:
    return f"{program} -help lists the flags"

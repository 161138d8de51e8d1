"""The options of nsqlookupd: NSQ's names and defaults (specs/nsq.md e2); only the addresses default to loopback."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from shared.log import is_level
from shared.options import SECOND, Duration, option


def _not_negative(value: int) -> str:
    return "want 0 or more" if value < 0 else ""


@dataclass(frozen=True, slots=True)
class LookupdOptions:
    """Each field is the flag, the environment name and the help."""

    NOT_YET: ClassVar[tuple[str, ...]] = ("config",)

    version: bool = option(False, "print version string")
    log_level: str = option("info", "set log verbosity: debug, info, warn, error, or fatal", check=is_level)
    log_prefix: str = option("[nsqlookupd] ", "log message prefix")
    verbose: bool = option(False, "[deprecated] has no effect, use --log-level")

    tcp_address: str = option("127.0.0.1:4160", "<addr>:<port> or unix socket path to listen on for nsqd")
    http_address: str = option("127.0.0.1:4161", '<addr>:<port> or unix socket path to listen on for HTTP ("": none)')
    broadcast_address: str = option(
        "", "address of this lookupd node as nsqd should dial it (default: the loopback address, or the OS hostname)"
    )
    allowed_host: tuple[str, ...] = option(
        (), "DNS name, or .suffix, that HTTP requests may address this daemon by (may be given multiple times)"
    )

    inactive_producer_timeout: Duration = option(
        Duration(300 * SECOND),
        "duration of time a producer will remain in the active list since its last ping",
        check=_not_negative,
    )
    tombstone_lifetime: Duration = option(
        Duration(45 * SECOND),
        "duration of time a producer will remain tombstoned if registration remains",
        check=_not_negative,
    )

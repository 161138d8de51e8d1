"""The options of nsqlookupd: NSQ's names and defaults, except that the addresses default to loopback."""

from __future__ import annotations

from dataclasses import dataclass

from lookupd.producers import Limits
from shared.checks import accidental_path, at_least, complaints, metrics_problems, min_duration, obstructed
from shared.options import option
from shared.tls.options import TlsOptions, https_problems
from shared.values import MILLISECOND, SECOND, Duration

PROGRAM = "nsqlookupd"


@dataclass(frozen=True, slots=True)
class LookupdOptions(TlsOptions):
    """The options of nsqlookupd; each field defines a flag, an environment variable and a line of the help."""

    log_prefix: str = option("[nsqlookupd] ", "log message prefix")

    tcp_address: str = option("127.0.0.1:4160", "<addr>:<port> or unix socket path to listen on for nsqd")
    http_address: str = option("127.0.0.1:4161", '<addr>:<port> or unix socket path to listen on for HTTP ("": none)')
    broadcast_address: str = option(
        "", "address of this lookupd node as nsqd should dial it (default: the loopback address, or the OS hostname)"
    )
    allowed_host: tuple[str, ...] = option(
        (), "DNS name, or .suffix, that the Host header of an HTTP request may have (may be given multiple times)"
    )

    auth_file: str = option("", "path to a file that says who may do what, on every port (penstock auth)")

    metrics_auth: bool = option(False, "answer /metrics only to those who may see stats, by auth-file")

    inactive_producer_timeout: Duration = option(
        Duration(300 * SECOND),
        "duration of time a producer will remain in the active list since its last ping",
        check=at_least(0),
    )
    tombstone_lifetime: Duration = option(
        Duration(45 * SECOND),
        "duration of time a producer will remain tombstoned if registration remains",
        check=at_least(0),
    )

    max_connections: int = option(4_000, "maximum number of connected nsqd", check=at_least(1))
    max_connections_per_ip: int = option(
        256, "maximum number of connected nsqd of one IP address (0: only max-connections applies)", check=at_least(0)
    )
    max_registrations: int = option(
        500_000,
        "maximum number of topics, channels and their producers (each takes 100 to 470 bytes of memory)",
        check=at_least(4),
    )
    max_registrations_per_producer: int = option(
        50_000, "maximum number of topics and channels of one nsqd", check=at_least(1)
    )
    identify_timeout: Duration = option(
        Duration(10 * SECOND), "maximum time from connecting to the end of IDENTIFY", check=min_duration(MILLISECOND)
    )
    idle_timeout: Duration = option(
        Duration(60 * SECOND),
        "maximum time without a command before the connection of an nsqd is closed; an nsqd pings every 15s (0: no limit)",
        check=at_least(0),
    )

    def limits(self) -> Limits:
        """Return the limits of the registry that these options set."""
        return Limits(
            self.max_registrations,
            self.max_registrations_per_producer,
            self.max_connections,
            self.max_connections_per_ip or self.max_connections,
        )

    def problems(self) -> list[str]:
        """Return the reasons not to start that no check of a single option can see."""
        return [*self.tls_problems(), *https_problems(self), *metrics_problems(self.metrics_auth, self.auth_file)]

    def obstacles(self) -> list[str]:
        """Return a line for each address that cannot be bound."""
        return [
            *complaints("tcp-address", [self.tcp_address], obstructed),
            *complaints("http-address", filter(None, [self.http_address]), obstructed),
            *self.tls_obstacles(),
        ]

    def oddities(self) -> list[str]:
        """Return a line for each address or policy that is probably a mistake."""
        return [
            *complaints("tcp-address", [self.tcp_address], accidental_path),
            *complaints("http-address", [self.http_address], accidental_path),
            *self.tls_oddities(),
        ]

"""The options of nsqd: NSQ's names and defaults (specs/nsq.md e2); only the addresses default to loopback.

An option is declared once: the field is the flag, the key of /config and of the TOML file, the environment name, the help.
"""

from __future__ import annotations

import hashlib
import socket
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from nsqd.core.broker import Limits
from nsqd.protocols.nsq.settings import Settings
from shared.log import is_level
from shared.options import MILLISECOND, SECOND, Duration, option
from shared.version import NSQ_VERSION


def _at_least(least: int) -> Callable[[int], str]:
    return lambda value: f"want {least} or more" if value < least else ""


def _duration(value: int, help: str) -> Duration:
    """A duration option: `value` in ns, never negative."""
    result: Duration = option(Duration(value), help, check=_at_least(0))
    return result


def _node_number(value: int) -> str:
    return "" if value == -1 or 0 <= value < 1024 else "want 0 to 1023"


@dataclass(frozen=True, slots=True)
class NsqdOptions:
    """See above."""

    NOT_YET: ClassVar[tuple[str, ...]] = (
        *("config", "max-bytes-per-file", "sync-every", "sync-timeout", "https-address"),
        *("auth-http-address", "auth-http-request-method", "statsd-address", "statsd-interval", "statsd-mem-stats"),
        *("statsd-prefix", "statsd-udp-packet-size", "statsd-exclude-ephemeral", "tls-cert", "tls-key"),
        *("e2e-processing-latency-percentile", "e2e-processing-latency-window-time", "tls-client-auth-policy"),
        *("tls-root-ca-file", "tls-required", "tls-min-version", "deflate", "max-deflate-level", "snappy"),
        *("topology-region", "topology-zone", "enable-experiment"),
    )

    version: bool = option(False, "print version string")
    verbose: bool = option(False, "[deprecated] has no effect, use --log-level")
    log_level: str = option("info", "set log verbosity: debug, info, warn, error, or fatal", check=is_level)
    log_prefix: str = option("[nsqd] ", "log message prefix")
    node_id: int = option(
        -1, "unique part of message ids, 0 to 1023 (default: derived from the hostname)", key="id", check=_node_number
    )
    worker_id: bool = option(False, "[deprecated] use --node-id")

    tcp_address: str = option("127.0.0.1:4150", "<addr>:<port> or unix socket path to listen on for TCP clients")
    http_address: str = option("127.0.0.1:4151", '<addr>:<port> or unix socket path for HTTP clients ("": none)')
    broadcast_address: str = option("", "address registered with lookupd (default: loopback address, or OS hostname)")
    broadcast_tcp_port: int = option(0, "TCP port registered with lookupd (default: the one listened on)")
    broadcast_http_port: int = option(0, "HTTP port registered with lookupd (default: the one listened on)")
    allowed_host: tuple[str, ...] = option(
        (), "DNS name, or .suffix, that HTTP requests may address this daemon by (may be repeated)"
    )
    lookupd_tcp_address: tuple[str, ...] = option(
        (), "lookupd TCP address (may be given multiple times)", key="nsqlookupd_tcp_addresses"
    )
    http_client_connect_timeout: Duration = _duration(2 * SECOND, "timeout for HTTP connect to nsqlookupd")
    http_client_request_timeout: Duration = _duration(5 * SECOND, "timeout for HTTP request to nsqlookupd")

    data_path: str = option("", "path to store metadata and messages (default: the working directory)")
    mem_queue_size: int = option(10_000, "number of messages to keep in memory (per topic/channel)", check=_at_least(0))
    queue_scan_worker_pool_max: int = option(
        4, "max number of workers for checking in-flight and deferred message timeouts", check=_at_least(1)
    )
    queue_scan_selection_count: int = option(20, "number of channels to check per pass", check=_at_least(1))

    msg_timeout: Duration = _duration(60 * SECOND, "default duration to wait before auto-requeing a message")
    max_msg_timeout: Duration = _duration(900 * SECOND, "maximum duration before a message will timeout")
    max_msg_size: int = option(1024 * 1024, "maximum size of a single message in bytes", check=_at_least(1))
    max_req_timeout: Duration = _duration(3600 * SECOND, "maximum requeuing timeout for a message")
    max_body_size: int = option(5 * 1024 * 1024, "maximum size of a single command body", check=_at_least(1))

    max_heartbeat_interval: Duration = _duration(60 * SECOND, "maximum client configurable time between heartbeats")
    max_rdy_count: int = option(2500, "maximum RDY count for a client", check=_at_least(0))
    max_output_buffer_size: int = option(
        64 * 1024, "maximum client configurable size (in bytes) for a client output buffer", check=_at_least(64)
    )
    max_output_buffer_timeout: Duration = _duration(
        30 * SECOND, "maximum client configurable duration of time between flushing to a client"
    )
    min_output_buffer_timeout: Duration = _duration(
        25 * MILLISECOND, "minimum client configurable duration of time between flushing to a client"
    )
    output_buffer_timeout: Duration = _duration(
        250 * MILLISECOND, "default duration of time between flushing data to clients"
    )
    max_channel_consumers: int = option(0, "maximum channel consumer connection count (0: unlimited)")

    def settings(self) -> Settings:
        """What the NSQ protocol is held to."""
        return Settings(
            version=NSQ_VERSION,
            max_rdy_count=self.max_rdy_count,
            max_msg_size=self.max_msg_size,
            max_body_size=self.max_body_size,
            msg_timeout=self.msg_timeout,
            max_msg_timeout=self.max_msg_timeout,
            max_req_timeout=self.max_req_timeout,
            max_heartbeat_interval=self.max_heartbeat_interval,
            max_output_buffer_size=self.max_output_buffer_size,
            max_output_buffer_timeout=self.max_output_buffer_timeout,
            min_output_buffer_timeout=self.min_output_buffer_timeout,
            output_buffer_timeout=self.output_buffer_timeout,
            max_channel_consumers=self.max_channel_consumers,
        )

    def limits(self) -> Limits:
        """What bounds the core."""
        return Limits(self.mem_queue_size, self.queue_scan_selection_count, self.queue_scan_worker_pool_max)

    def node_number(self) -> int:
        """The node's part of the message ids: as given, or NSQ's default from the hostname."""
        if self.node_id >= 0:
            return self.node_id
        digest = hashlib.md5(socket.gethostname().encode(), usedforsecurity=False).digest()
        return zlib.crc32(digest) % 1024

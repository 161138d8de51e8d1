"""The limits and defaults that a connection is held to. Built once from the options of nsqd; times are in ns."""

from dataclasses import dataclass

MILLISECOND = 1_000_000
SECOND = 1_000_000_000

CLIENT_TIMEOUT = 60 * SECOND  # without IDENTIFY: heartbeats at half of it, closed after all of it (not a flag in NSQ)
DEFAULT_OUTPUT_BUFFER = 16 * 1024  # bytes
MAX_LINE = 16 * 1024  # bytes of a command line, its newline included: the original's read buffer
MAX_PENDING_OUTPUT = 256 * 1024  # bytes: no message is taken for a consumer that has so many waiting
MAX_IDENTIFY = 64 * 1024  # bytes of its body: reading 5 MB of odd JSON takes most of a second
HANDSHAKE_TIMEOUT = 5 * SECOND  # for TLS, as in the original


@dataclass(frozen=True, slots=True)
class Settings:
    """See nsqd/options.py for the flags of the same names."""

    version: str = "1.3.0"  # the NSQ release whose protocol this is
    max_rdy_count: int = 2500
    max_msg_size: int = 1024 * 1024
    max_body_size: int = 5 * 1024 * 1024
    msg_timeout: int = 60 * SECOND
    max_msg_timeout: int = 15 * 60 * SECOND
    max_req_timeout: int = 3600 * SECOND
    max_heartbeat_interval: int = 60 * SECOND
    max_output_buffer_size: int = 64 * 1024
    max_output_buffer_timeout: int = 30 * SECOND
    min_output_buffer_timeout: int = 25 * MILLISECOND
    output_buffer_timeout: int = 250 * MILLISECOND
    max_channel_consumers: int = 0  # 0: no limit
    identify_timeout: int = 10 * SECOND  # from connecting to the end of the first command: silence is not kept (T12)
    tls: bool = False  # there is a certificate: clients may ask for TLS
    tls_required: bool = False  # nothing but IDENTIFY before TLS
    deflate: bool = True
    max_deflate_level: int = 6
    snappy: bool = True
    auth_required: bool = False  # AUTH before SUB, PUB, MPUB and DPUB
    topology_region: str = ""  # where this node is
    topology_zone: str = ""

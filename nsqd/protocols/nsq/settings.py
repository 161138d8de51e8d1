"""The limits and defaults that a connection is held to. They are built once from the options of nsqd; times are in ns."""

from dataclasses import dataclass

from shared.values import MILLISECOND, SECOND

# without IDENTIFY: heartbeats come at half of it, the connection closes after all of it (not a flag in NSQ)
CLIENT_TIMEOUT = 60 * SECOND
DEFAULT_OUTPUT_BUFFER = 16 * 1024  # bytes
MAX_LINE = 16 * 1024  # bytes of a command line, including its newline: the original's read buffer
MAX_PENDING_OUTPUT = 256 * 1024  # bytes: a consumer with that much waiting output is given no message
MAX_IDENTIFY = 64 * 1024  # bytes of an IDENTIFY's body: reading 5 MB of odd JSON takes most of a second
HANDSHAKE_TIMEOUT = 5 * SECOND  # for TLS, as in the original


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings in force. See nsqd/options.py for the flags of the same names."""

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
    most_copies: int = 1  # nodes that can have a message at most, this one included
    publish_only: bool = False  # True: SUB is refused, because the port leads to any one of several nodes
    # From connecting to the end of the first command; a silent connection is closed:
    # docs/contributing/testing.md#hostile-clients
    identify_timeout: int = 10 * SECOND
    tls: bool = False  # there is a certificate: clients may ask for TLS
    tls_required: bool = False  # True: before TLS only IDENTIFY is allowed
    deflate: bool = True
    max_deflate_level: int = 6
    snappy: bool = True
    auth_required: bool = False  # True: SUB, PUB, MPUB and DPUB need AUTH first
    topology_region: str = ""  # the region and zone of this node
    topology_zone: str = ""

"""How long a client of jobs waits, how much it accepts, and its TLS."""

import ssl
from dataclasses import dataclass

from penstock.protocol.beanstalk import MAX_BODY


@dataclass(frozen=True, slots=True)
class JobsSettings:
    """The settings of Jobs and AsyncJobs; immutable. Raises ValueError for values that can never be valid.

    >>> JobsSettings(timeout_s=2.5, retry_s=0).timeout_s
    2.5
    """

    connect_timeout_s: float = 5.0  # to connect, and for the TLS handshake
    timeout_s: float = 10.0  # to send a command and get its answer, in addition to the wait of a reserve
    retry_s: float = 30.0  # how long a command that may be repeated is tried over new connections; 0: once
    max_body_bytes: int = MAX_BODY  # a server that sends a larger body is disconnected
    tls: ssl.SSLContext | None = None  # for -beanstalk-tls-address; None: no TLS
    headers: bool = (
        False  # jobs have headers, as an nsqd of Penstock keeps them; always on with spans, if the server can
    )
    telemetry: bool = True  # spans of puts and of jobs at work, if the process has any (extra `otel`)

    def __post_init__(self) -> None:
        """Raise ValueError for values that can never be valid."""
        if not (self.connect_timeout_s > 0 and self.timeout_s > 0 and self.retry_s >= 0 and self.max_body_bytes >= 0):
            raise ValueError("timeouts must be greater than 0, retry_s and max_body_bytes at least 0")

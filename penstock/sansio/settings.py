"""How a client introduces itself and how long it waits.

Settings are immutable, and one object serves all connections of a producer or consumer. The names are those of go-nsq's
Config with the unit appended. For a value that IDENTIFY carries, 0 leaves the choice to the server.
"""

import os
from dataclasses import dataclass, field

from penstock import __version__

CLIENT_NAME = f"penstock-client/{__version__}"
TLS_MIN_VERSIONS = ("", "ssl3.0", "tls1.0", "tls1.1", "tls1.2", "tls1.3")  # go-nsq's names, plus tls1.3, which it lacks
BACKOFF_STRATEGIES = ("exponential", "full_jitter")


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of a client; the defaults are go-nsq's unless a comment says why not.

    Example::

        settings = Settings(client_id="billing", snappy=True, msg_timeout_ms=30_000)
        with Producer("127.0.0.1:4150", settings) as producer:
            producer.publish("orders", b"one")
    """

    client_id: str = field(default_factory=lambda: os.uname().nodename.partition(".")[0])  # name in /stats and nsqadmin
    hostname: str = field(default_factory=lambda: os.uname().nodename)  # name of the machine there
    user_agent: str = CLIENT_NAME  # program and version there

    heartbeat_interval_ms: int = 30_000  # how often the server asks whether the client is there; -1: never
    sample_rate: int = 0  # percent of the messages to receive; 0: all
    msg_timeout_ms: int = 0  # how long the server waits for FIN or TOUCH before it delivers a message again
    output_buffer_size: int = 0  # bytes that the server holds to send messages together; -1: unbuffered
    output_buffer_timeout_ms: int = 0  # how long it holds them; -1: no timeout

    tls_v1: bool = False  # TLS, from tls_min_version on; a server that does not offer it is refused
    tls_root_ca_file: str = ""  # PEM file of the authorities of the servers' certificates; "": the system's
    tls_insecure_skip_verify: bool = False  # True: accept any certificate; no protection from active attackers
    tls_cert: str = ""  # PEM file of the client's certificate; needs tls_key
    tls_key: str = ""  # PEM file of its key
    tls_min_version: str = ""  # the lowest version: tls1.3, or tls1.2, which is the lowest in any case
    tls_security_level: int = 2  # OpenSSL's, for certificates: 1 admits RSA keys of 1024 bits, 0 also SHA-1 signatures
    snappy: bool = False  # compression by snappy, if the server offers it; at most one of snappy and deflate
    deflate: bool = False  # compression by deflate, in the same way
    deflate_level: int = 6  # of deflate: 1 is fastest, 9 is smallest; the server may use a lower one
    auth_secret: str = field(default="", repr=False)  # the secret of AUTH, if the server requires it
    lookupd_authorization: bool = True  # True: nsqlookupds get auth_secret, too, as `Authorization: Bearer`

    dial_timeout_s: float = 1.0  # the longest time to make a connection
    read_timeout_s: float = 60.0  # the longest time without a byte from the server, heartbeats included
    write_timeout_s: float = 5.0  # the longest write without progress; go-nsq's 1 s is short for a megabyte

    lookupd_poll_interval_s: float = 60.0  # between polls of a nsqlookupd without long polls; 4 s after a loss
    lookupd_poll_jitter: float = 0.3  # the most that is added, as a share of the interval: a fleet must not ask in step
    lookupd_poll_timeout_s: float = 10.0  # the longest request; go-nsq's minute holds up the other nsqlookupds

    default_requeue_delay_ms: int = 90_000  # delay of a requeue that does not name one, multiplied by the attempts made
    max_requeue_delay_ms: int = 900_000  # the longest of these delays
    max_attempts: int = 0  # deliveries after which a message is given up; 0: no limit; go-nsq's default is 5

    rdy_by_load: bool = True  # nsqds with more messages get a larger part of max_in_flight; False: equal parts
    backoff_strategy: str = "exponential"  # exponential, or full_jitter: a random part of that wait
    backoff_multiplier_s: float = 1.0  # the wait is this times 2 to the power of the failures not made up for
    max_backoff_duration_s: float = 120.0  # the longest wait; 0: no backoff

    deduplication: bool = False  # number the publishes, if the server is Penstock's, so that it stores each once

    def __post_init__(self) -> None:
        """Raise ValueError for a value that can never be valid."""
        if not 1 <= self.deflate_level <= 9:
            raise ValueError(f"deflate_level must be 1 to 9: {self.deflate_level}")
        if self.tls_min_version not in TLS_MIN_VERSIONS:
            raise ValueError(f"tls_min_version is not a TLS version: {self.tls_min_version!r}")
        if not 0 <= self.tls_security_level <= 2:
            raise ValueError(f"tls_security_level must be 0 to 2: {self.tls_security_level}")
        if self.backoff_strategy not in BACKOFF_STRATEGIES:
            raise ValueError(f"backoff_strategy must be exponential or full_jitter: {self.backoff_strategy!r}")

    def identify(self) -> dict[str, object]:
        """Return the JSON body of IDENTIFY; values of 0 are left out."""
        body: dict[str, object] = {
            "client_id": self.client_id,
            "hostname": self.hostname,
            "user_agent": self.user_agent,
            "feature_negotiation": True,
            "heartbeat_interval": self.heartbeat_interval_ms,
            "sample_rate": self.sample_rate,
            "msg_timeout": self.msg_timeout_ms,
            "output_buffer_size": self.output_buffer_size,
            "output_buffer_timeout": self.output_buffer_timeout_ms,
            "tls_v1": self.tls_v1,
            "snappy": self.snappy,
            "deflate": self.deflate,
            "deflate_level": self.deflate_level if self.deflate else 0,
            "deduplication": self.deduplication,
            "headers": True,
        }
        return {key: value for key, value in body.items() if value != 0}

    def requeue_delay_ms(self, attempts: int) -> int:
        """Return the delay in ms of a requeue that does not name one, after `attempts` deliveries."""
        return min(attempts * self.default_requeue_delay_ms, self.max_requeue_delay_ms)

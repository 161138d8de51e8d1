"""How a client introduces itself and how long it waits: immutable, one for all connections of a producer or consumer.

The names are go-nsq's Config names with their unit behind them; 0 means: what the server does by default.
"""

import socket
from dataclasses import dataclass, field

from penstock import __version__

CLIENT_NAME = f"penstock-client/{__version__}"


@dataclass(frozen=True, slots=True)
class Settings:
    """The defaults are go-nsq's unless a comment says why not."""

    client_id: str = field(default_factory=lambda: socket.gethostname().partition(".")[0])
    hostname: str = field(default_factory=socket.gethostname)
    user_agent: str = CLIENT_NAME

    heartbeat_interval_ms: int = 30_000
    sample_rate: int = 0  # percent; 0 is all
    msg_timeout_ms: int = 0
    output_buffer_size: int = 0  # bytes; -1 is unbuffered
    output_buffer_timeout_ms: int = 0  # -1 is none

    dial_timeout_s: float = 1.0
    read_timeout_s: float = 60.0  # without a byte, heartbeats included
    write_timeout_s: float = 5.0  # without progress; go-nsq's 1 s is short for a megabyte into a busy server

    lookupd_poll_interval_s: float = 60.0
    lookupd_poll_jitter: float = 0.3  # of the interval, at most, so that a fleet does not ask in step
    lookupd_poll_timeout_s: float = 10.0  # go-nsq's minute would keep the other lookupds waiting that long

    default_requeue_delay_ms: int = 90_000  # times the attempts made
    max_requeue_delay_ms: int = 900_000
    max_attempts: int = 0  # 0 is no limit; go-nsq drops a message after 5 attempts unless told otherwise

    def identify(self) -> dict[str, object]:
        """The body of IDENTIFY."""
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
        }
        return {key: value for key, value in body.items() if value != 0}

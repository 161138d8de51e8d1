"""The producers of nsqlookupd: the identity of an nsqd, its registrations, and its limits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

K = TypeVar("K")

UNIX = "@"  # the host of every producer that connects over a unix socket


@dataclass(frozen=True, slots=True)
class PeerInfo:
    """The identity that an nsqd has sent with IDENTIFY, and the address of its connection."""

    remote_address: str  # "ip:port" of the connection: the producer's identity in every answer
    hostname: str  # may be empty; the other texts may not
    broadcast_address: str
    tcp_port: int  # never 0; otherwise unchecked, as in the original
    http_port: int  # never 0
    version: str
    topology_zone: str = ""  # this and the next are of NSQ's later master; "" if the nsqd does not send them
    topology_region: str = ""
    # Identifies the node in messages' offsets; an original nsqd sends neither this nor the next.
    node_id: int | None = None
    cluster: str = ""  # name of the cluster that it is in; "" if it is in none, or of another kind
    cluster_address: str = ""  # where the other nodes of that cluster reach it
    log_id: str = ""  # of the log that it publishes into, 32 hexadecimal digits; "" if unknown
    https_port: int = 0  # of its HTTP API over TLS; 0 if unknown
    capabilities: tuple[str, ...] = ()  # beyond NSQ, such as "log"
    penstock_version: str = ""  # "": it is an original

    @property
    def host(self) -> str:
        """The address without its port; limits count by it."""
        return host_of(self.remote_address)

    @property
    def node(self) -> str:
        """The name of the node in /topic/tombstone. An IPv6 address has no brackets, as in the original."""
        return f"{self.broadcast_address}:{self.http_port}"


@dataclass(slots=True, eq=False)  # compared by identity: two connections are two peers, even with equal addresses
class Peer:
    """An identified connection, and the topics and channels that it has registered."""

    info: PeerInfo
    last_update: int  # ns since the epoch, when it last sent IDENTIFY or PING
    topics: dict[str, None] = field(default_factory=dict)  # in order of registration; consistent with Registry._topics
    channels: dict[tuple[str, str], None] = field(default_factory=dict)  # in order; each one's topic is in `topics`
    silent: bool = True  # it has sent neither PING nor REGISTER since IDENTIFY
    hang_up: Callable[[], None] = lambda: None  # ends the connection, soon


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of entries: a topic or a channel is one, and each producer of it another. One takes 100 to 470 bytes."""

    total: int = 500_000  # entries: 235 MB at most
    per_producer: int = 50_000  # keys that one producer carries
    producers: int = 4_000  # connected producers; a known producer is accepted beyond this limit and the next
    producers_per_ip: int = 256

    @property
    def per_host(self) -> int:
        """Keys that all producers of one IP address carry together, so that one address cannot use up the total."""
        return max(self.total // 4, 1)


DEFAULT_LIMITS = Limits()


class Full(Exception):
    """A limit is reached and nothing was changed. The text says which limit."""


def host_of(remote_address: str) -> str:
    """Return the IP address of "ip:port", or UNIX for every unix socket."""
    return UNIX if remote_address.startswith(UNIX) else remote_address.rpartition(":")[0]


def count_down(counts: Counter[K], key: K) -> None:
    """Decrease the count of a key by one, and remove the key at 0."""
    counts[key] -= 1
    if not counts[key]:
        del counts[key]

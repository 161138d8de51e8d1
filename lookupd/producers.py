"""The producers of nsqlookupd: what an nsqd says of itself, what it has registered, and how much it may register."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

K = TypeVar("K")

UNIX = "@"  # the host of every producer that connects over a unix socket


@dataclass(frozen=True, slots=True)
class PeerInfo:
    """What an nsqd said of itself in IDENTIFY, and where its connection comes from."""

    remote_address: str  # "ip:port" of the connection: the producer's identity in every answer
    hostname: str  # may be empty; the other texts may not
    broadcast_address: str
    tcp_port: int  # never 0, otherwise unchecked, as in the original
    http_port: int  # never 0
    version: str
    topology_zone: str = ""  # these two are of NSQ's later master; "" where the nsqd tells none
    topology_region: str = ""
    node_id: int | None = None  # what its messages' offsets are told by; an original nsqd tells none, nor the next
    capabilities: tuple[str, ...] = ()  # what it can do beyond NSQ, e.g. "log"

    @property
    def host(self) -> str:
        """The address without its port, by which limits count."""
        return host_of(self.remote_address)

    @property
    def node(self) -> str:
        """How /topic/tombstone names it. No brackets around an IPv6 address, as in the original."""
        return f"{self.broadcast_address}:{self.http_port}"


@dataclass(slots=True, eq=False)  # compared by identity: two connections are two peers whatever their addresses
class Peer:
    """One identified connection."""

    info: PeerInfo
    last_update: int  # ns; when it last sent IDENTIFY or PING
    topics: dict[str, None] = field(default_factory=dict)  # in order of registration; mirrors Registry._topics
    channels: dict[tuple[str, str], None] = field(default_factory=dict)  # likewise; each one's topic is in `topics`
    silent: bool = True  # it has sent neither PING nor REGISTER since IDENTIFY
    hang_up: Callable[[], None] = lambda: None  # ends its connection, soon


@dataclass(frozen=True, slots=True)
class Limits:
    """How much nsqlookupd keeps. An entry is a key (a topic or a channel), and each producer of a key is another.

    An entry took 100 bytes (a producer of a key that others carry, too) to 470 (a key that nobody carries any more).
    """

    total: int = 500_000  # entries: 235 MB at most
    per_producer: int = 50_000  # keys that one producer carries
    producers: int = 4_000  # connected; known ones may come beyond these two
    producers_per_ip: int = 256

    @property
    def per_host(self) -> int:
        """Keys that all producers of one IP address carry together: one address cannot take what all others need."""
        return max(self.total // 4, 1)


DEFAULT_LIMITS = Limits()


class Full(Exception):
    """A limit is reached and nothing was changed; the text says which limit."""


def host_of(remote_address: str) -> str:
    """The IP address of "ip:port"; UNIX for every unix socket."""
    return UNIX if remote_address.startswith(UNIX) else remote_address.rpartition(":")[0]


def count_down(counts: Counter[K], key: K) -> None:
    """One less of a key, which disappears at 0."""
    counts[key] -= 1
    if not counts[key]:
        del counts[key]

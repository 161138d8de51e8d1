"""The connections of a node to others: the log that is copied over one is read on as soon as the connection takes more."""

import socket
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from nsqd.cluster.port import ClusterPort
from nsqd.cluster.wire.part import Part
from nsqd.cluster.wire.peer import ClusterPeer
from nsqd.net.reactor import Reactor
from tests.nsqd.cluster.wire.test_link import NOW, cluster
from tests.nsqd.cluster.wire.test_peer import FakeTransport


class Backlog(Part):
    """Notes, in place of the leader of a log, how many bytes wait to be sent when it may read on."""

    def __init__(self) -> None:
        self.seen: list[int] = []
        self.peer: Any = None

    def pump(self, now: int) -> None:
        self.seen.append(self.peer.link.backlog)


def connected() -> tuple[ClusterPort, ClusterPeer, Backlog]:
    own, part, makers = cluster(0), Backlog(), list[Any]()
    own.add(part)
    reactor = SimpleNamespace(
        listen=lambda sock, make_peer, limiter, **rest: makers.append(make_peer), wake=lambda: None
    )
    port = ClusterPort(own, cast("Reactor", reactor), Path(), lambda: 0, Counter(), lambda ip: None)
    port.listen(cast("socket.socket", None))
    part.peer = makers[0](FakeTransport(), "127.0.0.1", "1", NOW, NOW)
    return port, part.peer, part


def test_a_piece_of_a_log_goes_to_the_connection_before_the_next_one_is_read() -> None:
    port, peer, backlog = connected()
    peer.link.send(b"a piece")
    port.wake()
    assert (peer.take_output(), backlog.seen) == ([b"a piece"], [0])


def test_a_log_is_read_on_when_the_network_has_taken_the_output() -> None:
    port, peer, backlog = connected()
    peer.outbox.unsent = 1000
    port.events()  # a heartbeat came meanwhile
    peer.outbox.unsent = 0
    peer.network_ready()
    assert backlog.seen == [0, 0]

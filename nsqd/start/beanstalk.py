"""Make a peer for each connection of a beanstalkd client, on whichever reactor it comes."""

from __future__ import annotations

import os
import platform
import random
import resource
import socket
import time
from collections.abc import Callable, Iterable

from nsqd.core.broker import Broker
from nsqd.protocols.beanstalk import stats
from nsqd.protocols.beanstalk.client import BeanstalkContext
from nsqd.protocols.beanstalk.peer import Peer
from nsqd.protocols.conversation import Conversation
from nsqd.protocols.transport import Transport, with_tls

DEFAULT_MAX_JOB_SIZE = 65_535  # bytes
MOST_JOB_SIZE = 1024 * 1024 * 1024


class FrontEnd:
    """The front end for clients of beanstalkd: it makes their peers, and collects the statistics of their `stats`."""

    def __init__(
        self,
        broker: Broker,
        max_job_size: int,
        peers: Callable[[], Iterable[Conversation]],
        files: Callable[[], tuple[int, int, int, int, int]],
    ) -> None:
        """Set up the front end. `peers` returns those of all connections; for `files` see OpenLog.files."""
        self._broker = broker
        self._peers = peers
        self._files = files
        self._connection_count = 0
        self._started = time.monotonic()
        self._instance = f"{random.SystemRandom().getrandbits(64):016x}"
        self.context = BeanstalkContext(max_job_size, self._figures)

    def make_peer(self, transport: Transport, ip: str, port: str, now: int, wall: int) -> Conversation:
        """Return a peer for a new connection from `ip`; see nsqd.net.reactor.MakePeer."""
        self._connection_count += 1
        return Peer(self._broker, self.context, transport, ip, port, now)

    def make_tls_peer(self, transport: Transport, ip: str, port: str, now: int, wall: int) -> Conversation:
        """Return a peer for a new connection that speaks TLS from the first byte on."""
        return with_tls(self.make_peer(transport, ip, port, now, wall), transport)

    def _figures(self) -> stats.ServerFigures:
        peers = [peer for peer in self._peers() if isinstance(peer, Peer)]
        usage, system = resource.getrusage(resource.RUSAGE_SELF), os.uname()
        return stats.ServerFigures(
            max_job_size=self.context.max_job_size,
            connections=len(peers),
            producers=sum(peer.worker.produces for peer in peers),
            workers=sum(peer.worker.works for peer in peers),
            waiting=sum(peer.worker.waiting for peer in peers),
            total_connections=self._connection_count,
            pid=os.getpid(),
            user_time=usage.ru_utime,
            system_time=usage.ru_stime,
            uptime=int(time.monotonic() - self._started),
            binlog=self._files(),
            instance=self._instance,
            hostname=socket.gethostname(),
            os=system.version,
            platform=platform.machine(),
        )

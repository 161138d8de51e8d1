"""The node as the HTTP handlers see it."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from nsqd.core.broker import Broker
from nsqd.core.cluster_view import ClusterView
from nsqd.core.observation.series import Series
from nsqd.core.retention.backup import Backup
from nsqd.core.retention.contents import Contents
from nsqd.core.retention.history import History
from nsqd.core.sequence.store import LogFigures
from nsqd.core.topology import TopologySnapshot
from nsqd.options import NsqdOptions
from nsqd.protocols.account import Accounts
from nsqd.protocols.disque.ids import JobIds
from nsqd.protocols.http.publishers import HttpPublishers
from nsqd.protocols.nsq.peer import Peer
from shared.budget import BudgetFigures
from shared.histogram import Histogram
from shared.http.bridge import Bridge

if TYPE_CHECKING:  # a node without one of these does not load it
    from nsqd.core.spans import Spans
    from shared.audit.trail import Trail
    from shared.tls.dates import CertificateDates


@dataclass(frozen=True, slots=True)
class Info:
    """The answer of /info: fixed from the start."""

    version: str
    broadcast_address: str
    hostname: str
    http_port: int  # -1: a unix socket, 0: no HTTP
    tcp_port: int
    start_time: int  # s since the epoch
    https_port: int = 0  # 0: no HTTPS


@dataclass(frozen=True, slots=True)
class Node:
    """The daemon as HTTP sees it. Fields marked "trio thread" may be used only by way of the bridge."""

    options: NsqdOptions
    info: Info
    bridge: Bridge
    broker: Broker  # trio thread
    # trio thread; begins (True) or cancels draining, and returns whether that changed anything
    drain: Callable[[bool], bool]
    peers: Callable[[], list[Peer]]  # trio thread
    set_lookupds: Callable[[list[str]], None]  # trio thread
    lookupds: Callable[[], list[str]]  # trio thread
    # trio thread; takes a topic, and a function to call when nsqlookupd knows the topic
    until_registered: Callable[[str, Callable[[], None]], None]
    turns: Callable[[], Histogram]  # trio thread; durations of the reactor's turns, in ns
    take_topology: Callable[[], TopologySnapshot]  # trio thread
    save_topology: Callable[[TopologySnapshot], None]  # any thread: durable on return
    health: Callable[[], str]  # "OK", or "NOK - why"
    memory: Callable[[], dict[str, int]]  # any thread; the process's memory statistics, for /stats
    log: Callable[[], LogFigures]  # trio thread
    backup: Backup  # trio thread
    contents: Contents  # trio thread, except for its methods marked as safe in any thread
    series: Series  # trio thread
    refused: Callable[[], Counter[str]]  # trio thread; what clients were refused, by reason
    cluster: ClusterView | None  # trio thread; None: the node is in no cluster
    buffers: Callable[[], BudgetFigures]  # any thread: what clients make the node buffer
    job_ids: JobIds  # trio thread; the names that clients of Disque have for jobs
    audit: "Trail | None" = None  # any thread; None: nothing is recorded
    are_ports_open: Callable[[], bool] = lambda: True  # any thread; False: the node starts, and clients of TCP wait
    # trio thread; takes a function to call when they are open
    until_ports_open: Callable[[Callable[[], None]], None] = lambda then: then()
    dates: "CertificateDates | None" = None  # any thread; when the certificates end; None: the answer leaves them out
    publishers: HttpPublishers = field(default_factory=HttpPublishers)  # trio thread
    accounts: Accounts | None = None  # trio thread; of those who are in the auth file; None: there is none
    spans: "Spans | None" = None  # any thread, for its counts; None: there are none

    @property
    def history(self) -> History:
        """Return the reader of messages of the log into which clients publish. For the trio thread."""
        history = self.broker.context.history
        assert history is not None
        return history

    async def until_started(self) -> None:
        """Wait until the node has started: it can have its copies, or some other nodes are down. Runs in the HTTP thread."""
        if not self.are_ports_open():
            await self.bridge.wait(self.until_ports_open)

    async def registered(self, topic: str) -> None:
        """Wait until nsqlookupd knows the new topic or channel, for a bounded time. Runs in the HTTP thread."""
        await self.bridge.wait(lambda done: self.until_registered(topic, done))

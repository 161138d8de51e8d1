"""A whole node as nsqd/start/daemon.py wires it, on a simulated disk, clock and network; and operators who use HTTP."""

from collections.abc import Callable
from functools import partial
from random import Random

from nsqd.core.broker import Broker
from nsqd.core.limits import Limits
from nsqd.core.registry import Change
from nsqd.core.trace import Trace
from nsqd.net.admission import Admission
from nsqd.net.promised import HttpReplies
from nsqd.net.reactor import Reactor
from nsqd.net.system import System
from nsqd.protocols.nsq.context import Context
from nsqd.protocols.nsq.peer import Peer
from nsqd.protocols.nsq.settings import Settings
from shared.connection_limiter import ConnectionLimits
from shared.topic_config import Durability
from tests.nsqd.storage.sim_disk import SimDisk
from tests.nsqd.storage.sim_node import Clock, SimNode
from tests.simulation.net import Network, Poller

Act = Callable[[Broker], None]
SECOND = 1_000_000_000
NO_LIMITS = ConnectionLimits()
SETTINGS = Settings(msg_timeout=2 * SECOND)
TIMER = SECOND // 5  # ns between calls of Syncer.timer: --sync-timeout


class WholeNode(SimNode):
    """See above. Raises LogError if the log cannot be opened."""

    def __init__(
        self,
        disk: SimDisk,
        durability: Durability,
        clock: Clock,
        random: Random,
        limits: Limits,
        segment_size: int,
        budget: int,
        tail_records: int,
        tail_bytes: int,
        trace: Trace | None = None,
        settings: Settings = SETTINGS,
        connections: ConnectionLimits = NO_LIMITS,
    ) -> None:
        self._random = random
        self.reactor: Reactor | None = None  # None while the log is opened
        super().__init__(disk, durability, clock, random, limits, segment_size, budget, tail_records, tail_bytes, trace)
        self.network = Network(lambda: clock.true, random)
        self._calls: list[tuple[Act, Callable[[bool], None]]] = []  # of operators, with their callbacks
        self._timer = clock.now + TIMER
        system = System(lambda: Poller(self.network), self.network.pair, lambda: None)
        admission = Admission(connections, refused=self.broker.refused)
        self.reactor = Reactor(
            self.broker, lambda: (clock.now, clock.wall), self._serve_calls, self._report_changes, admission, system
        )
        self.context = Context(self.broker, settings)
        self.reactor.listen(self.network.listener, partial(Peer, self.context))

    def _wake(self) -> None:
        super()._wake()
        if self.reactor is not None:
            self.reactor.wake()

    def _report_changes(self, changes: list[Change]) -> None: ...

    def call(self, act: Act, settled: Callable[[bool], None]) -> None:
        """As a request over HTTP: done in the next turn; `settled` gets True when the reply may leave, False for 503."""
        self._calls.append((act, settled))
        self._wake()

    def _serve_calls(self) -> HttpReplies:
        calls, self._calls = self._calls, []
        for act, _ in calls:
            act(self.broker)

        def report(good: bool) -> None:
            for _, settled in calls:
                settled(good)

        return HttpReplies(lambda: report(True), lambda: report(False))

    def run_once(self, until: int) -> None:
        """A turn if there is a reason for one; else time passes up to the next, or to `until` (true time, ns)."""
        reactor = self.reactor
        self.network.move()
        events = reactor._epoll.poll(0, 512)
        due = reactor._due()
        if events or (due is not None and due <= self.clock.now):
            reactor.turn(events)
            return
        times = [until, self.network.next_arrival(), self.clock.true + self._timer - self.clock.now]
        if due is not None:
            times.append(self.clock.true + due - self.clock.now)
        self.clock.advance(max(0, min(time for time in times if time is not None) - self.clock.true))
        if self.clock.now >= self._timer:
            self._timer += TIMER
            self.log.timer()
            self._wake()

    def step_threads(self) -> None:
        """What worker threads do, a system call at a time."""
        random = self._random
        if self.syncer.job is not None and random.random() < 0.5:
            self.syncer.step()
            if self.syncer.job is None:
                self._wake()
        if random.random() < 0.5 and self.cache.step():
            self._wake()
        if random.random() < 0.2 and self.cleaner.waits is not None:
            self.cleaner.step()
        if random.random() < 0.2:
            self.spare.step()
            self._wake()

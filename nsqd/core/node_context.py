"""The objects that all topics of a node share: limits, store, ids, agenda, registry and scan."""

from collections.abc import Callable
from dataclasses import dataclass, field

from nsqd.core.batches.batches import Batches
from nsqd.core.limits import Limits
from nsqd.core.measurement.latency import Latency
from nsqd.core.measurement.outcomes import Events, Outcomes, Producers
from nsqd.core.message.ids import IdSource
from nsqd.core.registry import Registry
from nsqd.core.retention.history import History
from nsqd.core.scheduling.schedules import Schedules
from nsqd.core.sequence.dedup import Remembered
from nsqd.core.sequence.store import Store
from nsqd.core.timing.agenda import Agenda
from nsqd.core.timing.scan import ScanPool
from shared.histogram import Histogram


@dataclass(slots=True)
class NodeContext:
    """The shared objects of one node."""

    limits: Limits
    store: Store
    ids: IdSource
    random_below: Callable[[int], int]
    agenda: Agenda
    registry: Registry
    scan: ScanPool
    events: Events
    batches: Batches
    schedules: Schedules
    position: int = 0  # of the log among those that the node leads: see Broker.logs; never used again in this run
    history: History | None = None  # reads the log's messages from disk; None: nothing does
    refusal: str = ""  # why the node takes no messages in this turn; "": it does
    copies: int = 1  # nodes that can have a copy of a message now, this one included; 0: see Broker.set_copies
    remembered: Remembered = field(default_factory=Remembered)  # how much all topics remember of their publishers
    # of all finished messages, while percentiles are configured
    latencies: Histogram = field(default_factory=Histogram)

    def new_latency(self) -> Latency | None:
        """Return the measurement of latencies for a new channel, or None if no percentiles are configured."""
        limits = self.limits
        if not limits.latency_percentiles:
            return None
        return Latency(limits.latency_percentiles, limits.latency_window, self.latencies)

    def new_outcomes(self, topic: str, channel: str, producers: Producers | None) -> Outcomes | None:
        """Return the counts of outcomes for a new channel, for the statistics topic, or None if nothing is measured."""
        return Outcomes(topic, channel, producers, self.events) if producers is not None else None

"""What bounds the core, and what it measures: the options of the node, as the core sees them."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from nsqd.core.retention.keeping import Keeping
from nsqd.core.sequence.seen import SeenLimits


@dataclass(frozen=True, slots=True)
class Limits:
    """See nsqd/options.py for the flags of the same names."""

    mem_queue_size: int = 10_000  # messages
    queue_scan_selection_count: int = 20
    queue_scan_worker_pool_max: int = 4
    max_topics: int = 50_000
    max_channels: int = 100_000  # of all topics
    max_attempts: Mapping[str, int] = field(default_factory=dict)  # by topic; "": of topics not named; 0: no limit
    requeue_on_disconnect: bool = False
    whole_job_ids: bool = False  # clients of beanstalkd name jobs by the whole message id, not by the sequence in it
    topology_aware: bool = False  # consumers in the node's zone are served first, then those of its region
    latency_percentiles: tuple[float, ...] = ()  # none: latencies are not measured
    latency_window: int = 600_000_000_000  # ns
    measures: bool = False  # what becomes of messages, for the statistics topic
    events: float = 0.0  # the share of messages of which each event is told
    keeping: Keeping = field(default_factory=Keeping)  # of topics that have no word of their own
    seen: SeenLimits = field(default_factory=SeenLimits)

    def attempts(self, topic: str) -> int:
        """Deliveries before a message of the topic is buried; 0: any number."""
        return self.max_attempts.get(topic, self.max_attempts.get("", 0))


class TooMany(Exception):
    """There are as many topics or channels as the limits allow."""

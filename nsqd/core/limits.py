"""The options of the node as the core sees them: what bounds it, and what it measures."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from nsqd.core.retention.policy import StoragePolicy
from nsqd.core.sequence.dedup import DedupLimits


@dataclass(frozen=True, slots=True)
class Limits:
    """The options of one node. See nsqd/options.py for the flags of the same names."""

    mem_queue_size: int = 10_000  # messages
    queue_scan_selection_count: int = 20
    queue_scan_worker_pool_max: int = 4
    max_topics: int = 50_000
    max_channels: int = 100_000  # of all topics
    max_attempts: Mapping[str, int] = field(default_factory=dict)  # by topic; "": for all other topics; 0: no limit
    requeue_on_disconnect: bool = False
    whole_job_ids: bool = False  # clients of beanstalkd see the whole message id as the job id, not only its sequence
    topology_aware: bool = False  # True: consumers in the node's zone come first, then those in its region
    latency_percentiles: tuple[float, ...] = ()  # empty: latencies are not measured
    latency_window: int = 600_000_000_000  # ns
    measures: bool = False  # True: outcomes of messages are counted for the statistics topic
    events: float = 0.0  # the share of messages, 0 to 1, whose events are all reported
    policy: StoragePolicy = field(default_factory=StoragePolicy)  # for topics without a setting of their own
    dedup: DedupLimits = field(default_factory=DedupLimits)

    def attempts(self, topic: str) -> int:
        """Return after how many deliveries a message of the topic is buried; 0: never."""
        return self.max_attempts.get(topic, self.max_attempts.get("", 0))


class TooMany(Exception):
    """A limit of the node, such as the number of topics or channels, is reached.

    If it refuses a publish, the text begins with a code and a colon, such as TOPIC_FULL: NSQ's clients get the text, and HTTP's
    get 503 and the code. Those of beanstalkd and Disque get OUT_OF_MEMORY and OOM, unless their protocol has an error for it.
    """


class NotTaken(TooMany):
    """The node takes no messages: it drains, or it cannot write to its disk. The text says why."""


class TopicFull(TooMany):
    """A topic has as many messages as its settings allow, and refuses more, or is to bury further jobs."""

    buries = False


class HeaderRefused(TooMany):
    """A header of a message asks for something that is refused. The text is the reason, such as BATCH_DONE."""


MAY_BE_DELIVERED = "NOREPL_MAY_BE_DELIVERED"  # how HTTP names a publish whose copies did not come in time


class TooFewCopies(TooMany):
    """Nothing can be published to the topic: fewer nodes can have a copy now than it asks for. The text says how many."""

"""How many messages may be delivered twice because a log has changed its leader, as far as a node can count them. Pure.

See docs/explanation/guarantees.md#counts-of-possible-duplicates.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from nsqd.core.broker import Broker
from nsqd.core.topic_state import TopicState
from nsqd.storage.log.succession import Succession

READY_AGAIN, UNCLEAN = "ready_again", "unclean"  # at the node that takes a log over
SALVAGED = "salvaged"  # at the node that salvages what a log's leader lacks
UNFINISHED, UNTOLD, MOVED, MOVED_ALL = "unfinished", "untold", "moved", "moved_all"  # at the node that has lost its log
REASONS = (READY_AGAIN, UNCLEAN, UNFINISHED, UNTOLD, MOVED, MOVED_ALL, SALVAGED)


@dataclass(slots=True)
class FailoverFigures:
    """The failovers since this node has its log."""

    last_seconds: float | None = None  # that the last failover took; None: there was none
    possible_duplicates: Counter[str] = field(default_factory=Counter)  # messages by reason, one of REASONS

    def failed_over(self, seconds: float, delivered: int, unfinished: int, is_clean: bool) -> None:
        """Note that this node has taken a log over.

        `delivered`: messages that are ready and had been delivered before; `unfinished`: all that readers wait for; `is_clean`:
        the copy was known to be complete.
        """
        self.last_seconds = seconds
        self.possible_duplicates[READY_AGAIN] += delivered
        if not is_clean:
            self.possible_duplicates[UNCLEAN] += max(0, unfinished - delivered)

    def salvaged(self, delivered: int) -> None:
        """Note that this node serves what the leader of a log lacked. `delivered`: messages that had been delivered before."""
        self.possible_duplicates[SALVAGED] += delivered

    def figures(self) -> dict[str, Any]:
        """Return the duration of the last failover in s, and the possible duplicates by reason, for /cluster."""
        duplicates = {reason: self.possible_duplicates[reason] for reason in REASONS}
        return {"last_seconds": self.last_seconds, "possible_duplicates": duplicates}


def of_return(made: Succession, is_leader_known: bool) -> Counter[str]:
    """Count messages that may be delivered twice because another node has promoted this node's log. `made`: the new log.

    `is_leader_known`: a node has reported how much of the log the other node has.
    """
    moved = MOVED if is_leader_known else MOVED_ALL
    return Counter({UNTOLD: made.dropped["FINISH"], moved: made.messages})


def delivered_before(topics: Iterable[TopicState]) -> int:
    """Count the messages and jobs of settled states that are ready after a start though they had been delivered."""
    return sum(reader.delivered() for topic in topics for reader in topic.readers.values())


def unfinished(broker: Broker) -> int:
    """Count the messages and jobs that wait to be delivered, once for each reader; those that are buried do not."""
    topics = broker.topics.values()
    counts = [reader.counts() for topic in topics for reader in topic.readers.values()]
    return sum(sum(one) - one.buried for one in counts)

"""What HTTP asks of a node's cluster; nsqd.cluster answers."""

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from nsqd.core.retention.backup import Backup, BackupPart
from nsqd.core.retention.history import PastLog
from nsqd.core.sequence.store import LogFigures
from shared.topic_config import TopicConfig


@dataclass(frozen=True, slots=True)
class ReadableReplica:
    """A replica as it can be read now."""

    files: Hashable  # another one when files came or went
    durable: int  # position up to which it is durable
    read: Callable[[], PastLog]  # reads it, in any thread; takes about as long as the log's start. Raises OSError


class ServedLog(Protocol):
    """A log that this node has promoted, and serves: nsqd.storage.log.opening.OpenLog. Its methods are for the trio thread."""

    def figures(self) -> LogFigures:
        """Return its current size, memory, losses and sync durations."""

    def backup(self) -> Backup:
        """Return the maker of one backup of it."""


class ClusterView(Protocol):
    """The cluster as one node knows it. Its methods are for the trio thread."""

    def figures(self) -> dict[str, Any]:
        """Return the state of the nodes and of the replicas, as JSON has it."""

    def replica(self, log_id: bytes) -> tuple[Sequence[BackupPart], Mapping[str, bytes]]:
        """Return the parts of this node's replica of a log.

        Also the other files of a data directory with which the log's node starts: what it must know of message ids and of the
        cluster. Raises KeyError if there is no such replica, or it is not complete, OSError if it cannot be read.
        """

    def readable_replica(self, log_id: bytes) -> ReadableReplica:
        """Return a reader of this node's replica of a log. Raises KeyError if there is none, or it is not complete."""

    def promoted_logs(self) -> dict[bytes, tuple[int, ServedLog]]:
        """Return the promoted logs that are served, by log id, each with the number of the node that published into it."""

    def is_opening(self, log_id: bytes) -> bool:
        """Return True if this node has a log, or a replica of it, and cannot read it yet."""

    def forget(self, number: int, then: Callable[[bool], None]) -> None:
        """Notify all nodes that a node will not come back. `then` gets True when this is durable here, False if it cannot be.

        Its log is never taken back, so a node may have the number again with a new data directory. Raises KeyError if no node
        has the number, ValueError if it is this node or one that is connected.
        """

    def configured(self, topic: str, config: TopicConfig) -> None:
        """Send an operator's configuration of a topic to all nodes, within a turn: it holds everywhere."""

    def config_of(self, topic: str) -> TopicConfig | None:
        """Return the configuration of a topic by an operator, as far as this node knows. None if there is none."""

    def leave(self, limit: int) -> None:
        """Begin to leave the cluster permanently, within `limit` ns; then the process ends. Further calls do nothing."""

    def leaving_state(self) -> dict[str, Any]:
        """Return the progress of leaving, as JSON has it."""

    def promote(self, log_id: bytes) -> None:
        """Become a candidate for the log of a lost node, on an operator's order.

        This node's replica may lack messages. Raises KeyError if there is no complete replica of the log here, ValueError if
        its leader is connected.
        """

    def cut_off(self, number: int, duration: int) -> list[int]:
        """Partition this node from another one for `duration` ns, 0: until `heal`. Returns all partitioned nodes.

        Only for a node with -debug-routes. Raises ValueError if it is this node.
        """

    def heal(self, number: int | None) -> list[int]:
        """End the partition from a node, None: from all. Returns the numbers of the nodes that are still partitioned."""

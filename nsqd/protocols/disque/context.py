"""The data that all connections of Disque's clients to a node share."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Protocol

MOST_NAMES = 4096  # remembered names of queues
MOST_NAME = 200  # bytes of a queue's name, as of a tube's
QUEUE_NAME = re.compile(rb"(?!#)[!-~]{1,%d}(?<!#ephemeral)" % MOST_NAME)
BAD_NAME = (
    b"ERR Invalid queue name: 1 to 200 printable ASCII characters without spaces, not with # at the beginning"
    b" or #ephemeral at the end"
)


class Priority(IntEnum):
    """The priority of a node in HELLO, the best one first."""

    GOOD = 1
    NO_LINK = 5
    SUSPECTED = 10
    GONE = 100  # or about to go


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """A node of the cluster as clients of Disque see it."""

    number: int
    ip: str  # "": not known
    port: int  # for clients of Disque; 0: it takes none
    priority: Priority
    is_leaving: bool = False
    silent_since: int = 0  # ms since the epoch, when the first heartbeat was missed; 0: none was
    contact_at: int = 0  # ms since the epoch, of the last heartbeat; 0: there was none, or the node is this one


class DisqueCluster(Protocol):
    """The cluster, as commands see it."""

    number: int  # of this node

    def nodes(self) -> Sequence[NodeFacts]:
        """Return all nodes, this one first."""

    def size(self) -> int:
        """Return the number of nodes: those of `nodes`."""

    def meet(self, ip: str, port: int) -> bool:
        """Begin to connect to another node at its cluster port. Returns False if this node is in no cluster."""

    def forget(self, number: int) -> str:
        """Forget a node that will not come back, on all nodes. Returns the reason for a refusal, or ""."""

    def leave(self) -> str:
        """Begin to leave the cluster permanently. Returns the reason for a refusal, or ""."""

    def stay(self) -> str:
        """Do not leave. Returns the reason for a refusal, or ""."""


class OtherNodes(Protocol):
    """The other nodes, which may own a job that this one does not have, as commands see them."""

    def count(self, command: bytes, job_ids: list[bytes], rights: bytes, then: Callable[[int | None], None]) -> bool:
        """Have the owners of these jobs execute a command, and call `then` with the number of jobs that it applied to.

        `rights`: those of the client (Rights.dump). If the client may not do this to one of the jobs of an owner, that owner
        does nothing, and None is passed to `then`. An acknowledgement whose owner cannot be asked is kept for it. Returns
        False, and calls nothing, if no node is asked.
        """

    def add(self, words: list[bytes], wait: int, then: Callable[[bytes | None], None]) -> bool:
        """Have another node execute an ADDJOB, which may wait `wait` ns for copies, and call `then` with the reply.

        None: it has not answered, and may have added the job. Returns False, and calls nothing, if no node is asked.
        """

    def ask(self, command: bytes, job_id: bytes, rights: bytes, then: Callable[[list[bytes]], None]) -> bool:
        """Have the owner of this job execute a command, and call `then` with the replies of the nodes that may be its owner.

        `rights`: those of the client (Rights.dump). Returns False, and calls nothing, if no node is asked.
        """

    def request_of_all(self, words: list[bytes]) -> None:
        """Have all nodes that can be reached now execute a command, without waiting for it."""


@dataclass(frozen=True, slots=True)
class ServerFigures:
    """The statistics of the process, for INFO."""

    os: str
    pid: int
    run_id: str  # 40 hex digits
    port: int  # for clients of Disque
    uptime: int  # s
    executable: str
    config_file: str  # "": there is none
    resident: int  # bytes of memory
    peak: int  # bytes of memory, at most since the start
    cpu_system: float  # s
    cpu_user: float  # s
    is_durable: bool  # jobs are in a commit log
    gcc: str = "0.0.0"  # version of the compiler that made the interpreter
    operations: int = 0  # commands a second since the last call
    rejected: int = 0  # connections since the start


class Alone:
    """A node that is in no cluster. Implements ClusterFacts."""

    def __init__(self, number: int, port: int, drain: Callable[[bool], object] = bool) -> None:
        """`port`: for clients of Disque. `drain` begins or ends that the node takes no jobs, which stands for leaving."""
        self.number = number
        self._port = port
        self._drain = drain
        self._is_leaving = False

    def nodes(self) -> Sequence[NodeFacts]:
        priority = Priority.GONE if self._is_leaving else Priority.GOOD
        return [NodeFacts(self.number, "", self._port, priority, self._is_leaving)]

    def size(self) -> int:
        return 1

    def meet(self, ip: str, port: int) -> bool:
        return False

    def forget(self, number: int) -> str:
        return "this node is in no cluster"

    def leave(self) -> str:
        self._is_leaving = True
        self._drain(True)
        return ""

    def stay(self) -> str:
        self._is_leaving = False
        self._drain(False)
        return ""


NO_FIGURES = ServerFigures("", 0, "0" * 40, 0, 0, "", "", 0, 0, 0.0, 0.0, False)

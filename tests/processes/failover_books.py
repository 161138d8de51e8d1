"""The books of a round of failovers: who delivered what, when it was finished, and why a message was delivered twice.

A duplicate is a delivery to a live consumer, or to a worker, of what one of them had finished before. Each must follow from a
disturbance near the node that finished it. Nodes count all that are possible, except for those that
docs/explanation/guarantees.md#counts-of-possible-duplicates says are not counted, so there are no more than they have counted.
"""

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any

from tests.daemons import Daemon
from tests.processes.cluster_load import Books, Client, http_client, jobs_of

LAG = 3.0  # s before a node was lost in which a finish at this node may not have reached the others
KILL, RESTART, RETURN, PAUSE = "a kill", "a restart", "a return", "a pause"
ANY_NODE = -1  # the leader of a job that a client of Disque got by way of its own node
COUNTED, NOT_COUNTED = "counted", "not counted"  # duplicates
_PAUSE = 0.3  # s between two looks at the counts of a node


@dataclass(frozen=True)
class Disturbance:
    """Something that makes other nodes take over the log of a node, or makes the node give up those that it has taken over."""

    kind: str
    nodes: frozenset[int]
    at: float  # s, monotonic
    until: float = float("inf")  # when it was over, for the node that has finished something

    def explains(self, node: int, at: float) -> bool:
        """Return True if others may not know what a node finished then, or the node did not read it before it stopped."""
        return (node in self.nodes or node == ANY_NODE) and self.at - LAG <= at < self.until

    def explains_again(self, node: int, at: float) -> bool:
        """Return True if a partitioned node may have delivered messages then, before it knew the new leader.

        A node that returns may be in that case, too, if its log is promoted when it has asked others, and is about to serve. A
        node that was paused asks them before it delivers.
        """
        is_near = node in self.nodes or node == ANY_NODE
        return self.kind not in (KILL, RESTART, PAUSE) and is_near and self.at <= at < self.until


@dataclass(frozen=True)
class Delivery:
    """A delivery to a live consumer or worker."""

    node: int
    at: float  # s, monotonic
    is_finished: bool = True  # False: the worker got no DELETED, or not 1 for its ACKJOB


@dataclass(frozen=True)
class Duplicate:
    """A message that was delivered twice."""

    publisher: int  # the node that issued the id
    message_id: bytes
    before: Delivery
    now: Delivery

    def __str__(self) -> str:
        finished, again = (f"node {one.node} ({one.at:.1f})" for one in (self.before, self.now))
        return f"{self.message_id!r} was finished at {finished}, and delivered again at {again}"

    def kind(self, disturbances: Iterable[Disturbance]) -> str:
        """Return whether a node has counted it; "": nothing explains it."""
        before, now = self.before, self.now
        near = [
            one for one in disturbances if one.explains(before.node, before.at) or one.explains_again(now.node, now.at)
        ]
        if not near:
            return ""
        kills = [one for one in disturbances if one.kind == KILL and one.at >= before.at - LAG]
        is_forgotten = any(one.nodes & {before.node, now.node} for one in kills)  # as is what was in flight
        is_unread = not before.is_finished or {one.kind for one in near} == {RESTART}
        is_of_promoted_log = any(
            (self.publisher != before.node and one.explains(before.node, before.at))
            or (self.publisher != now.node and one.explains_again(now.node, now.at))
            for one in near
        )
        return NOT_COUNTED if is_forgotten or is_unread or is_of_promoted_log else COUNTED


@dataclass(slots=True)
class DuplicateBooks(Books):
    """Books that know where and when each message was delivered to live consumers and workers."""

    live: set[bytes] = field(default_factory=set)  # contents that were delivered to them
    last: dict[tuple[str, bytes], Delivery] = field(default_factory=dict)  # by topic and id
    again: list[Duplicate] = field(default_factory=list)
    kept_again: list[bytes] = field(default_factory=list)  # ids of duplicates when all was drained
    per_node: Counter[int] = field(default_factory=Counter)  # deliveries
    retries: int = 0  # of publishers that name themselves

    def note(self, topic: str, message_id: bytes, content: bytes, publisher: int, delivery: Delivery) -> None:
        """Note a delivery by the node that has published the message, or another one."""
        with self._lock:
            key = topic, message_id
            self.live.add(content)
            self.per_node[delivery.node] += 1
            if key in self.last:
                before, delivery = sorted((self.last[key], delivery), key=attrgetter("at"))
                self.again.append(Duplicate(publisher, message_id, before, delivery))
            self.last[key] = delivery

    def finished_at(self, node: int, topic: str, message_id: bytes, content: bytes) -> None:
        """Note a message of NSQ's protocol that was delivered, and is finished now."""
        self.came_live(topic, message_id, content)
        self.note(topic, message_id, content, int(message_id[:4], 16), Delivery(node, time.monotonic()))

    def worked_at(self, delivery: Delivery, job_id: bytes, content: bytes) -> None:
        """Note a job that was reserved, when the reply to its `delete` has come, or none. A paused node replies late."""
        topic = jobs_of(content)
        self.came_live(topic, job_id, content)
        self.note(topic, job_id, content, int(job_id) >> 48, delivery)
        with self._lock:
            self.delivered.add(content)

    def came_last(self, topic: str, message_id: bytes, content: bytes) -> None:
        with self._lock:
            if content in self.delivered:
                self.kept_again.append(message_id)
        super(DuplicateBooks, self).came_last(topic, message_id, content)

    def never_came_live(self) -> list[bytes]:
        """Return what was acknowledged and did not come to a live consumer or worker."""
        return sorted(self.acknowledged.keys() - self.live)

    def begin_round(self) -> None:
        """Forget the duplicates of earlier rounds."""
        with self._lock:
            self.again.clear()
            self.kept_again.clear()

    def explained(self, disturbances: list[Disturbance], counted: int) -> tuple[Counter[str], list[str]]:
        """Return how many duplicates there are of each kind, and those that nothing explains.

        `counted`: the possible duplicates that nodes have counted meanwhile.
        """
        found, wrong = Counter[str](), []
        for duplicate in self.again:
            kind = duplicate.kind(disturbances)
            found[kind] += 1
            if not kind or (kind == COUNTED and found[kind] > counted):
                wrong.append(str(duplicate))
        found[COUNTED] += len(self.kept_again)
        if found[COUNTED] > counted:
            wrong += [f"{message_id!r} was kept twice" for message_id in self.kept_again]
        return found, wrong


class Counts:
    """How many possible duplicates all nodes have counted in a round. Threads add to it."""

    def __init__(self) -> None:
        self.counted = 0
        self._known = Counter[tuple[object, ...]]()  # by run of a node, the log into which it publishes, and reason
        self._lock = threading.Lock()

    def add(self, node: int, run: int, figures: Mapping[str, Any]) -> None:
        """Add what a node has counted since the last time. `run`: differs for each of its processes; `figures`: of /cluster."""
        led = figures.get("led", ())
        if not led or "failovers" not in figures:
            return  # it is about to serve
        with self._lock:
            for reason, count in figures["failovers"]["possible_duplicates"].items():
                key = node, run, led[0]["log_id"], reason  # a node that gets another log counts from 0
                self.counted += max(0, count - self._known[key])
                self._known[key] = max(count, self._known[key])


class CountsReader(Client):
    """Reads what a node counts again and again, because a node that is killed forgets it."""

    def __init__(self, node: int, daemon: Callable[[], Daemon], counts: Counts) -> None:
        super().__init__(node, daemon)
        self._counts = counts

    def talk(self) -> None:
        daemon = self.daemon_of()
        with http_client(daemon) as client:
            while not self.stopped.wait(_PAUSE):
                answer = client.get("/cluster")
                if answer.status_code == 200:
                    self._counts.add(self.node, daemon.process.pid, answer.json())

"""The books of a round of failovers: who delivered what, when it was finished, and why a message was delivered twice.

A duplicate is a delivery to a live consumer, or to a worker, of what one of them had finished before. Each must follow from a
disturbance near the node that finished it. Then it is one of the possible duplicates that nodes count, or one of those that
docs/explanation/guarantees.md#counts-of-possible-duplicates says are not counted. A count explains no more duplicates than it
says.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from tests.daemons import Daemon
from tests.processes.cluster_load import Books, Client, http_client, jobs_of

LAG = 3.0  # s before a node was lost in which a finish at this node may not have reached the others
KILL, RESTART, RETURN = "a kill", "a restart", "a return"
_PAUSE = 0.3  # s between two looks at the counts of a node

AT_FORMER_LEADER = "untold", "unfinished", "moved", "moved_all"
AT_NEW_LEADER = "ready_again", "unclean", "salvaged"
UNREAD = "a finish that a node did not read before it stopped"
UNANSWERED = "a worker got no DELETED for its job"
IN_FLIGHT = "not counted: in flight at a kill of its node, which kept its log"
LAST_MOMENTS = "not counted: delivered in the last moments of a node that was killed"
OF_PROMOTED_LOG = "not counted: finished at a new leader that was lost or cut off, or delivered by it"
FORGOTTEN = "not counted: the node that counted was killed"


@dataclass(frozen=True)
class Disturbance:
    """Something that makes other nodes take over the log of a node, or makes the node give up those that it has taken over."""

    kind: str
    nodes: frozenset[int]
    at: float  # s, monotonic
    until: float = float("inf")  # when it was over, for the node that has finished something

    def explains(self, node: int, at: float) -> bool:
        """Return True if others may not know what a node finished then, or the node did not read it before it stopped."""
        return node in self.nodes and self.at - LAG <= at < self.until

    def explains_again(self, node: int, at: float) -> bool:
        """Return True if a partitioned node may have delivered messages then, before it knew the new leader.

        A node that returns may be in that case, too, if its log is promoted when it has asked others, and is about to serve.
        """
        return self.kind not in (KILL, RESTART) and node in self.nodes and self.at <= at < self.until


@dataclass(frozen=True)
class Delivery:
    """A delivery to a live consumer or worker."""

    node: int
    at: float  # s, monotonic
    is_finished: bool = True  # False: the worker got no DELETED


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


@dataclass(slots=True)
class DuplicateBooks(Books):
    """Books that know where and when each message was delivered to live consumers and workers."""

    live: set[bytes] = field(default_factory=set)  # contents that were delivered to them
    last: dict[tuple[str, bytes], Delivery] = field(default_factory=dict)  # by topic and id
    again: list[Duplicate] = field(default_factory=list)
    kept_again: list[bytes] = field(default_factory=list)  # ids of duplicates when all was drained
    per_node: Counter[int] = field(default_factory=Counter)  # deliveries
    killed: dict[int, float] = field(default_factory=dict)  # nodes of whose messages none was delivered elsewhere since
    waits: list[float] = field(default_factory=list)  # s from a kill to the first delivery of what that node published
    retries: int = 0  # of publishers that name themselves

    def note(self, topic: str, message_id: bytes, content: bytes, publisher: int, delivery: Delivery) -> None:
        """Note a delivery by the node that has published the message, or another one."""
        with self._lock:
            key = topic, message_id
            self.live.add(content)
            self.per_node[delivery.node] += 1
            if key in self.last:
                self.again.append(Duplicate(publisher, message_id, self.last[key], delivery))
            self.last[key] = delivery
            if publisher != delivery.node and publisher in self.killed:
                self.waits.append(delivery.at - self.killed.pop(publisher))

    def finished_at(self, node: int, topic: str, message_id: bytes, content: bytes) -> None:
        """Note a message of NSQ's protocol that was delivered, and is finished now."""
        self.came_live(topic, message_id, content)
        self.note(topic, message_id, content, int(message_id[:4], 16), Delivery(node, time.monotonic()))

    def worked_at(self, node: int, job_id: bytes, content: bytes, is_deleted: bool) -> None:
        """Note a job that was reserved; `is_deleted`: the worker got DELETED."""
        topic = jobs_of(content)
        self.came_live(topic, job_id, content)
        self.note(topic, job_id, content, int(job_id) >> 48, Delivery(node, time.monotonic(), is_deleted))
        with self._lock:
            self.delivered.add(content)

    def came_last(self, topic: str, message_id: bytes, content: bytes) -> None:
        with self._lock:
            if content in self.delivered:
                self.kept_again.append(message_id)
        super(DuplicateBooks, self).came_last(topic, message_id, content)

    def was_killed(self, node: int) -> None:
        """Measure from now on how long it takes until another node delivers what this one has published."""
        with self._lock:
            self.killed[node] = time.monotonic()

    def is_back(self, node: int) -> None:
        """Measure no longer."""
        with self._lock:
            self.killed.pop(node, None)

    def never_came_live(self) -> list[bytes]:
        """Return what was acknowledged and did not come to a live consumer or worker."""
        return sorted(self.acknowledged.keys() - self.live)

    def begin_round(self) -> None:
        """Forget the duplicates and times of earlier rounds."""
        with self._lock:
            self.again.clear()
            self.kept_again.clear()
            self.killed.clear()
            self.waits.clear()

    def explained(
        self, disturbances: Iterable[Disturbance], counts: Mapping[tuple[int, str], int]
    ) -> tuple[Counter[str], list[str]]:
        """Return how many duplicates there are for each reason, and those that nothing explains.

        `counts`: the possible duplicates that nodes have counted meanwhile, by node and reason.
        """
        left, disturbances = Counter(counts), list(disturbances)
        found, wrong = Counter[str](), []
        for one in self.again:
            if reason := _reason(one, disturbances, left):
                found[reason] += 1
            else:
                wrong.append(str(one))
        for message_id in self.kept_again:
            if counter := next(
                (key for key in left if key[1] in ("moved", "moved_all", "unclean") and left[key]), None
            ):
                left[counter] -= 1
                found[f"kept messages, counted as {counter[1]}"] += 1
            else:
                wrong.append(f"{message_id!r} was kept twice")
        return found, wrong


def _reason(one: Duplicate, disturbances: list[Disturbance], left: Counter[tuple[int, str]]) -> str:
    """Return why a message was delivered twice, and take one off the count that says so; "": nothing explains it."""
    before, now = one.before, one.now
    near = [
        each for each in disturbances if each.explains(before.node, before.at) or each.explains_again(now.node, now.at)
    ]
    kinds = {each.kind for each in near}
    if not kinds:
        return ""
    if not before.is_finished:
        return UNANSWERED
    if kinds == {RESTART}:
        return UNREAD
    keys = [(now.node, reason) for reason in AT_NEW_LEADER]
    keys += [(node, reason) for node in (before.node, now.node) for reason in AT_FORMER_LEADER]
    if counter := next((key for key in keys if left[key] > 0), None):
        left[counter] -= 1
        return f"counted as {counter[1]}"
    if one.publisher != before.node and any(each.explains(before.node, before.at) for each in near):
        return OF_PROMOTED_LOG
    if one.publisher != now.node and any(each.explains_again(now.node, now.at) for each in near):
        return OF_PROMOTED_LOG
    if any(each.kind == KILL and each.explains(before.node, before.at) for each in near):
        return IN_FLIGHT if now.node == before.node else LAST_MOMENTS
    if any(
        each.kind == KILL and each.nodes & {before.node, now.node} and each.at >= before.at for each in disturbances
    ):
        return FORGOTTEN
    return ""


class Counts:
    """The counts of all nodes in a round: possible duplicates, and replies that were given up. Threads add to it."""

    def __init__(self) -> None:
        self.counted = Counter[tuple[int, str]]()  # by node and reason
        self.given_up = 0  # replies "may be delivered"
        self._known: dict[tuple[object, ...], int] = {}  # by run of a node, the log into which it publishes, and reason
        self._lock = threading.Lock()

    def begin_round(self) -> None:
        with self._lock:
            self.counted.clear()
            self.given_up = 0

    def add(self, node: int, run: int, figures: Mapping[str, Any]) -> None:
        """Add what a node has counted since the last time. `run`: differs for each of its processes; `figures`: of /cluster."""
        led = figures.get("led", ())
        if not led or "failovers" not in figures:
            return  # it is about to serve
        log_id = led[0]["log_id"]  # a node that gets another log counts from 0
        with self._lock:
            for reason, count in figures["failovers"]["possible_duplicates"].items():
                self.counted[node, reason] += self._news((node, run, log_id, reason), count)
            self.given_up += self._news((node, run, log_id), figures["copies"]["replies_given_up"])

    def _news(self, key: tuple[object, ...], count: int) -> int:
        before = self._known.get(key, 0)
        self._known[key] = max(before, count)
        return max(0, count - before)


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


def times(seconds: list[float]) -> str:
    """Return the median and the longest of some times."""
    if not seconds:
        return "first delivery not measured"
    return (
        f"first delivery after a kill: median {median(seconds):.1f} s, longest {max(seconds):.1f} s of {len(seconds)}"
    )

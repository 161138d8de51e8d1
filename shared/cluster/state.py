"""The state of a replicated cluster: its nodes, the copies of their logs, and whether it is whole. Pure.

`answer` reads what nodes say on /cluster, and `merge` makes this state of all that they say.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import NamedTuple

from shared.counted import counted
from shared.json_fields import JsonObject

LOST, CLOSED = "leader lost", "closed"  # states of a log
UP, DOWN, SUSPECTED, RESTARTING, NO_ANSWER = "up", "down", "suspected", "restarting", "no answer"


@dataclass(frozen=True, slots=True)
class LogCopy:
    """A copy of a node's log on another node."""

    leader: int
    follower: int
    log_id: str
    # in sync, lagging (it was in sync, and has confirmed nothing for a while), catching up, failed, away (the leader has no
    # connection to it); if the leader does not answer, complete or incomplete; unused (the leader does not write to it), other
    # log (the leader has another log now)
    state: str
    behind: int | None  # bytes that the copy lacks, of the log or else of the longest copy; None: unknown
    written: int | None  # position up to which it has the log; None: unknown
    durable: int | None
    failure: str = ""  # the reason, if it failed
    lag_seconds: float | None = None  # age of the oldest byte that it has not confirmed; None: unknown

    @property
    def is_bad(self) -> bool:
        """True if an operator must act: the copy failed, or is not being written though it should be."""
        return self.state in ("failed", "away", "incomplete", "lagging")


@dataclass(frozen=True, slots=True)
class MemberState:
    """A node of the cluster, by its own response or, without one, as the others know it. None where unknown."""

    node: int
    address: str  # where the other nodes reach it
    http_address: str
    asked: str  # the HTTP address at which it answered; "": it did not answer
    state: str  # up, down, suspected, restarting, no answer, left or forgotten
    connected_to: list[int]
    others: int  # members except this node
    suspected_by: list[int]
    copies_possible: int | None  # copies of a message of its topics that are possible now; None: unknown
    copies_wanted: int | None
    replies_given_up: int | None
    last_position: int | None = None  # of a node that is down: how far the longest copy of its log is; None: no copy
    led_by: int | None = None  # the node that leads its log now
    recover: str = ""  # the command that makes its data directory again, if it is down
    knows_configs: bool = True  # False: it takes no messages until it has the topics' configurations from another node
    refusing: list[str] = field(default_factory=list)  # topics that ask for more copies than are possible, some of them
    refusing_count: int = 0

    @property
    def is_bad(self) -> bool:
        """True if an operator must act: no node, or not every node, is connected to this one."""
        return self.state in (DOWN, SUSPECTED)


@dataclass(frozen=True, slots=True)
class Taker:
    """The state of a failover at one node."""

    node: int
    state: str  # candidate, promoting, or "": it waits
    is_clean: bool  # as far as it knows, its copy has everything that was acknowledged
    reason: str  # why its last election failed
    has_copy: bool  # its copy is complete, so it may promote the log

    @property
    def may_promote(self) -> bool:
        """True if an operator can have the node promote the log."""
        return self.has_copy and not self.state

    @property
    def words(self) -> str:
        """Return the text that a page shows."""
        if self.state:
            return f"node {self.node} is {self.state} it"
        copy = "" if self.is_clean else ", its copy may be incomplete" if self.has_copy else ", it has no copy"
        return f"node {self.node} waits{copy}" + (f": {self.reason}" if self.reason else "")


@dataclass(slots=True)
class LogState:
    """A log, its leader, and the copies of it on other nodes."""

    log_id: str
    node: int | None  # that publishes or has published into it; None: unknown
    leader: int | None  # the node that leads it, or led it last; None: unknown, or it is closed
    # the state at the leader (serving if all is well), leader lost, or closed (all its messages are finished)
    state: str
    takers: list[Taker] = field(default_factory=list)
    also_led_by: list[int] = field(default_factory=list)
    replicas: list[int] = field(default_factory=list)  # the other nodes that have all of it
    batches: int = 0  # that are not done: they keep a promoted log, even one without messages

    @property
    def able(self) -> list[Taker]:
        """The nodes that an operator can have promote the log."""
        return [one for one in self.takers if one.may_promote] if self.state == LOST else []

    @property
    def is_bad(self) -> bool:
        """True if an operator must act, or soon would."""
        return self.state in (LOST, "failed")


@dataclass(frozen=True, slots=True)
class Refusal:
    """A node that another one does not accept, or that does not accept it."""

    by: int
    node: int
    address: str
    reason: str


class Problem(NamedTuple):
    """An issue of a cluster for an operator."""

    subject: str  # the node, log or copy
    kind: str  # distinguishes it from other issues of the same subject
    words: str  # may differ in each response
    is_critical: bool = True


@dataclass(slots=True)
class ClusterState:
    """A cluster: its nodes by number, the copies of their logs, and contradictions between answers."""

    name: str
    nodes: list[MemberState] = field(default_factory=list)
    copies: list[LogCopy] = field(default_factory=list)
    logs: list[LogState] = field(default_factory=list)
    logs_left_out: int = 0
    refused: list[Refusal] = field(default_factory=list)
    nodes_left_out: int = 0
    copies_left_out: int = 0
    issues: list[str] = field(default_factory=list)
    quorum: str = ""  # whose votes a promotion needs: majority, any, none; "": unknown

    def json(self) -> JsonObject:
        """Return the cluster in the form of /api/cluster."""
        return asdict(self)

    def problems(self) -> Iterator[Problem]:
        """Yield the problems that an operator should know."""
        for one in self.nodes:
            subject = f"node {one.node} of cluster {self.name}"
            if one.is_bad:
                served = f"; node {one.led_by} leads its log now" if one.led_by is not None else ""
                yield Problem(subject, one.state, f"it is {one.state}{served}", is_critical=not served)
            if words := shortage(one):
                yield Problem(subject, "few copies", words, is_critical=False)
        for log in self.logs:
            if log.is_bad:
                node = "an unknown node" if log.node is None else f"node {log.node}"
                yield Problem(f"log of {node}", "not served", f"it is not served: {log.state} (node {log.leader})")
        for copy in self.copies:
            subject = f"copy of the log of node {copy.leader} at node {copy.follower}"
            if copy.state == "failed":
                yield Problem(subject, "failed", copy.failure or "it cannot be made")
            elif copy.state == "lagging":
                yield Problem(
                    subject, "lagging", f"it has confirmed nothing for {copy.lag_seconds or 0:.0f} s", is_critical=False
                )


@dataclass(slots=True)
class ClusterStates:
    """All clusters, by name, and the errors of invalid answers."""

    errors: list[str] = field(default_factory=list)
    clusters: list[ClusterState] = field(default_factory=list)


def shortage(one: MemberState) -> str:
    """Return the effect on topics if fewer copies are possible than the node's followers would allow, or ""."""
    possible, wanted = one.copies_possible, one.copies_wanted
    if possible is None or wanted is None or possible >= wanted:
        return ""
    return f"only {counted(possible, 'copy')} possible now; topics that need {possible + 1} or more reject publishes"

"""The logs of a cluster that have a topic, and the nodes at which they can be read.

A log is read at its leader; if it has none, because its node is lost and no node has promoted the log, at a node with a
replica. A log that continues another one, because its node was restored or lost its log to a new leader, has the messages from
its own first one on, and the other log has the earlier ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

MOST_NODES, MOST_LOGS = 64, 256
_KINDS = {"own": 0, "promoted": 1, "replica": 2}  # the best first

# Sends a GET to the node at an address. Returns the JSON of its response; None for an error, or no response.
Ask = Callable[[str, str, dict[str, str]], Any]


@dataclass(frozen=True, slots=True)
class LogAt:
    """A topic in one log, and a node that has it."""

    address: str  # HTTP address of the node
    log: str  # as in /topic/offsets
    kind: str  # own, promoted or replica
    origin: int  # number of the node that published into the log
    first: int
    next: int
    parents: tuple[str, ...] = ()  # the logs that it continues, the oldest first

    @property
    def log_id(self) -> str:
        """Return the id of the log, without the topic's number."""
        return self.log.partition("-")[0]


def members(ask: Ask, address: str) -> list[str]:
    """Return the HTTP addresses of all members of a node's cluster that it does not suspect, that of the node itself first."""
    cluster = _object(ask(address, "/cluster", {}))
    others = [node for node in _objects(cluster, "nodes") if node.get("node") != cluster.get("node")]
    alive = [node for node in others if node.get("standing") == "member" and not node.get("suspected")]
    found = [node["http_address"] for node in alive if node.get("http_address")]
    return list(dict.fromkeys([address, *map(str, found)]))[:MOST_NODES]


def log_at(ask: Ask, address: str, topic: str, log: str = "") -> LogAt | None:
    """Return a topic in a log at a node; without `log`, in the one into which the node publishes. None if it has none."""
    found = _object(ask(address, "/topic/offsets", {"topic": topic} | ({"log": log} if log else {})))
    parents = tuple(str(parent.get("log")) for parent in _objects(found, "parents"))
    try:
        first, following, origin = int(found["first"]), int(found["next"]), int(found["origin"])
        return LogAt(address, str(found["log"]), str(found["kind"]), origin, first, following, parents)
    except (KeyError, TypeError, ValueError):
        return None


def find_log(ask: Ask, addresses: Iterable[str], topic: str, log: str) -> LogAt | None:
    """Return the best node for a topic in one log; None if no node has that log, or it has no such topic."""
    found = [one for address in addresses if (one := log_at(ask, address, topic, log)) is not None]
    return best(one for one in found if log in (one.log, one.log_id))


def logs_of(ask: Ask, addresses: Iterable[str], topic: str) -> list[LogAt]:
    """Return all logs that have a topic, each once."""
    found: dict[str, list[LogAt]] = {}
    for address in addresses:
        cluster = _object(ask(address, "/cluster", {}))
        others = {str(one.get("log_id")) for name in ("led", "replicas") for one in _objects(cluster, name)}
        for log in ["", *sorted(others)[:MOST_LOGS]]:
            one = log_at(ask, address, topic, log)
            if one is not None and (not log or one.log_id == log):
                found.setdefault(one.log, []).append(one)
    return without_repeats([one for copies in found.values() if (one := best(copies)) is not None])


def best(found: Iterable[LogAt]) -> LogAt | None:
    """Return the best of several copies of a log: its leader's, or else the longest replica."""
    return min(found, key=lambda one: (_KINDS.get(one.kind, 3), -one.next, one.address), default=None)


def without_repeats(logs: list[LogAt]) -> list[LogAt]:
    """Return the logs that have messages, without the messages that a log that continues them has, too."""
    ends = {one.log: one.next for one in logs}
    for one in logs:
        for parent in one.parents:
            ends[parent] = min(ends.get(parent, one.first), one.first)
    return [replace(one, next=ends[one.log]) for one in logs if one.first < ends[one.log]]


def _object(answer: Any) -> dict[str, Any]:
    return answer if isinstance(answer, dict) else {}


def _objects(answer: dict[str, Any], name: str) -> list[dict[str, Any]]:
    """Return the objects in a list of an answer."""
    found = answer.get(name)
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []

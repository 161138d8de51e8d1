"""The logs of a cluster that have a topic: where each can be read, whether its node lives or not.

A log is read at the node that leads it; if nobody does, because its node is lost and nobody has promoted the log, at one that
has a replica. A log that continues another one, because its node was restored or lost its log to a new leader, has the messages
from its own first one on, and the other one those before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

MOST_NODES, MOST_LOGS = 64, 256
_KINDS = {"own": 0, "promoted": 1, "replica": 2}  # the best first

# Sends a GET to the node at an address. Returns its answer, which is JSON; None: it has answered with an error, or not at all.
Ask = Callable[[str, str, dict[str, str]], Any]


@dataclass(frozen=True, slots=True)
class LogAt:
    """A topic in one log, and a node that has it."""

    address: str  # HTTP address of the node
    log: str  # as /topic/offsets tells it
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
    told = _object(ask(address, "/cluster", {}))
    others = [
        one for one in _objects(told, "nodes") if one.get("node") != told.get("node") and not one.get("suspected")
    ]
    found = [one["http_address"] for one in others if one.get("standing") == "member" and one.get("http_address")]
    return list(dict.fromkeys([address, *map(str, found)]))[:MOST_NODES]


def log_at(ask: Ask, address: str, topic: str, log: str = "") -> LogAt | None:
    """Return a topic in a log at a node; without `log`, in the one into which the node publishes. None: it has not got it."""
    told = _object(ask(address, "/topic/offsets", {"topic": topic} | ({"log": log} if log else {})))
    parents = tuple(str(one.get("log")) for one in _objects(told, "parents"))
    try:
        first, following, origin = int(told["first"]), int(told["next"]), int(told["origin"])
        return LogAt(address, str(told["log"]), str(told["kind"]), origin, first, following, parents)
    except (KeyError, TypeError, ValueError):
        return None


def find_log(ask: Ask, addresses: Iterable[str], topic: str, log: str) -> LogAt | None:
    """Return where a topic in one log is best read; None: nobody has that log, or it has no such topic."""
    found = [one for address in addresses if (one := log_at(ask, address, topic, log)) is not None]
    return best(one for one in found if log in (one.log, one.log_id))


def logs_of(ask: Ask, addresses: Iterable[str], topic: str) -> list[LogAt]:
    """Return all logs that have a topic, each once."""
    found: dict[str, list[LogAt]] = {}
    for address in addresses:
        told = _object(ask(address, "/cluster", {}))
        others = {str(one.get("log_id")) for name in ("led", "replicas") for one in _objects(told, name)}
        for log in ["", *sorted(others)[:MOST_LOGS]]:
            one = log_at(ask, address, topic, log)
            if one is not None and (not log or one.log_id == log):
                found.setdefault(one.log, []).append(one)
    return without_repeats([one for those in found.values() if (one := best(those)) is not None])


def best(found: Iterable[LogAt]) -> LogAt | None:
    """Return where to read a log of which several nodes have something: at its leader, or else the longest replica."""
    return min(found, key=lambda one: (_KINDS.get(one.kind, 3), -one.next, one.address), default=None)


def without_repeats(logs: list[LogAt]) -> list[LogAt]:
    """Return logs without what another one has, too, that continues them. Those that are left have messages."""
    ends = {one.log: one.next for one in logs}
    for one in logs:
        for parent in one.parents:
            ends[parent] = min(ends.get(parent, one.first), one.first)
    return [replace(one, next=ends[one.log]) for one in logs if one.first < ends[one.log]]


def _object(told: Any) -> dict[str, Any]:
    return told if isinstance(told, dict) else {}


def _objects(told: dict[str, Any], name: str) -> list[dict[str, Any]]:
    """Return the objects in a list of an answer."""
    found = told.get(name)
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []

"""Find the nodes that have a log when its node is gone or publishes into another one: its new leader, or those with a replica.

In a cluster every node is asked, not only those that the user has named: any member may be the new leader.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from penstock.spark.ask import Asker, Refused, Unreachable
from penstock.spark.nodes import NoAnswer, Nodes, range_of
from penstock.spark.offsets import PROMOTED, LogPosition, NodeTopic, TopicRange

MOST_NODES = 64  # that are asked
_HAS_NOT = ("OTHER_LOG", "LOG_NOT_FOUND", "TOPIC_NOT_FOUND", "NOT_FOUND")


@dataclass(frozen=True, slots=True)
class Lost:
    """The nodes that were lost, as some nodes know."""

    # topics in logs of other nodes that a node leads: the logs of each place, the oldest first
    logs: dict[NodeTopic, list[TopicRange]] = field(default_factory=dict)
    # those whose log no node leads: the address of each, by its number
    nodes: dict[str, str] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)  # requests that were refused


def find_lost(asker: Asker, addresses: Iterable[str], is_wanted: Callable[[str], object]) -> Lost:
    """Ask nodes for logs of other nodes, with the topics whose name is wanted. Those that do not answer are passed over."""
    lost, suspects, led = Lost(), dict[tuple[str, str], str](), set[tuple[str, str]]()
    for address in addresses:
        try:
            for log in asker.json(address, "/topics/offsets", {}).get("promoted", ()):
                for one in log["topics"]:
                    if one["retained"] and is_wanted(one["topic"]):
                        place = NodeTopic(one["topic"], str(log["node"]))
                        lost.logs.setdefault(place, []).append(range_of(address, one | {"kind": PROMOTED}))
            answer = asker.json(address, "/cluster", {})
        except Unreachable:
            continue
        except Refused as refused:
            if refused.status != 404:  # it is in no cluster
                lost.failures.append(str(refused))
            continue
        led |= {(node, log) for log, node in _led(answer)}
        for one in _objects(answer, "nodes"):
            if one.get("standing") == "member" and one.get("suspected") is True:
                suspects[str(one.get("node")), str(one.get("log_id"))] = str(one.get("http_address"))
    lost.nodes.update({node: at for (node, log), at in suspects.items() if (node, log) not in led})
    for logs in lost.logs.values():
        logs.sort(key=lambda one: (len(one.parents), one.first))
    return lost


class Holders:
    """The nodes that may have a log, for one round of requests: it waits once for a node that does not answer."""

    def __init__(self, asker: Asker, nodes: Nodes) -> None:
        self._asker = asker
        self._nodes = nodes
        self._addresses: list[str] | None = None  # of all nodes; None: not known yet
        self._silent: dict[str, str] = {}  # addresses that do not answer, each with the reason
        # ids of the logs that other nodes lead, by the node that published into them
        self._promoted: dict[str, set[str]] = {}

    def of(self, topic: str, log: str) -> tuple[list[TopicRange], list[str]]:
        """Return the messages of a topic and log on each node, and why some nodes that may have them could not be asked."""
        if self._addresses is None:
            self._addresses = self._all_addresses(topic)
        found, failures = [], []
        for address in self._addresses:
            if address in self._silent:
                failures.append(self._silent[address])
                continue
            try:
                answer = self._asker.json(address, "/topic/offsets", {"topic": topic, "log": log})
            except Unreachable as gone:
                self._silent[address] = str(gone)
                failures.append(str(gone))
            except Refused as refused:
                if refused.message not in _HAS_NOT:
                    failures.append(str(refused))
            else:
                found.append(range_of(address, answer))
        return found, failures

    def later(self, place: NodeTopic, at: LogPosition) -> TopicRange | None:
        """Return the messages after a position in the next log of a node that is gone, into which it published for a while.

        Call `of` before: it finds the logs that have new leaders.
        """
        logs = self._promoted.get(place.node, set()) - {at.log.partition("-")[0]}
        found = [one for log in sorted(logs) for one in self.of(place.topic, log)[0] if one.continues(at)]
        return min((one for one in found if one.first <= at.next < one.next), key=lambda one: one.next, default=None)

    def _all_addresses(self, topic: str) -> list[str]:
        """Return the HTTP addresses of the nodes that the user has named, and of all members of their clusters."""
        found: dict[str, None] = {}
        for named in (topic, ""):
            try:
                found |= dict.fromkeys(self._nodes.addresses(self._asker, named))
            except NoAnswer:
                continue
        suspected, others = dict[str, bool](), list[str]()
        for address in found:
            try:
                answer = self._asker.json(address, "/cluster", {})
            except Unreachable as gone:
                self._silent[address] = str(gone)
            except Refused:
                continue
            else:
                for log, node in _led(answer):
                    self._promoted.setdefault(node, set()).add(log)
                for other, is_suspected in _members(answer):
                    others.append(other)
                    suspected[other] = suspected.get(other, True) and is_suspected
        for other in others:
            if suspected[other]:  # a request to a machine that is gone would take half a minute
                self._silent.setdefault(other, f"{other} does not answer the other nodes")
        return list(found | dict.fromkeys(others))[:MOST_NODES]


def _led(answer: object) -> Iterator[tuple[str, str]]:
    """Yield the id of each log that a node leads, and the number of the node that published into it."""
    for one in _objects(answer, "led"):
        yield str(one.get("log_id")), str(one.get("node"))


def _members(answer: object) -> Iterator[tuple[str, bool]]:
    """Yield the address of each member of /cluster, and whether it is suspected to be lost.

    Those that have left or were forgotten are passed over.
    """
    for one in _objects(answer, "nodes"):
        if one.get("standing") == "member" and one.get("http_address"):
            yield str(one["http_address"]), one.get("suspected") is True


def _objects(answer: object, name: str) -> list[dict[str, Any]]:
    """Return the objects of a list in an answer."""
    found = answer.get(name) if isinstance(answer, dict) else None
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []

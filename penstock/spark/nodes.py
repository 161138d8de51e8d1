"""Find the nodes that have the topics, and the messages that each of them has."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from penstock.spark.ask import Asker, Refused, Unreachable
from penstock.spark.offsets import OWN, REPLICA, LogPosition, NodeTopic, TopicRange


class NoAnswer(Exception):
    """No node or no nsqlookupd answered; one line says which and why."""


class Nodes:
    """The nodes that a user names, or those that the named nsqlookupds know."""

    def __init__(self, nsqd: tuple[str, ...], lookupd: tuple[str, ...]) -> None:
        self._nsqd = nsqd
        self._lookupd = lookupd

    def addresses(self, asker: Asker, topic: str = "") -> list[str]:
        """Return the HTTP addresses of the nodes that have the topic, or of all nodes.

        One nsqlookupd that answers is enough. Raises NoAnswer if none does.
        """
        if self._nsqd:
            return list(self._nsqd)
        found: dict[str, None] = {}
        failures = []
        for lookupd in self._lookupd:
            try:
                answer = asker.json(lookupd, "/lookup" if topic else "/nodes", {"topic": topic} if topic else {})
            except (Refused, Unreachable) as failure:
                if not isinstance(failure, Refused) or failure.status != 404:
                    failures.append(str(failure))
            else:
                found |= dict.fromkeys(map(_address, _producers(answer)))
        if len(failures) == len(self._lookupd):
            raise NoAnswer(f"no nsqlookupd answered: {'; '.join(failures)}")
        return list(found)

    def matching(
        self, asker: Asker, addresses: Iterable[str], is_wanted: Callable[[str], object]
    ) -> tuple[dict[NodeTopic, TopicRange], dict[str, str], list[str]]:
        """Return the messages of all topics whose name is wanted, with one request for each node.

        Also returns the address of each node that answered, by its number, and why others did not. Raises NoAnswer if two nodes
        with different logs have the same number.
        """
        ranges: dict[NodeTopic, TopicRange] = {}
        answered: dict[str, str] = {}
        failures = []
        for address in addresses:
            try:
                answer = asker.json(address, "/topics/offsets", {})
            except (Refused, Unreachable) as failure:
                failures.append(str(failure))
                continue
            node = str(answer["node"])
            if answered.setdefault(node, address) != address and not _has_same_log(ranges, node, answer["topics"]):
                raise NoAnswer(_same_number(address, answered[node], node))
            for one in answer["topics"]:
                if is_wanted(one["topic"]):
                    ranges[NodeTopic(one["topic"], node)] = range_of(address, one)
        return ranges, answered, failures

    def without(self, asker: Asker, place: NodeTopic) -> str:
        """Return the address of the place's node if that answers, and no longer has the topic; "" otherwise.

        nsqlookupd names no node for such a topic, so all nodes are asked. Raises NoAnswer if no nsqlookupd answers.
        """
        for address in self.addresses(asker):
            try:
                asker.json(address, "/topic/offsets", {"topic": place.topic})
            except Unreachable:
                continue
            except Refused as refused:
                if refused.message == "TOPIC_NOT_FOUND" and refused.headers.get("x-nsq-node") == place.node:
                    return address
        return ""

    def ranges_of(self, asker: Asker, topics: Iterable[str]) -> tuple[dict[NodeTopic, TopicRange], list[str]]:
        """Return the messages of the topics on each node, and the reasons why some nodes could not be asked.

        Raises NoAnswer if no nsqlookupd answers, or if two nodes with different logs have the same number.
        """
        ranges: dict[NodeTopic, TopicRange] = {}
        failures: list[str] = []
        for topic in topics:
            for address in self.addresses(asker, topic):
                try:
                    answer = asker.json(address, "/topic/offsets", {"topic": topic})
                except Unreachable as gone:
                    failures.append(str(gone))
                except Refused as refused:
                    if refused.message == "NOT_FOUND":
                        failures.append(f"{address} has no log: use option mode=channel to read one of its channels")
                    elif refused.message != "TOPIC_NOT_FOUND":
                        failures.append(str(refused))
                else:
                    place = NodeTopic(topic, str(answer["node"]))
                    if place in ranges and ranges[place].address != address and ranges[place].log != answer["log"]:
                        raise NoAnswer(_same_number(address, ranges[place].address, place.node))
                    ranges[place] = range_of(address, answer)
        return ranges, failures


def range_of(address: str, answer: Any) -> TopicRange:
    """Convert the JSON of a topic in /topic/offsets or /topics/offsets from the node at `address`."""
    parents = tuple((str(one["log"]), int(one["next"])) for one in answer.get("parents", ()))
    kind = str(answer.get("kind", OWN))
    return TopicRange(
        address, answer["log"], answer["first"], answer["next"], parents, kind, answer.get("retained", True)
    )


def _has_same_log(ranges: Mapping[NodeTopic, TopicRange], node: str, topics: Iterable[Any]) -> bool:
    known = (ranges.get(NodeTopic(one["topic"], node)) for one in topics)
    return all(one is None or one.log == other["log"] for one, other in zip(known, topics, strict=True))


def _same_number(address: str, other: str, node: str) -> str:
    return f"{address} and {other} are both node {node}: give one of them another -node-id"


def move_cursors(
    asker: Asker, ranges: Mapping[NodeTopic, TopicRange], to: Mapping[NodeTopic, LogPosition], name: str, hold: str
) -> list[str]:
    """Move the named cursor of each place, and return the reasons for which some were not moved.

    A place is passed over if its node is unknown or has another log, or only a replica of it. A cursor that stays behind does
    no harm.
    """
    failures = []
    for place, at in to.items():
        one = ranges.get(place)
        if one is None or one.log != at.log or one.kind == REPLICA:
            continue
        arguments = {"topic": place.topic, "name": name, "to": str(at.next), "log": at.log}
        if hold:
            arguments["hold"] = hold
        try:
            asker.post(one.address, "/topic/cursor", arguments)
        except (Unreachable, Refused) as error:
            failures.append(str(error))
    return failures


def _address(producer: dict[str, Any]) -> str:
    host = str(producer["broadcast_address"])
    return f"{f'[{host}]' if ':' in host else host}:{producer['http_port']}"


def _producers(answer: Any) -> list[dict[str, Any]]:
    found = answer.get("producers") if isinstance(answer, dict) else None
    return [one for one in found or [] if isinstance(one, dict) and "broadcast_address" in one and "http_port" in one]

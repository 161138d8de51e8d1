"""The connections that publish to a topic, as /stats of any nsqd lists them, with their rates. Pure; nodes may lie."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from heapq import nsmallest

from shared.json_fields import JsonObject, number, objects, text

MOST_PUBLISHERS = 100  # shown of a topic
MOST_READ = 10_000  # connections in the answer of one node
_LONGEST = 255  # characters of a field


@dataclass(frozen=True, slots=True)
class Publisher:
    """A connection that has published to a topic."""

    node: str  # address
    address: str  # of the client
    client: str  # its host name or id
    identity: str  # of the auth file or authorization server; "": unknown
    user_agent: str
    messages: int  # to this topic since it connected
    connected: int  # s since the epoch
    rate: float | None = None  # messages per second; None: not known yet

    @property
    def name(self) -> str:
        """The client, identity and address in one text."""
        client = self.client if self.client != self.address.rpartition(":")[0] else ""
        return " ".join(filter(None, (self.identity, client, self.address)))


def arguments_for(topic: str) -> dict[str, str]:
    """Return the arguments of /stats that list the publishers of a topic, and of its channels at most one named "-"."""
    return {"format": "json", "topic": topic, "channel": "-"}


def publishers_of(answers: Mapping[str, JsonObject], topic: str) -> list[Publisher]:
    """Return the publishers of a topic on all nodes. `answers`: those of /stats, by address of the node."""
    found = []
    for node, answer in answers.items():
        for one in objects(answer.get("producers"))[:MOST_READ]:
            counts = (each for each in objects(one.get("pub_counts"))[:10] if text(each.get("topic")) == topic)
            if (count := next(counts, None)) is not None:
                found.append(_publisher(node, one, max(0, number(count.get("count")))))
    return found


def with_publish_rates(now: list[Publisher], before: list[Publisher], seconds: float) -> list[Publisher]:
    """Return the MOST_PUBLISHERS fastest publishers, the first one first. `seconds`: since `before`; 0: there is none.

    A connection that is new has published all of its messages within that time.
    """
    known = {(one.node, one.address, one.connected): one.messages for one in before}
    rated = [
        replace(one, rate=max(0, one.messages - known.get((one.node, one.address, one.connected), 0)) / seconds)
        if seconds > 0
        else one
        for one in now
    ]
    return nsmallest(MOST_PUBLISHERS, rated, key=lambda one: (-(one.rate or 0), -one.messages, one.name, one.node))


def _publisher(node: str, one: JsonObject, messages: int) -> Publisher:
    names = ("hostname", "auth_identity", "user_agent", "remote_address", "client_id")
    host, identity, agent, address, client_id = (text(one.get(name))[:_LONGEST] for name in names)
    return Publisher(node, address, host or client_id, identity, agent, messages, max(0, number(one.get("connect_ts"))))

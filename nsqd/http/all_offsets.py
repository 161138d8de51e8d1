"""GET /topics/offsets: what can be read back of every topic, in one answer, for readers that follow many topics.

    {"node": N, "topics": [{"topic", "log", "first", "next", "retained"}, ...],
     "promoted": [{"node": M, "topics": [...]}, ...]}

The topics are those of the node's own log, by name, without ephemeral ones and those whose names NSQ does not allow. `promoted`
is there if the node leads logs into which other nodes have published, and names those. The fields of a topic are as in
/topic/offsets, also "parents", which is there only for a log that continues others. `retained` is false for a topic whose
finished messages do not stay. The sizes and times of /topic/offsets are not here: they take a visit to each extent.
"""

from itertools import islice
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from nsqd.core.broker import Broker
from nsqd.core.retention.history import History
from nsqd.core.topic import Topic
from nsqd.http.node import Node
from shared.http.api import json_response
from shared.http.route import STATS, Route

BATCH = 200  # topics in one turn: less than a millisecond


class AllOffsets:
    """The route for the offsets of all topics."""

    def __init__(self, node: Node) -> None:
        self._node = node

    def routes(self) -> list[Route]:
        return [Route("GET /topics/offsets", self.offsets, STATS, (), "Return the retained ranges of all topics")]

    async def offsets(self, request: Request) -> Response:
        """Answer the range of each topic that can be read."""
        own, *others = await self._node.bridge.call(lambda: list(self._node.broker.logs))
        answer: dict[str, Any] = await self._log(own, self._node.history)
        promoted = [await self._log(one, one.context.history) for one in others if one.context.history is not None]
        return json_response(answer | ({"promoted": promoted} if promoted else {}))

    async def _log(self, broker: Broker, history: History) -> dict[str, Any]:
        """Return the topics of one log, and the number of the node that published into it."""
        call = self._node.bridge.call
        topics = iter(sorted((await call(lambda: dict(broker.topics))).items()))
        found: list[dict[str, Any]] = []
        while batch := [topic for _, topic in islice(topics, BATCH)]:
            found += await call(lambda batch=batch: self._describe(batch, history))  # type: ignore[misc]
        return {"node": broker.ids.node, "topics": found}

    def _describe(self, topics: list[Topic], history: History) -> list[dict[str, Any]]:
        """Describe the topics of a log that still exist. Runs in the trio thread."""
        policy, found = self._node.broker.limits.policy, []
        for topic in topics:
            if topic.deleted or topic.ephemeral or not topic.legal:
                continue
            window = history.window(topic.number)
            one: dict[str, Any] = {"topic": topic.name, "log": window.log, "first": window.first, "next": window.next}
            one["retained"] = policy.over(topic.config).retains
            if window.parents:
                one["parents"] = [{"log": parent, "next": end} for parent, end in window.parents]
            found.append(one)
        return found

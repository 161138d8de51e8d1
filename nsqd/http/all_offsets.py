"""GET /topics/offsets: what can be read back of every topic, in one answer, for readers that follow many topics.

    {"node": N, "topics": [{"topic", "log", "first", "next", "retained"}, ...]}

The topics are those of the node's own log, by name, without ephemeral ones and those whose names NSQ does not allow. The
fields are as in /topic/offsets, also "parents", which is there only for a log that continues others. `retained` is false for a
topic whose finished messages do not stay. The sizes and times of /topic/offsets are not here: they take a visit to each extent.
"""

from itertools import islice
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

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
        topics = iter(sorted((await self._node.bridge.call(self._topics)).items()))
        found: list[dict[str, Any]] = []
        while batch := [topic for _, topic in islice(topics, BATCH)]:
            found += await self._node.bridge.call(lambda batch=batch: self._describe(batch))  # type: ignore[misc]
        return json_response({"node": self._node.options.node_number(), "topics": found})

    def _topics(self) -> dict[str, Topic]:
        return dict(self._node.broker.topics)

    def _describe(self, topics: list[Topic]) -> list[dict[str, Any]]:
        """Describe the topics that still exist. Runs in the trio thread."""
        history, policy = self._node.history, self._node.broker.limits.policy
        found = []
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

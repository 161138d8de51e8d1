"""The recent activity of a topic or a channel, for charts.

    GET /topic/series?topic=t[&channel=c]

    {"topic": "t", "channel": "c", "hour": {"step": 10, "from": S, "published": [7, null, ...], "finished": [...],
     "requeued": [...], "timed_out": [...], "buried": [...], "depth": [...], "in_flight": [...], "deferred": [...]},
     "day": {"step": 300, ...}}

`from` is when the first step began, s since the epoch; null: nothing is known about that step. `published` counts the messages
that came in a step, to the topic or to the channel; `finished`, `requeued` and `timed_out` are counts of a step, too, and the
others are numbers of messages at its end. Those of a topic are the sums over its channels. A message that is buried does not
count as finished, and counts also as requeued or timed out if that buried it. `hour` and `day` are null until the first step
has ended. Without `channel` it is "" in the answer. 404 TOPIC_NOT_FOUND, CHANNEL_NOT_FOUND.

The node keeps both for up to 50,000 topics and channels, in 64 MB: then a new one takes the place of one that did nothing for
an hour, and the oldest steps of all are forgotten.
"""

from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from nsqd.core.observation.series import Steps
from nsqd.http.arguments import TOPIC, topic_or_channel
from nsqd.http.node import Node
from shared.auth.verbs import Verb
from shared.http.api import json_response
from shared.http.argument import legal_name
from shared.http.route import Route, on_channel


class SeriesRoute:
    """The route for the series of a topic or a channel."""

    def __init__(self, node: Node) -> None:
        self._node = node

    def routes(self) -> list[Route]:
        return [
            Route("GET /topic/series", self.series, on_channel(Verb.STATS), (TOPIC, legal_name("channel", "")),
                  "Return the recent activity of a topic or a channel, for charts"),
        ]  # fmt: skip

    async def series(self, request: Request, topic: str, channel: str) -> Response:
        """Answer the hour and the day. They are unpacked in the HTTP thread."""

        def look() -> tuple[Steps | None, Steps | None]:
            broker, series = self._node.broker, self._node.series
            subject = topic_or_channel(broker, topic, channel)
            return series.hour_of(subject), series.day_of(subject)

        hour, day = await self._node.bridge.observe(look)
        return json_response(
            {"topic": topic, "channel": channel, "day": _describe_steps(day), "hour": _describe_steps(hour)}
        )


def _describe_steps(steps: Steps | None) -> dict[str, Any] | None:
    return {"step": steps.step, "from": steps.first, **steps.columns()} if steps is not None else None

"""What /topic/series answers, of a topic and of one of its channels."""

import asyncio
import json
from types import SimpleNamespace
from typing import Any, cast

import pytest
from starlette.requests import Request

from nsqd.core.observation.series import NAMES, Series
from nsqd.http.node import Node as HttpNode
from nsqd.http.series import SeriesRoute
from shared.http.errors import HttpError
from tests.cases import each
from tests.nsqd.core.node import Node
from tests.nsqd.http.test_stats_in_turn import Bridge

T0 = 1_800_000_000  # s


def ask(node: Node, series: Series, arguments: str) -> dict[str, Any]:
    http_node = cast(HttpNode, SimpleNamespace(broker=node.broker, bridge=Bridge(), series=series))
    request = Request({"type": "http", "method": "GET", "path": "/", "headers": [], "query_string": arguments.encode()})
    answer = asyncio.run(SeriesRoute(http_node).series(request))
    return json.loads(bytes(answer.body))


def test_a_topic_and_its_channels() -> None:
    node, series = Node(), Series()
    node.channel("t", "c")
    node.channel("t", "d")
    assert ask(node, series, "topic=t") == {"topic": "t", "channel": "", "day": None, "hour": None}
    for number in range(2):
        node.publish("t", b"x")
        for _ in series.record(list(node.broker.topics.values()), T0 + number * 10):
            pass
    topic, channel = ask(node, series, "topic=t"), ask(node, series, "topic=t&channel=c")
    hour = {"step": 10, "from": T0 - 10} | {name: [None, 0] for name in NAMES} | {"published": [None, 1]}
    hour |= {"buried": [0, 0], "in_flight": [0, 0], "deferred": [0, 0]}
    assert topic["hour"] == hour | {"depth": [2, 4]}
    assert (channel["channel"], channel["hour"]) == ("c", hour | {"depth": [1, 2]})
    assert (channel["day"]["step"], channel["day"]["from"], channel["day"]["depth"]) == (300, T0 - 300, [1])


@each("arguments, status, text", [
    ("", 400, "MISSING_ARG_TOPIC"), ("topic=missing", 404, "TOPIC_NOT_FOUND"),
    ("topic=t&channel=missing", 404, "CHANNEL_NOT_FOUND"), ("topic=t&channel=", 400, "INVALID_ARG_CHANNEL"),
    ("topic=%20", 400, "INVALID_TOPIC"),
])  # fmt: skip
def test_refusals(arguments: str, status: int, text: str) -> None:
    node = Node()
    node.channel("t", "c")
    with pytest.raises(HttpError) as refused:
        ask(node, Series(), arguments)
    assert (refused.value.status, refused.value.text) == (status, text)

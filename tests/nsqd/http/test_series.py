"""What /topic/series answers, of a topic and of one of its channels."""

from typing import Any

import pytest

from nsqd.core.observation.series import NAMES, Series
from nsqd.http.series import SeriesRoute
from shared.http.errors import HttpError
from tests.cases import each
from tests.nsqd.core.node import Node
from tests.nsqd.http.asking import handled_json, http_node

T0 = 1_800_000_000  # s


def ask(node: Node, series: Series, **arguments: str) -> dict[str, Any]:
    return handled_json(SeriesRoute(http_node(node.broker, series=series)).routes()[0].parsing().handler, **arguments)


def test_a_topic_and_its_channels() -> None:
    node, series = Node(), Series()
    node.channel("t", "c")
    node.channel("t", "d")
    assert ask(node, series, topic="t") == {"topic": "t", "channel": "", "day": None, "hour": None}
    for number in range(2):
        node.publish("t", b"x")
        for _ in series.record(list(node.broker.topics.values()), T0 + number * 10):
            pass
    topic, channel = ask(node, series, topic="t"), ask(node, series, topic="t", channel="c")
    hour = {"step": 10, "from": T0 - 10} | {name: [None, 0] for name in NAMES} | {"published": [None, 1]}
    hour |= {"buried": [0, 0], "in_flight": [0, 0], "deferred": [0, 0]}
    assert topic["hour"] == hour | {"depth": [2, 4]}
    assert (channel["channel"], channel["hour"]) == ("c", hour | {"depth": [1, 2]})
    assert (channel["day"]["step"], channel["day"]["from"], channel["day"]["depth"]) == (300, T0 - 300, [1])


@each("arguments, text", [
    ({"topic": "missing"}, "TOPIC_NOT_FOUND"), ({"topic": "t", "channel": "missing"}, "CHANNEL_NOT_FOUND"),
])  # fmt: skip
def test_refusals(arguments: dict[str, str], text: str) -> None:
    node = Node()
    node.channel("t", "c")
    with pytest.raises(HttpError, match=text):
        ask(node, Series(), **arguments)

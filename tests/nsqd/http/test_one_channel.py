"""Publishing to one channel of a topic: the others never see it, not after a kill either."""

from tests.cases import each
from tests.local_node import LocalNode
from tests.nsqd.http.asking import ask, get, post, reply_of


def ready(node: LocalNode, channel: str) -> list[str]:
    found = get(node, "/channel/messages", topic="t", channel=channel, state="ready")
    return [one["body"] for one in found["messages"]]


def test_over_a_kill() -> None:
    node = LocalNode("-retention", "1h")
    post(node, "/topic/create", topic="t")
    for channel in ("a", "b"):
        post(node, "/channel/create", topic="t", channel=channel)
    assert post(node, "/pub", "all", topic="t").text == "OK"
    assert post(node, "/pub", "one", topic="t", channel="a").text == "OK"
    assert post(node, "/mpub", "two\nthree", topic="t", channel="a", key="k").text == "OK"
    again = post(node, "/mpub", "two\nthree", topic="t", channel="a", key="k")
    assert (again.text, again.headers["x-nsq-duplicates"]) == ("OK", "2")
    for life in (node, node.killed("-retention", "1h")):
        assert (ready(life, "a"), ready(life, "b")) == (["all", "one", "two", "three"], ["all"])


@each("path, arguments, status, message", [
    ("/pub", {"topic": "t", "channel": "nope"}, 404, "CHANNEL_NOT_FOUND"),
    ("/mpub", {"topic": "t", "channel": ""}, 404, "CHANNEL_NOT_FOUND"),
    ("/pub", {"topic": "nope", "channel": "c"}, 404, "TOPIC_NOT_FOUND"),
    ("/pub", {"topic": "t", "channel": "c", "defer": "1000"}, 400, "INVALID_DEFER"),
    ("/pub", {"topic": "paused", "channel": "c"}, 409, "TOPIC_PAUSED"),
])  # fmt: skip
def test_what_is_refused_publishes_nothing(path: str, arguments: dict[str, str], status: int, message: str) -> None:
    node = LocalNode()
    for topic in ("t", "paused"):
        post(node, "/topic/create", topic=topic)
        post(node, "/channel/create", topic=topic, channel="c")
    post(node, "/topic/pause", topic="paused")
    assert reply_of(ask(node, "POST", path, "body", **arguments)) == (status, message)
    topics = get(node, "/stats", format="json")["topics"]
    assert [(topic["topic_name"], topic["message_count"]) for topic in topics] == [("paused", 0), ("t", 0)]

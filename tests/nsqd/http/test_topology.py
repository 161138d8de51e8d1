"""The routes below /topic and /channel: what they do, and their errors, which NSQ spells differently from route to route."""

from tests.cases import each
from tests.daemons import OK, Conversation
from tests.local_node import LocalNode
from tests.nsqd.http.raw import Answer, ask, channel_of, is_empty, is_error, is_ok, stats, topic_of

ACTIONS = ("create", "delete", "empty", "pause", "unpause")


def act(node: LocalNode, path: str) -> None:
    assert is_empty(ask(node, "POST", path))


@each("action", ACTIONS)
def test_topic_errors(node: LocalNode, action: str) -> None:
    def answer(query: str) -> Answer:
        return ask(node, "POST", f"/topic/{action}?{query}")

    assert is_error(answer(""), 400, "MISSING_ARG_TOPIC")
    for name in ("", "a%2Fb", "a+b", "x" * 65, "%FF", "t%00", "t%0A", "%23ephemeral", ".", ".."):
        if action in ("create", "empty"):
            assert is_error(answer(f"topic={name}"), 400, "INVALID_TOPIC")
        else:
            assert is_error(answer(f"topic={name}"), 404, "TOPIC_NOT_FOUND")  # these look at no name
    if action != "create":
        assert is_error(answer("topic=nobody"), 404, "TOPIC_NOT_FOUND")


@each("action", ACTIONS)
def test_channel_errors(node: LocalNode, action: str) -> None:
    def answer(query: str) -> Answer:
        return ask(node, "POST", f"/channel/{action}?{query}")

    act(node, "/topic/create?topic=there")
    assert is_error(answer("channel=c"), 400, "MISSING_ARG_TOPIC")
    for name in ("", "a%2Fb", "x" * 65, "%23ephemeral", ".."):
        assert is_error(answer(f"topic={name}"), 400, "INVALID_ARG_TOPIC")
        assert is_error(answer(f"topic=nobody&channel={name}"), 400, "INVALID_ARG_CHANNEL")
    assert is_error(answer("topic=nobody"), 400, "MISSING_ARG_CHANNEL")
    assert is_error(answer("topic=nobody&channel=c"), 404, "TOPIC_NOT_FOUND")
    if action != "create":
        assert is_error(answer("topic=there&channel=nobody"), 404, "CHANNEL_NOT_FOUND")


def test_the_life_of_a_topic(node: LocalNode) -> None:
    for _ in range(2):  # all are idempotent
        act(node, "/topic/create?topic=life")
    for _ in range(2):
        act(node, "/channel/create?topic=life&channel=c")
    for paused in (True, False, True):
        act(node, f"/topic/{'pause' if paused else 'unpause'}?topic=life")
        assert topic_of(node, "life")["paused"] is paused
    assert is_ok(ask(node, "POST", "/pub?topic=life", b"x"))
    topic = topic_of(node, "life")
    assert (topic["depth"], topic["channels"][0]["depth"]) == (1, 0)
    act(node, "/topic/empty?topic=life")
    topic = topic_of(node, "life")
    assert (topic["depth"], topic["message_count"]) == (0, 1)
    act(node, "/topic/delete?topic=life")
    assert stats(node, "topic=life")["topics"] is None


def test_the_life_of_a_channel(node: LocalNode) -> None:
    act(node, "/topic/create?topic=flow")
    act(node, "/channel/create?topic=flow&channel=c")
    act(node, "/channel/pause?topic=flow&channel=c")
    with Conversation(node, b"  V2SUB flow c\nRDY 1\n") as consumer:
        assert consumer.frame() == OK
        assert is_ok(ask(node, "POST", "/mpub?topic=flow", b"one\ntwo\nthree"))
        assert (channel_of(node, "flow")["paused"], channel_of(node, "flow")["depth"]) == (True, 3)
        act(node, "/channel/unpause?topic=flow&channel=c")
        message = consumer.message()
        assert (channel_of(node, "flow")["in_flight_count"], channel_of(node, "flow")["depth"]) == (1, 2)
        act(node, "/channel/empty?topic=flow&channel=c")
        found = channel_of(node, "flow")
        assert (found["in_flight_count"], found["depth"], found["message_count"]) == (0, 0, 3)
        assert found["clients"][0]["in_flight_count"] == 0
        consumer.send(b"FIN %s\n" % message.id)
        assert consumer.frame() == (1, b"E_FIN_FAILED FIN %s failed ID not in flight" % message.id)
        act(node, "/channel/delete?topic=flow&channel=c")
        assert consumer.frame() is None
    assert topic_of(node, "flow")["channels"] == []

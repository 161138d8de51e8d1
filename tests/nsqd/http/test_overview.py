"""/topics/figures, /topics/rows and /topic/ages, from a broker directly, and over HTTP."""

from typing import Any

from nsqd.core.observation.series import FINE, Series
from nsqd.core.timing.deferred import Message
from nsqd.core.timing.pause import NOT_KNOWN
from nsqd.http.overview import BATCH, COLUMNS, MOST_BACKLOGS, STALLED, OverviewRows, TopicBacklog
from tests.daemons import OK, Conversation
from tests.local_node import LocalNode
from tests.nsqd.core.node import SECOND, Node, ids
from tests.nsqd.core.observation.test_series import T0, note
from tests.nsqd.http.asking import ask, get, post, reply_of


def look(node: Node, series: Series | None = None) -> OverviewRows:
    found = OverviewRows() if series is None else OverviewRows(series.held_change)
    for name in sorted(node.broker.topics):
        found.add(node.broker.topics[name])
    return found


def test_a_topics_figures_are_its_own_and_its_channels() -> None:
    node = Node()
    node.publish("alone", b"1", b"2")
    node.channel("busy", "a")
    node.channel("busy", "b")
    node.publish("busy", b"1", b"2", b"3")
    node.publish_deferred("busy", b"later", 9 * SECOND)
    consumer, inbox = node.subscribe("busy", "a", ready=2)
    first, second = inbox.take()
    consumer.set_ready(0)
    consumer.requeue(first.id, 5 * SECOND, node.now)
    consumer.channel.bury(b"0" * 16, Message(99, 1), "")  # no such message: counted anyway
    found = look(node)
    columns = {name: list(values) for name, values in found.as_answer(COLUMNS)["columns"].items()}
    assert (found.names, columns["depth"], columns["in_flight"]) == (["alone", "busy"], [2, 1 + 3], [0, 1])
    assert (columns["deferred"], columns["buried"], columns["messages"]) == ([0, 2 + 1], [0, 1], [2, 4])
    assert (columns["channels"], columns["clients"], columns["requeued"]) == ([0, 2], [0, 1], [0, 1])
    assert (columns["timed_out"], columns["held"]) == ([0, 0], [2, 8])
    assert columns["oldest"][1] == second.timestamp == found.as_answer(None)["oldest"]
    assert found.as_answer(None)["totals"] == {
        "topics": 2, "channels": 2, "depth": 6, "in_flight": 1, "deferred": 3, "buried": 1, "clients": 1,
        "messages": 6,
    }  # fmt: skip


def test_rows() -> None:
    node = Node()
    node.channel("t", "c").pause(NOT_KNOWN)
    node.publish("t", b"x")
    node.channel("u", "c")
    t, u = look(node).as_dicts()
    assert list(t) == ["topic_name", "paused", "topic_paused", "paused_channels", *COLUMNS, "backlogs"]
    assert t.pop("backlogs") == [{"channel": "c", "depth": 1, "change": None, "seconds": 0}]
    assert u.pop("backlogs") == []
    assert t | {"oldest": 0} == dict.fromkeys(COLUMNS, 0) | {
        "topic_name": "t", "paused": True, "topic_paused": False, "paused_channels": 1, "depth": 1, "held": 1,
        "messages": 1, "channels": 1,
    }  # fmt: skip
    assert u == dict.fromkeys(COLUMNS, 0) | {
        "topic_name": "u", "paused": False, "topic_paused": False, "paused_channels": 0, "channels": 1,
    }  # fmt: skip


def test_the_slowest_parts_of_a_topic() -> None:
    """A topic was said to drain although one of its channels was stalled, and another one grew."""
    node, series = Node(), Series()
    consumers = [node.subscribe("t", name, ready=ready) for name, ready in (("fast", 8), ("slow", 1), ("stalled", 0))]
    node.channel("t", "empty").pause(NOT_KNOWN)
    node.publish("t", *[b"x"] * 10)
    node.broker.topics["t"].channels["empty"].empty()
    node.turn()
    note(series, node, T0)
    for consumer, inbox in consumers:
        consumer.set_ready(0)
        consumer.finish(ids(inbox.take()))
    node.turn()
    note(series, node, T0 + FINE)
    found = look(node, series)
    [row] = found.as_dicts()
    assert row["backlogs"] == [
        {"channel": "stalled", "depth": 10, "change": 0, "seconds": 10},
        {"channel": "slow", "depth": 9, "change": -1, "seconds": 10},
        {"channel": "fast", "depth": 2, "change": -8, "seconds": 10},
    ]
    assert found.as_answer(["depth"], True)["columns"] == {"depth": (21,), "drain": [STALLED]}
    assert [one.drain for one in found.backlogs[0]] == [STALLED, 90, 3]
    node.channel("t", "new")
    node.publish("t", b"x")
    note(series, node, T0 + 2 * FINE)
    [row] = look(node, series).as_dicts()
    assert [(one["channel"], one["change"]) for one in row["backlogs"]] == [
        ("stalled", 1), ("empty", 1), ("slow", 0), ("fast", -7), ("new", None),
    ]  # fmt: skip
    for number in range(MOST_BACKLOGS):
        node.channel("t", f"more{number}")
    node.publish("t", b"x")
    assert len(look(node, series).as_dicts()[0]["backlogs"]) == MOST_BACKLOGS
    assert look(Node(), series).as_answer([], True)["columns"] == {"drain": []}


def test_what_is_not_known_is_slower_than_what_is_empty() -> None:
    empty, unknown, drains = (
        TopicBacklog("a", 0, (-5, 300)),
        TopicBacklog("b", 100, None),
        TopicBacklog("c", 5, (-5, 300)),
    )
    stalled, grows = TopicBacklog("d", 5, (0, 300)), TopicBacklog("e", 5, (1, 300))
    assert sorted([grows, drains, empty, stalled, unknown], key=TopicBacklog.slowness) == [
        empty, unknown, drains, stalled, grows,
    ]  # fmt: skip


def test_figures_rows_and_ages_over_http() -> None:
    node = LocalNode()
    post(node, "/pub", b"x", topic="new")
    before = node.clock.wall
    post(node, "/channel/create", topic="new", channel="c")
    post(node, "/mpub", b"a\nb", topic="t")
    post(node, "/channel/pause", topic="new", channel="c")
    post(node, "/topic/pause", topic="t")
    figures = get(node, "/topics/figures", columns="depth,oldest")
    assert (figures["health"], figures["paused"], figures["idle"]["names"]) == ("OK", ["new/c", "t"], ["new/c"])
    process = figures["process"]
    assert (process["memory"] > 1 << 20, process["cpu_ms"] > 0) == (True, True)
    assert process["start_time"] == get(node, "/info")["start_time"]
    assert (figures["names"], figures["columns"]["depth"]) == (["new", "t"], [1, 2])
    new, t = figures["columns"]["oldest"]
    assert figures["oldest"] == new < before < t < node.clock.wall
    assert "names" not in get(node, "/topics/figures")
    assert get(node, "/topics/figures", columns="")["columns"] == {}
    rows = rows_of(node, "topic=t&topic=missing&topic=new&topic=t&topic=%00")["topics"]
    assert [(row["topic_name"], row["paused"], row["oldest"]) for row in rows] == [("t", True, t), ("new", True, new)]
    ages = get(node, "/topic/ages", topic="new")
    assert ages == {"topic": 0, "channels": {"c": new}, "buried": {}, "changes": {}}


def rows_of(node: LocalNode, query: str) -> Any:
    return reply_of(node.client.get(f"/topics/rows?{query}"))


def test_more_topics_than_a_batch() -> None:
    node, count = LocalNode(), BATCH + 7
    with Conversation(node, b"  V2") as client:
        for number in range(count):
            client.send(b"PUB many-%05d\n\0\0\0\1x" % number)
        assert [client.frame() for _ in range(count)] == [OK] * count
    figures = get(node, "/topics/figures", columns="messages,depth")
    assert figures["totals"]["topics"] == len(figures["names"]) == count
    assert figures["names"] == sorted(figures["names"])
    assert figures["columns"] == {"messages": [1] * count, "depth": [1] * count}


def test_hostile_arguments() -> None:
    node = LocalNode()
    post(node, "/topic/create", topic="t")
    assert get(node, "/topics/figures", columns=",".join(["depth"] * 2000))["columns"].keys() == {"depth"}
    assert rows_of(node, "topic=t&" * 200)["topics"][0]["topic_name"] == "t"
    assert rows_of(node, "topic=t&" * 201) == (400, "TOO_MANY_TOPICS")
    assert rows_of(node, "topic=%zz") == (400, "INVALID_REQUEST")
    assert get(node, "/topic/ages", topic="missing") == (404, "TOPIC_NOT_FOUND")
    for path in ("/topics/figures", "/topics/rows", "/topic/ages"):
        assert ask(node, "POST", path).status_code == 405

"""Named cursors over HTTP: their positions, over kills; refusals; /metrics; the listing of all topics."""

from typing import Any

import pytest

from tests.cases import each
from tests.local_node import LocalNode
from tests.nsqd.http.asking import ask, get, post, reply_of


def cursor(node: LocalNode, name: str, **arguments: object) -> Any:
    return reply_of(ask(node, "POST", "/topic/cursor", **{"topic": "t", "name": name} | arguments))


def delete(node: LocalNode, name: str, **arguments: object) -> Any:
    return reply_of(ask(node, "POST", "/topic/cursor/delete", topic="t", name=name, **arguments))


def cursors(node: LocalNode) -> dict[str, Any]:
    return {one.pop("name"): one for one in get(node, "/topic/cursors", topic="t")["cursors"]}


def retained() -> LocalNode:
    node = LocalNode()
    post(node, "/topic/create", topic="t", retention="1h")
    post(node, "/mpub", b"\n".join([b"x" * 5] * 10), topic="t")
    return node


NEW = {"offset": 0, "lag": 10, "gone": 0, "owner": "", "hold": "0s", "hold_bytes": 0}


def test_a_cursor_stands_where_it_was_put_over_kills() -> None:
    node = retained()
    began = node.clock.wall
    assert cursor(node, "fresh") | {"updated": 0} == {"name": "fresh", "updated": 0} | NEW
    cursor(node, "moved", to="latest", owner="spark", hold="24h", hold_bytes=1_000_000)
    cursor(node, "moved", to=4, owner="spark")
    deleted = cursor(node, "deleted")
    assert delete(node, "deleted") == deleted
    before = cursors(node)
    assert list(before) == ["fresh", "moved"]
    assert began <= before["moved"]["updated"] <= node.clock.wall
    held = {"offset": 4, "lag": 6, "owner": "spark", "hold": "24h0m0s", "hold_bytes": 1_000_000}
    assert before["moved"] | {"updated": 0} == {"updated": 0} | NEW | held
    for _ in range(2):
        node = node.killed()
        assert cursors(node) == before
    post(node, "/topic/delete", topic="t")
    post(node, "/topic/create", topic="t", retention="1h")
    assert cursors(node) == {}


@pytest.fixture(scope="module")
def node() -> LocalNode:
    node = retained()
    post(node, "/topic/create", topic="plain")
    cursor(node, "own", owner="me")
    return node


@each("arguments, error", [
    ({"name": "own", "to": 1}, (403, "OTHER_OWNER")),
    ({"name": "own", "to": 1, "owner": "you"}, (403, "OTHER_OWNER")),
    ({"name": "new", "to": 11}, (416, "OFFSET_IN_FUTURE")),
    ({"name": "new", "log": "other"}, (409, "OTHER_LOG")), ({"name": "new", "topic": "plain"}, (409, "NOT_RETAINED")),
    ({"name": "new", "topic": "nowhere"}, (404, "TOPIC_NOT_FOUND")),
])  # fmt: skip
def test_what_is_refused(node: LocalNode, arguments: dict[str, Any], error: tuple[int, str]) -> None:
    assert (cursor(node, **arguments), cursors(node).keys()) == (error, {"own"})
    assert cursors(node)["own"]["offset"] == 0


def test_only_its_owner_deletes_a_cursor(node: LocalNode) -> None:
    assert delete(node, "own", owner="you") == (403, "OTHER_OWNER")
    assert (delete(node, "unknown"), list(cursors(node))) == ((404, "CURSOR_NOT_FOUND"), ["own"])


def test_metrics_show_how_far_readers_are() -> None:
    node = retained()
    assert "nsqd_cursor_lag{" not in node.client.get("/metrics").text
    cursor(node, "archive", to=4)
    text = node.client.get("/metrics").text
    assert 'nsqd_cursor_lag{cursor="archive",topic="t"} 6.0\n' in text
    assert 'nsqd_cursor_read_total{cursor="archive",topic="t"} 4.0\n' in text


def test_they_are_bounded() -> None:
    node = retained()
    for number in range(100):
        assert cursor(node, f"c{number}")["lag"] == 10
    assert cursor(node, "one-more") == (429, "TOO_MANY_CURSORS")
    assert cursor(node, "c7", to="latest")["lag"] == 0


def test_cursors_of_all_topics() -> None:
    node = LocalNode()
    assert get(node, "/cursors") == {"cursor_count": 0, "cursors": []}
    for topic in ("a", "a-b", "z"):
        post(node, "/topic/create", topic=topic, retention="1h")
        post(node, "/mpub", b"1\n2\n3", topic=topic)
    for topic, name in (("z", "spark"), ("a", "y"), ("a", "x"), ("a-b", "x")):
        post(node, "/topic/cursor", topic=topic, name=name, to=1, owner="me", hold="1h")
    shown = get(node, "/cursors")
    assert shown["cursor_count"] == 4
    names = [(one["topic"], one["name"]) for one in shown["cursors"]]
    assert names == [("a", "x"), ("a", "y"), ("a-b", "x"), ("z", "spark")]
    listed = get(node, "/topic/cursors", topic="z")
    (same,) = listed["cursors"]
    assert shown["cursors"][3] == {"topic": "z", "log": listed["log"], **same}
    assert (same["owner"], same["offset"], same["lag"]) == ("me", 1, 2)
    page = get(node, "/cursors", limit=2, after="a/x")
    assert page == {"cursor_count": 4, "cursors": shown["cursors"][1:3]}
    assert get(node, "/cursors", limit=0)["cursors"] == []
    assert get(node, "/cursors", after="z/spark")["cursors"] == []

"""/cursors: the cursors of all topics in one listing, in pages."""

from tests.cases import each
from tests.local_node import LocalNode
from tests.nsqd.http.asking import ask, get, post


def test_cursors_of_all_topics() -> None:
    node = LocalNode()
    assert get(node, "/cursors") == {"cursor_count": 0, "cursors": []}
    for topic in ("a", "a-b", "z"):
        post(node, "/topic/create", topic=topic, retention="1h")
        post(node, "/mpub", b"1\n2\n3", topic=topic)
    for topic, name in (("z", "spark"), ("a", "y"), ("a", "x"), ("a-b", "x")):
        post(node, "/topic/cursor", topic=topic, name=name, to=1, owner="me", hold="1h")
    told = get(node, "/cursors")
    assert told["cursor_count"] == 4
    names = [(one["topic"], one["name"]) for one in told["cursors"]]
    assert names == [("a", "x"), ("a", "y"), ("a-b", "x"), ("z", "spark")]
    listed = get(node, "/topic/cursors", topic="z")
    (same,) = listed["cursors"]
    assert told["cursors"][3] == {"topic": "z", "log": listed["log"], **same}
    assert (same["owner"], same["offset"], same["lag"]) == ("me", 1, 2)
    page = get(node, "/cursors", limit=2, after="a/x")
    assert page == {"cursor_count": 4, "cursors": told["cursors"][1:3]}
    assert get(node, "/cursors", limit=0)["cursors"] == []
    assert get(node, "/cursors", after="z/spark")["cursors"] == []


@each("limit", ["-1", "1001", "x", "1e2", "\u0661"])
def test_hostile_arguments(limit: str) -> None:
    node = LocalNode()
    assert get(node, "/cursors", limit=limit) == (400, "INVALID_ARG_LIMIT")
    assert get(node, "/cursors", after="t") == (400, "INVALID_ARG_AFTER")
    assert ask(node, "POST", "/cursors").status_code == 405

"""GET /topics/offsets: the same ranges as /topic/offsets, of all topics at once."""

import pytest

from nsqd.http import all_offsets
from tests.local_node import LocalNode
from tests.nsqd.http.asking import get, post


def test_all_ranges_are_in_one_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(all_offsets, "BATCH", 3)
    node = LocalNode("-node-id", "7")
    for number in range(7):  # of three turns
        post(node, "/topic/create", topic=f"t{number:03d}", retention="1h")
    post(node, "/pub", b"a", topic="t003")
    post(node, "/topic/create", topic="plain")
    post(node, "/topic/create", topic="gone#ephemeral")
    answer = get(node, "/topics/offsets")
    one = get(node, "/topic/offsets", topic="t003")
    assert answer["node"] == one["node"] == 7
    topics = {topic["topic"]: topic for topic in answer["topics"]}
    assert list(topics) == ["plain", *(f"t{number:03d}" for number in range(7))]
    assert topics["t003"] == {name: one[name] for name in ("topic", "log", "first", "next")} | {"retained": True}
    assert topics["t003"]["next"] == 1
    assert not topics["plain"]["retained"]
    assert "promoted" not in answer

"""The storage that nodes report, also lies."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from admin.messages.browsing import _tube_row
from admin.pages.storage import drain_view, storage_view
from admin.users.roles import Who, of_role

VIC = Who(of_role("vic", "viewer", ("eu.*",)))
_ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(["topic", "bytes", "number"]), inner, max_size=2)
    ),
)
_KEYS = st.sampled_from(
    ["log_bytes", "live_bytes", "files", "topics", "promoted", "sync_p99_ms", "disk_free", "disk_total", "refusal", "damage",
     "torn", "since", "draining", "depth", "ready_count", "tube_name", "node", "path"]
)  # fmt: skip


def test_promoted_logs_are_shown_with_their_node() -> None:
    view = storage_view({"promoted": [{"log": "ab" * 40, "node": 7, "log_bytes": 5, "path": "/x"}, "no log"]}, VIC)
    (row,) = view["promoted"]
    assert (row["log"], row["node"], row["log_bytes"], row["damage"]) == ("ab" * 16, 7, 5, 0)
    assert "path" not in row


def test_shares_and_topics_that_one_sees() -> None:
    topics = [{"topic": "eu.a", "live_bytes": 7, "messages": 1, "retained": 2}, {"topic": "us.a", "live_bytes": 9}]
    view = storage_view({"log_bytes": 200, "live_bytes": 50, "topics": topics, "files": [{"number": 3}]}, VIC)
    assert (view["live_share"], view["topics"]) == (25.0, topics[:1])
    assert view["files"][0]["live_share"] == 100.0


@given(st.dictionaries(_KEYS, _ANY))
def test_every_answer_of_a_node(answer: dict[str, Any]) -> None:
    storage_view(answer, VIC)
    assert all(isinstance(value, int) for value in drain_view(answer).values())
    assert _tube_row("a:1", answer)["node"] == "a:1"

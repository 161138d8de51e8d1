"""The storage that nodes report, also lies."""

from admin.pages.storage import storage_view
from admin.users.roles import Who, of_role

VIC = Who(of_role("vic", "viewer", ("eu.*",)))


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

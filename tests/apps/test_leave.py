"""What `penstock leave` prints of how far a node is."""

from apps.leave import describe

LOG, OTHER = "0a" * 16, "0b" * 16


def test_how_far_the_node_is_and_which_logs_its_disk_may_be_needed_for() -> None:
    state = {"state": "left", "in_flight": 0, "logs": [], "lacking": [], "leaderless": []}
    assert describe(state) == "the node has left the cluster"
    assert describe(state | {"leaderless": [LOG, OTHER]}).endswith(f"which no other node leads: {LOG}, {OTHER}")
    gave_up = state | {"state": "gave up", "logs": [{"log_id": OTHER, "asked": 2}]}
    assert describe(gave_up).startswith("1 logs were not transferred in time")
    lacking = describe(gave_up | {"lacking": [LOG]})
    assert "has not left" in lacking
    assert LOG in lacking

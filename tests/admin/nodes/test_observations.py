"""The messages that answers of a node report; nodes may answer anything."""

from admin.nodes.observations import OnTopic, observation_of


def test_topics_that_a_node_does_not_have_hold_nothing() -> None:
    rows = {"topics": [{"topic_name": "t", "held": 3, "buried": 1}]}
    seen = observation_of("/topics/rows", {"topic": ["t", "gone"]}, rows)
    assert seen.topics == {"t": OnTopic(3, 1), "gone": OnTopic(0, 0)}
    assert (seen.totals, seen.is_complete, seen.is_exact) == ({}, False, True)
    for path in ("/ping", "/storage", "/topic/ages", "/node/drain"):  # other answers say nothing
        assert observation_of(path, {}, {"draining": True}) is None

"""The messages that answers of a node report; nodes may answer anything."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from admin.nodes.observations import OnTopic, observation_of
from tests.admin.looks import JSON

PATHS = ("/topics/figures", "/topics/rows", "/stats", "/channels/attention", "/node/drain")
KEYS = (
    "totals", "names", "columns", "held", "buried", "topics", "topic_name", "channels", "depth", "in_flight", "jobs",
    "topic", "channel_name", "buried_count", "client_count", "message_count",
)  # fmt: skip


def test_topics_that_a_node_does_not_have_hold_nothing() -> None:
    rows = {"topics": [{"topic_name": "t", "held": 3, "buried": 1}]}
    seen = observation_of("/topics/rows", {"topic": ["t", "gone"]}, rows)
    assert seen.topics == {"t": OnTopic(3, 1), "gone": OnTopic(0, 0)}
    assert (seen.totals, seen.is_complete, seen.is_exact) == ({}, False, True)
    for path in ("/ping", "/storage", "/topic/ages", "/node/drain"):  # other answers say nothing
        assert observation_of(path, {}, {"draining": True}) is None


@given(path=st.sampled_from(PATHS), one=JSON, other=JSON)
def test_a_node_may_answer_anything(path: str, one: Any, other: Any) -> None:
    inner = dict.fromkeys(KEYS, other)
    for data in (dict.fromkeys(KEYS, one), {key: [inner, one] for key in KEYS}, dict.fromkeys(KEYS, inner)):
        for asked in ({}, {"topic": "t"}, {"topic": ["t"]}):
            seen = observation_of(path, asked, data)
            if seen is not None:
                assert all(type(each) is int and each >= 0 for each in seen.totals.values())
                assert all(each >= 0 for held in seen.topics.values() for each in held)

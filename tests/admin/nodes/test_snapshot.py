"""A snapshot sums channels up over the nodes, and ignores impossible counts."""

from dataclasses import replace
from typing import Any

from admin.nodes import snapshot
from admin.nodes.inventory import NodeState
from admin.nodes.merge import LONGEST_NAME, topic_of
from admin.nodes.snapshot import MOST_LISTED, Snapshot, facts_of
from shared.cluster.state import ClusterState, MemberState
from tests.admin.looks import NOW, channel, record, topic


def row(**more: object) -> dict[str, object]:
    return {"topic": "t", "channel": "c", **more}


def attention(**lists: Any) -> Snapshot:
    look = Snapshot(NOW)
    look.add_attention("a:1", lists)
    return look


def test_channels_and_topics_are_summed_up_over_the_nodes_and_tubes_are_not() -> None:
    look = Snapshot(NOW)
    look.add_attention("a:1", {"channels": [row(depth=3, buried=1, oldest=NOW, clients=1)]})
    look.add_attention("b:1", {"channels": [row(depth=4, oldest=NOW - 5, paused=True, paused_at=7)], "left_out": 2})
    assert look.channels == {
        ("t", "c"): channel(depth=7, buried=1, oldest=NOW - 5, clients=1, paused=True, paused_at=7_000_000_000)
    }
    assert look.channels["t", "c"].unfinished == 8
    assert look.left_out == 2
    for node in ("a:1", "b:1"):
        listed = {"topics": [{"topic": "t", "depth": 2}], "tubes": [{"tube": "u", "buried": 3, "ready": 1}]}
        look.add_attention(node, listed)
    assert look.topics == {"t": topic(depth=4)}
    assert look.tubes == {("u", "a:1"): 3, ("u", "b:1"): 3}, "tubes are not summed up"
    assert attention(tubes=[{"tube": "u", "paused": True}]).tubes == {}


def test_an_original_node_lists_all_its_channels() -> None:
    answer = {
        "topic_name": "t", "depth": 2, "channels": [
            {"channel_name": "c", "depth": 4, "in_flight_count": 1, "requeue_count": 5, "timeout_count": 6, "message_count": 9,
             "client_count": 1, "deferred_count": 2},
        ],
    }  # fmt: skip
    bare = {"topic_name": "bare", "depth": 7}
    look = Snapshot(NOW)
    look.add_original([topic_of(one, "o:1", "o", 0) for one in (answer, bare, {"topic_name": "idle"})])
    figures = channel(depth=4, in_flight=1, deferred=2, requeued=5, timed_out=6, messages=9, clients=1)
    assert look.channels == {("t", "c"): figures}
    assert look.topics == {"bare": topic(depth=7)}


def test_no_figure_is_negative_and_hides_another_and_names_that_cannot_be_are_left_out() -> None:
    names = ("depth", "in_flight", "deferred", "buried", "requeued", "timed_out", "messages", "clients", "oldest")
    look = attention(
        channels=[row(**dict.fromkeys(names, -5)), row(buried=3)],
        topics=[{"topic": "t", "depth": -9, "oldest": -9}, {"topic": "t", "depth": 2}],
        tubes=[{"tube": "t", "buried": -1}],
        left_out=-5,
    )
    assert look.channels == {("t", "c"): channel(buried=3)}
    assert (look.topics, look.tubes, look.left_out) == ({"t": topic(depth=2)}, {}, 0)
    answer = {"topic_name": "t", "depth": -4, "channels": [{"channel_name": "c", "depth": -4, "client_count": -1}]}
    look.add_original([topic_of(answer, "o:1", "o", 0)])
    assert look.channels == {("t", "c"): channel(buried=3)}
    names = ["", "x" * (LONGEST_NAME + 1), 5, None, ["t"]]
    look = attention(
        channels=[row(**{kind: name}) for name in names for kind in ("topic", "channel")],
        topics=[{"topic": name, "depth": 1} for name in names],
        tubes=[{"tube": name, "buried": 1} for name in names],
    )
    assert (look.channels, look.topics, look.tubes) == ({}, {}, {})


def test_what_a_node_lists_is_bounded_and_so_are_all_together(monkeypatch: Any) -> None:
    def lists(name: str, count: int) -> dict[str, Any]:
        names = [f"{name}{one}" for one in range(count)]
        tubes = [{"tube": one, "buried": 1} for one in names]
        return {
            "channels": [row(channel=one) for one in names],
            "topics": [{"topic": one} for one in names],
            "tubes": tubes,
        }

    look = attention(**lists("c", MOST_LISTED + 5))
    assert [len(one) for one in (look.channels, look.topics, look.tubes)] == [MOST_LISTED] * 3
    monkeypatch.setattr(snapshot, "MOST_KEPT", MOST_LISTED + 2)
    look.add_attention("b:1", lists("d", 5))
    assert [len(one) for one in (look.channels, look.topics, look.tubes)] == [MOST_LISTED + 2] * 3
    assert look.left_out == 5 + 3, "it is answer that channels are missing"
    look.add_attention("b:1", {"channels": [row(channel="c1", depth=4)]})
    assert look.channels["t", "c1"].depth == 4, "its channels are still summed up"


def test_facts_of_a_node_believe_no_figure_that_cannot_be() -> None:
    storage = {
        "sync_p99_ms": float("nan"), "refusal": ["x"], "disk_free": -1, "disk_total": "9", "damage": 1 << 80,
        "torn": None,
    }  # fmt: skip
    facts = facts_of(record(), NodeState.UP, "x" * 300, storage, None)
    figures = facts.sync_p99_ms, facts.refusal, facts.disk_free, facts.disk_total, facts.damage, facts.torn
    assert figures == (0.0, "", 0, 0, 0, 0)
    assert len(facts.health) == 200


def test_the_member_at_an_address_is_the_one_that_answers_there_or_whose_log_no_other_has() -> None:
    before = MemberState(1, "", "n:1", "", "down", [], 1, [], 2, 2, 0, led_by=3)
    now = MemberState(4, "", "n:1", "", "up", [], 1, [], 2, 2, 0)
    look = Snapshot(0, clusters=[ClusterState("main", nodes=[before, now])])
    assert look.member("n:1") == (look.clusters[0], now)
    answers = Snapshot(0, clusters=[ClusterState("main", nodes=[before, replace(now, asked="n:1"), now])])
    assert answers.member("n:1") == (answers.clusters[0], replace(now, asked="n:1"))
    assert answers.member("m:1") is None

"""Nodes are remembered with their state and their messages."""

import json
from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from admin.nodes.inventory import (
    DOWN_AFTER,
    MOST_NODES,
    MOST_STUCK,
    MOST_TOPICS,
    Inventory,
    NodeRecord,
    NodeState,
    Stuck,
    restored,
    stored,
    words_of,
)
from admin.nodes.observations import observation_of
from admin.times import second
from tests.admin.looks import JSON, MINUTE, NOW, SECOND, producer, record
from tests.cases import each


def named(*names: str, is_complete: bool = True, now: int = NOW) -> Inventory:
    inventory = Inventory()
    inventory.note_named([producer(one) for one in names], now, is_complete=is_complete)
    for one in names:
        inventory.note_answer(f"{one}:1", now)
    return inventory


def find(inventory: Inventory, name: str = "a") -> NodeRecord:
    node = inventory.find(f"{name}:1")
    assert node is not None
    return node


def state(inventory: Inventory, name: str = "a", now: int = NOW) -> NodeState:
    return find(inventory, name).state(now)


def figures(held: dict[str, int], **totals: int) -> dict[str, Any]:
    columns = {"held": list(held.values()), "buried": [0] * len(held)}
    return {"totals": {"depth": sum(held.values()), **totals}, "names": list(held), "columns": columns}


def note(inventory: Inventory, answer: Any, at: int = NOW, path: str = "/topics/figures", **asked: Any) -> None:
    seen = observation_of(path, asked, answer)
    if seen is not None:
        inventory.note("a:1", seen, at)


def test_a_node_that_nsqlookupd_no_longer_names_is_unregistered_while_it_answers_and_down_at_once_if_not() -> None:
    inventory = named("a", "b")
    assert inventory.note_named([producer("b")], NOW, is_complete=True)
    assert not inventory.note_named([producer("b")], NOW, is_complete=True), "that is known"
    assert state(inventory) is NodeState.UNREGISTERED
    assert [one.address for one in inventory.asked(NOW)] == ["a:1", "b:1"]
    inventory.note_failure("a:1", "refused", NOW)
    assert state(inventory) is NodeState.DOWN
    assert [one.address for one in inventory.asked(NOW)] == ["b:1"]
    inventory.note_named([producer("a"), producer("b")], NOW, is_complete=True)
    assert state(inventory) is NodeState.UNANSWERED, "it registers before it is asked again"
    inventory.note_answer("a:1", NOW)
    assert state(inventory) is NodeState.UP
    assert inventory.note_named([producer("b")], NOW, is_complete=False), "one is missing"
    assert state(inventory) is NodeState.UP, "an incomplete list takes no name away"


def test_a_named_node_is_down_after_ten_seconds_without_an_answer() -> None:
    inventory = named("a")
    inventory.note_failure("a:1", "did not answer", NOW)
    inventory.note_failure("a:1", "did not answer again", NOW + 5 * SECOND)
    assert state(inventory, now=NOW + DOWN_AFTER - 1) is NodeState.UNANSWERED
    assert state(inventory, now=NOW + DOWN_AFTER) is NodeState.DOWN
    node = find(inventory)
    assert (node.failing_since, node.reason) == (NOW, "did not answer again")
    assert words_of(node, NOW + 12 * SECOND) == "no answer for 12.0 s"
    inventory.note_answer("a:1", NOW + DOWN_AFTER)
    assert state(inventory, now=NOW + DOWN_AFTER) is NodeState.UP
    inventory = named("a")
    inventory.note_failure("a:1", "x", NOW)
    assert state(inventory, now=NOW - MINUTE) is NodeState.UNANSWERED, "a clock that is set back makes no node down"
    assert words_of(find(inventory), NOW - MINUTE) == "no answer"
    inventory.note_failure("a:1", "x", NOW - MINUTE)
    assert state(inventory, now=NOW - MINUTE + DOWN_AFTER) is NodeState.DOWN, "ten seconds later, and not a minute"


def test_a_node_that_was_drained_is_stopped_on_purpose() -> None:
    for is_draining, is_drained in ((True, True), (True, False), (False, False)):
        inventory = named("a")
        inventory.note_drain("a:1", is_draining=is_draining, is_drained=is_drained)
        inventory.note_failure("a:1", "refused", NOW)
        assert state(inventory, now=NOW + DOWN_AFTER) is (NodeState.STOPPED if is_drained else NodeState.DOWN)


def test_only_a_node_that_does_not_answer_is_dismissed() -> None:
    inventory = named("a", "b")
    assert not inventory.dismiss("a:1", NOW), "it is up"
    assert not inventory.dismiss("x:1", NOW), "it is not known"
    inventory.note_failure("a:1", "x", NOW)
    assert not inventory.dismiss("a:1", NOW), "it may answer in a moment"
    assert inventory.dismiss("a:1", NOW + DOWN_AFTER)
    assert inventory.find("a:1") is None
    assert "a:1" in inventory.changed
    inventory.note_failure("a:1", "x", NOW)
    inventory.note_answer("a:1", NOW)
    note(inventory, figures({"t": 1}))
    inventory.note_drain("a:1", is_draining=True, is_drained=True)
    assert inventory.find("a:1") is None, "answers of an unknown node make no record"


def test_the_same_host_under_a_new_address_replaces_one_that_is_down() -> None:
    inventory = named("a")
    inventory.note_named([], NOW, is_complete=True)
    inventory.note_failure("a:1", "refused", NOW)
    inventory.note_named([producer("a", 2)], NOW, is_complete=True)
    assert [one.address for one in inventory.all()] == ["a:2"]
    inventory = named("a")  # a container that moves between two looks leaves no node behind that is down
    inventory.note_named([producer("a", 2)], NOW, is_complete=True)
    assert state(inventory) is NodeState.UNREGISTERED, "it was not asked yet"
    inventory.note_failure("a:1", "refused", NOW)
    assert [one.address for one in inventory.all()] == ["a:2"]
    assert "a:1" in inventory.changed


@each("other", [producer("b", 2), producer("a", 2, tcp_port=9), producer("", 2)])
def test_another_node_replaces_none(other: Any) -> None:
    inventory = Inventory()
    inventory.note_named([producer("a", hostname=other.hostname and "a")], NOW, is_complete=True)
    inventory.note_named([other], NOW, is_complete=True)
    inventory.note_failure("a:1", "refused", NOW)
    assert state(inventory) is NodeState.DOWN


def test_a_node_that_still_answers_is_not_replaced() -> None:
    inventory = named("a")
    inventory.note_named([producer("a", 2)], NOW, is_complete=True)
    inventory.note_answer("a:1", NOW)
    inventory.note_failure("a:1", "refused", NOW)
    assert state(inventory) is NodeState.DOWN, "two nodes have the same host name"
    inventory = named("a")
    for port in (2, 3):
        inventory.note_named([producer("a", port)], NOW, is_complete=False)
        inventory.note_failure("a:1", "refused", NOW)
        assert state(inventory) is NodeState.UNANSWERED, "it may be named by an nsqlookupd that did not answer"


def test_only_what_changes_is_stored_and_the_time_of_the_last_answer_once_a_minute() -> None:
    inventory = named("a")
    stored_at = []
    for after in range(0, 180, 5):
        inventory.changed.clear()
        inventory.note_answer("a:1", NOW + after * SECOND)
        stored_at += [after] if inventory.changed else []
    assert len(stored_at) == 2, "NOW is the begin of a minute"
    crowded = producer("a", topics=tuple((f"t{number}", False) for number in range(MOST_TOPICS + 1)))
    inventory = Inventory()
    inventory.note_named([crowded], NOW, is_complete=True)
    inventory.changed.clear()
    inventory.note_named([crowded], NOW, is_complete=True)
    inventory.note_failure("x:1", "not known", NOW)
    assert inventory.changed == set()
    assert len(find(inventory).producer.topics) == MOST_TOPICS


def test_the_node_that_was_seen_longest_ago_is_forgotten_first_and_named_ones_last() -> None:
    inventory = named("old", "young", now=NOW)
    inventory.note_answer("young:1", NOW + SECOND)
    crowd = [producer(f"n{number}") for number in range(MOST_NODES - 1)]
    inventory.note_named(crowd, NOW, is_complete=True)
    assert len(inventory.all()) == MOST_NODES
    assert inventory.find("old:1") is None
    assert inventory.find("young:1") is not None
    inventory.note_named([*crowd, producer("m1"), producer("m2")], NOW, is_complete=True)
    assert len(inventory.all()) == MOST_NODES
    assert inventory.find("young:1") is None


def with_figures(held: dict[str, int], **totals: int) -> NodeRecord:
    inventory = named("a")
    note(inventory, figures(held, **totals))
    return find(inventory)


AS_OF = f"as of {second(NOW)}"


def test_losses_are_of_visible_topics_only() -> None:
    node = with_figures({"secret": 7, "t": 3}, in_flight=2, buried=4)
    text = "12 messages and 4 buried stuck on it: secret (7), t (3)."
    assert node.losses(True, ["secret", "t"]) == f"{text} That is {AS_OF}."
    assert node.losses(False, ["t"]) == f"3 messages stuck on it: t (3). That is {AS_OF}."
    assert node.losses(False, []) == f"No messages were on it {AS_OF}. Later messages are not known."
    assert record().losses(True, []) == "Its counts are not known."
    many = with_figures({f"t{number}": 1 for number in range(7)})
    text = "7 messages stuck on it: t0 (1), t1 (1), t2 (1), t3 (1), t4 (1) and 2 more topics."
    assert many.losses(True, [f"t{number}" for number in range(7)]) == f"{text} That is {AS_OF}."
    assert with_figures({"t": 1}).losses(True, ["t"]) == f"1 message stuck on it: t (1). That is {AS_OF}."


def lost(inventory: Inventory, at: int) -> str:
    """The losses of node a after it was lost at that time."""
    inventory.note_failure("a:1", "refused", at)
    node = find(inventory)
    return node.losses(True, [one.topic for one in node.stuck])


CHANNEL = {"channel_name": "c", "depth": 100, "in_flight_count": 0, "deferred_count": 0, "buried_count": 2}
STATS = {"topics": [{"topic_name": "t", "depth": 0, "channels": [CHANNEL]}]}
LISTED = {"channels": [{"topic": "t", "channel": "c", "depth": 100, "buried": 2}]}


@each("path, asked, answer", [
    ("/topics/figures", {}, {"totals": {"depth": 100, "buried": 2}}),
    ("/topics/rows", {"topic": ["t", "u"]}, {"topics": [{"topic_name": "t", "held": 100, "buried": 2}]}),
    ("/stats", {}, STATS), ("/stats", {"topic": "t"}, STATS), ("/stats", {"topic": "t", "channel": "c"}, STATS),
    ("/channels/attention", {}, LISTED),
    ("/node/drain", {}, {"depth": 100, "in_flight": 0, "deferred": 0, "jobs": 0, "buried": 2}),
])  # fmt: skip
def test_whatever_a_node_answered_last_counts_when_it_is_lost(path: str, asked: Any, answer: dict[str, Any]) -> None:
    inventory = named("a")
    note(inventory, figures({}, buried=0))
    text = lost(inventory, NOW + 12 * SECOND)
    assert text == f"No messages were on it {AS_OF}, 12.0 s before it was lost. Later messages are not known."
    note(inventory, answer, NOW + 6 * SECOND, path, **asked)
    names = "" if path in ("/topics/figures", "/node/drain") else ": t (102)"
    when = f"That is as of {second(NOW + 6 * SECOND)}, 6.0 s before it was lost."
    assert lost(inventory, NOW + 12 * SECOND) == f"100 messages and 2 buried stuck on it{names}. {when}"
    note(inventory, figures({}, buried=0), NOW + 5 * SECOND)
    late = lost(inventory, NOW + 12 * SECOND)
    assert late.startswith("100 messages"), "an older answer that comes late changes nothing"


def test_an_answer_about_a_part_of_a_topic_takes_nothing_away_and_one_about_all_of_it_does() -> None:
    inventory = named("a")
    note(inventory, figures({"t": 500}))
    note(inventory, LISTED, NOW + SECOND, "/channels/attention")
    note(inventory, STATS, NOW + 2 * SECOND, "/stats", topic="t", channel="c")
    text = lost(inventory, NOW + 9 * SECOND)
    assert text.startswith("500 messages and 2 buried stuck on it: t (502). That is as of")
    note(inventory, figures({"u": 1}), NOW + 3 * SECOND)
    assert lost(inventory, NOW + 9 * SECOND).startswith("1 message stuck on it: u (1). That is as of")
    inventory = named("a")
    note(inventory, figures({}, buried=1))
    note(inventory, {"depth": 0, "in_flight": 0, "deferred": 0, "jobs": 300, "buried": 3}, NOW, "/node/drain")
    assert lost(inventory, NOW).startswith("300 jobs and 3 buried stuck on it. That is as of")


def test_what_another_node_delivers_is_not_stuck() -> None:
    inventory = named("a", "b")
    note(inventory, figures({"t": 5}))
    inventory.note_failure("a:1", "refused", NOW)
    inventory.changed.clear()
    inventory.note_new_leader("a:1", 0)
    assert inventory.changed == {"a:1"}
    node = find(inventory)
    assert (node.held, node.losses(True, ["t"])) == (0, "Node 0 leads its log now and delivers its messages.")
    inventory.changed.clear()
    inventory.note_new_leader("a:1", 0)
    inventory.note_new_leader("unknown:1", 0)
    assert not inventory.changed
    inventory.note_new_leader("a:1", None)
    assert inventory.find("a:1") == replace(node, led_by=None)


def test_stuck_topics_are_bounded_and_the_largest() -> None:
    node = with_figures({f"t{number}": number for number in range(2 * MOST_STUCK)} | {"x" * 300: 1000})
    assert len(node.stuck) == MOST_STUCK
    assert (node.stuck[0], node.stuck[-1]) == (Stuck("t199", 199, 0, NOW), Stuck("t100", 100, 0, NOW))
    node = with_figures({f"t{number}": 9 for number in range(MOST_STUCK)} | {"mine": 1})
    assert node.losses(False, ["mine"]) == "Its counts of your topics are not known."


def test_a_record_is_the_same_after_a_round_trip_but_not_named() -> None:
    topics = (("t", False), ("u", True))
    whole = producer(topics=topics, capabilities=("log",), region="r", zone="z", https_port=5, out_of_date=True)
    node = record(
        producer=whole, failing_since=NOW, reason="x", figures_at=NOW, figures={"depth": 3}, is_drained=True,
        is_draining=True, stuck=(Stuck("t", 3, 1, NOW),),
    )  # fmt: skip
    assert restored(json.loads(json.dumps(stored(node)))) == replace(node, is_named=False)
    for data in ({}, {"producer": None}, {"producer": []}, {"producer": {}}, {"producer": {"http_port": 1}}):
        assert restored(data) is None


@given(st.data())
def test_a_record_may_be_anything(data: st.DataObject) -> None:
    whole = json.loads(json.dumps(stored(record(figures={"depth": 1}, stuck=(Stuck("t", 1, 0),)))))
    for part in (whole, whole["producer"]):
        for name in data.draw(st.lists(st.sampled_from(sorted(part)), max_size=3)):
            part[name] = data.draw(JSON)
    node = restored(whole)
    if node is not None:
        inventory = Inventory([node])
        inventory.note_named([producer("m")], NOW, is_complete=True)
        inventory.note_failure(node.address, "x", NOW)
        assert [type(one.state(NOW)) for one in inventory.all()] == [NodeState] * 2
        assert (node.held >= 0, words_of(node, NOW)) == (True, words_of(node, NOW))
        node.losses(True, ["t"])
        json.dumps(stored(node))

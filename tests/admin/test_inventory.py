"""Nodes are remembered: who is up, unregistered, down or stopped, and what was on them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from admin.inventory import (
    DOWN_AFTER,
    Inventory,
    NodeRecord,
    NodeState,
    Stuck,
    restored,
    stored,
    words_of,
)
from tests.admin.looks import MINUTE, NOW, SECOND, producer, record


def named(*names: str, is_complete: bool = True, now: int = NOW) -> Inventory:
    """Return an inventory of nodes that are named and have answered."""
    inventory = Inventory()
    inventory.note_named([producer(one) for one in names], now, is_complete=is_complete)
    for one in names:
        inventory.note_answer(f"{one}:1", now)
    return inventory


def state(inventory: Inventory, name: str = "a", now: int = NOW) -> NodeState:
    node = inventory.find(f"{name}:1")
    assert node is not None
    return node.state(now)


def figures(held: dict[str, int], **totals: int) -> dict[str, Any]:
    """Return an answer of /topics/figures."""
    columns = {"held": list(held.values()), "buried": [0] * len(held)}
    return {"totals": {"depth": sum(held.values()), **totals}, "names": list(held), "columns": columns}


def test_a_node_that_nsqlookupd_no_longer_names_is_unregistered_while_it_answers_and_down_at_once_if_not() -> None:
    inventory = named("a", "b")
    assert inventory.note_named([producer("b")], NOW, is_complete=True)
    assert not inventory.note_named([producer("b")], NOW, is_complete=True), "that is known"
    assert state(inventory) is NodeState.UNREGISTERED
    assert [one.address for one in inventory.asked(NOW)] == ["a:1", "b:1"]
    inventory.note_failure("a:1", "refused", NOW)
    assert state(inventory) is NodeState.DOWN
    assert [one.address for one in inventory.down(NOW)] == ["a:1"]
    assert [one.address for one in inventory.asked(NOW)] == ["b:1"]
    inventory.note_named([producer("a"), producer("b")], NOW, is_complete=True)
    assert state(inventory) is NodeState.UNANSWERED, "it registers before it is asked again"
    inventory.note_answer("a:1", NOW)
    assert state(inventory) is NodeState.UP


def test_an_incomplete_list_takes_no_name_away() -> None:
    inventory = named("a", "b")
    assert inventory.note_named([producer("b")], NOW, is_complete=False), "it tells that one is missing"
    assert state(inventory) is NodeState.UP


def test_a_named_node_is_down_after_ten_seconds_without_an_answer() -> None:
    inventory = named("a")
    inventory.note_failure("a:1", "did not answer", NOW)
    inventory.note_failure("a:1", "did not answer again", NOW + 5 * SECOND)
    assert state(inventory, now=NOW + DOWN_AFTER - 1) is NodeState.UNANSWERED
    assert state(inventory, now=NOW + DOWN_AFTER) is NodeState.DOWN
    node = inventory.find("a:1")
    assert node is not None
    assert (node.failing_since, node.reason) == (NOW, "did not answer again")
    assert words_of(node, NOW + 12 * SECOND) == "no answer for 12.0 s"
    inventory.note_answer("a:1", NOW + DOWN_AFTER)
    assert state(inventory, now=NOW + DOWN_AFTER) is NodeState.UP


def test_a_clock_that_is_set_back_makes_no_node_down() -> None:
    inventory = named("a")
    inventory.note_failure("a:1", "x", NOW)
    assert state(inventory, now=NOW - MINUTE) is NodeState.UNANSWERED
    node = inventory.find("a:1")
    assert node is not None
    assert words_of(node, NOW - MINUTE) == "no answer for 0 us"


@pytest.mark.parametrize(
    ("is_draining", "is_drained", "expected"),
    [(True, True, NodeState.STOPPED), (True, False, NodeState.DOWN), (False, False, NodeState.DOWN)],
)
def test_a_node_that_was_drained_is_stopped_on_purpose(
    is_draining: bool, is_drained: bool, expected: NodeState
) -> None:
    inventory = named("a")
    inventory.note_drain("a:1", is_draining=is_draining, is_drained=is_drained)
    inventory.note_failure("a:1", "refused", NOW)
    assert state(inventory, now=NOW + DOWN_AFTER) is expected


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
    inventory.note_figures("a:1", figures({"t": 1}), NOW)
    inventory.note_drain("a:1", is_draining=True, is_drained=True)
    assert inventory.find("a:1") is None, "what is told of a node that is not known makes none"


def test_round_trip() -> None:
    node = record(
        failing_since=NOW, reason="x", figures_at=NOW, figures={"depth": 3}, is_drained=True,
        stuck=(Stuck("t", 3, 1),),
    )  # fmt: skip
    again = restored(json.loads(json.dumps(stored(node))))
    assert again == NodeRecord(
        node.producer, False, NOW, NOW, "x", NOW, {"depth": 3}, (Stuck("t", 3, 1),), is_drained=True
    )

"""Settings of topics: changes, and when they may lose messages."""

from typing import Any

import pytest

from admin.output.form_state import FieldError
from admin.output.topic_settings import (
    AS_NODE,
    NodeSettings,
    differences,
    differing,
    may_remove,
    node_settings,
    read_changes,
    state_of,
)  # fmt: skip
from tests.cases import each


def settings(node: str = "n:1", **own: Any) -> NodeSettings:
    """Return the settings of a node whose defaults are always, 1h0m0s, 0 and 1, with these of the topic's own."""
    answer = {
        "durability": "always", "retention": "1h0m0s", "retention_bytes": 0, "replicate": 1, "max_attempts": 0, **own,
    }  # fmt: skip
    return node_settings(node, answer | {"of_its_own": list(own)})


@each("typed, changes", [
        ({}, {}), ({"durability": "", "retention": " "}, {}),
        ({"durability": "os", "other": "x"}, {"durability": "os"}), ({"retention": "90m"}, {"retention": "1h30m0s"}),
        ({"retention": "0"}, {"retention": "0s"}), ({"retention_bytes": "007"}, {"retention_bytes": "7"}),
        ({"max_attempts": "05"}, {"max_attempts": "5"}), ({"max_attempts": "0"}, {"max_attempts": "0"}),
        ({"replicate": "default", "retention": "default"}, {"replicate": AS_NODE, "retention": AS_NODE}),
    ])  # fmt: skip
def test_what_is_typed_is_read(typed: dict[str, str], changes: dict[str, str]) -> None:
    assert read_changes(typed) == changes


@each("field, value", [
        ("durability", "never"), ("retention", "-1s"), ("retention", "2 days"), ("retention_bytes", "1e9"),
        ("retention_bytes", "-1"), ("retention_bytes", "9" * 20), ("replicate", "0"), ("replicate", "\u0661"),
        ("max_attempts", "65536"), ("max_attempts", "-1"), ("max_attempts", "none"),
    ])  # fmt: skip
def test_what_cannot_be_read_names_its_field(field: str, value: str) -> None:
    with pytest.raises(FieldError) as failure:
        read_changes({field: value})
    assert failure.value.field == field


def test_a_change_says_what_each_node_has() -> None:
    nodes = [settings("n:1"), settings("n:2", durability="os"), settings("n:3", durability="interval")]
    (change,) = differences(nodes, {"durability": "os"})
    assert change.before == (("always (default)", ("n:1",)), ("os", ("n:2",)), ("interval", ("n:3",)))
    assert change.description == "always (default) or os or interval -> os"
    assert differing(nodes) == {"durability"}


def test_what_all_nodes_have_is_no_change() -> None:
    nodes = [settings("n:1", retention="1h0m0s"), settings("n:2", retention="1h0m0s")]
    assert differences(nodes, {"retention": "1h0m0s", "durability": AS_NODE}) == []
    # equal to the default, but from now on the topic's own
    assert [one.name for one in differences([settings()], {"retention": "1h0m0s"})] == ["retention"]


@each("own, changes, loses", [
        ({}, {"retention": "30m0s"}, True), ({}, {"retention": "2h0m0s"}, False), ({}, {"retention": "0s"}, True),
        ({}, {"retention": AS_NODE}, False),  # it is so already
        ({"retention": "5h0m0s"}, {"retention": AS_NODE}, True),
        ({}, {"retention_bytes": "5"}, True),  # a further bound of what the time retains
        ({"retention": "0s"}, {"retention_bytes": "5"}, False),  # nothing is retained now
        ({"retention_bytes": 9}, {"retention_bytes": "8"}, True),
        ({"retention_bytes": 9}, {"retention_bytes": "9"}, False),
        ({"retention": "x"}, {"retention_bytes": "9"}, True), ({}, {"durability": "os", "replicate": "1"}, False),
    ])  # fmt: skip
def test_when_messages_may_be_removed(own: dict[str, Any], changes: dict[str, str], loses: bool) -> None:
    assert may_remove([settings(), settings("n:2", **own)][1:], changes) is loses


def test_the_state_differs_with_any_setting_and_not_with_the_order() -> None:
    one, two = settings("n:1"), settings("n:2")
    assert state_of([one, two]) == state_of([two, one])
    states = {
        state_of([one]), state_of([two]), state_of([settings(retention="1h0m0s")]), state_of([settings(replicate=2)]),
    }  # fmt: skip
    assert len(states) == 4

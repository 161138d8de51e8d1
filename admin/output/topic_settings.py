"""The settings of a topic on its nodes: what applies, what is set for the topic itself, and what a change does. Pure.

Nodes may lie: their answers are checked, and bounded.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from admin.output.form_state import FieldError
from shared.json_fields import JsonObject, text
from shared.topic_config import AS_NODE, MOST_TEXT, SETTINGS
from shared.values import parse_duration


@dataclass(frozen=True, slots=True)
class NodeSettings:
    """The settings of a topic on one node."""

    node: str
    values: Mapping[str, str]  # that apply, by name
    own: frozenset[str]  # names of those that are set for the topic; the others are the node's defaults

    def has(self, name: str, value: str) -> bool:
        """Return whether the node has this value, which may be AS_NODE, already."""
        return name not in self.own if value == AS_NODE else name in self.own and self.values[name] == value


@dataclass(frozen=True, slots=True)
class Change:
    """How a setting of a topic differs between what nodes have and what was asked for."""

    name: str
    label: str
    before: tuple[tuple[str, tuple[str, ...]], ...]  # values, and the nodes that have each
    after: str

    @property
    def description(self) -> str:
        """The change as a record of the audit trail has it."""
        return f"{' or '.join(value for value, _ in self.before)} -> {self.after}"


def node_settings(node: str, answer: JsonObject) -> NodeSettings:
    """Return the settings in a node's answer of /topic/config, with what is no text or number left out."""
    shown = {name: answer.get(name, "") for name in SETTINGS}
    values = {name: str(one)[:MOST_TEXT] if type(one) in (str, int) else "" for name, one in shown.items()}
    own = answer.get("of_its_own")
    return NodeSettings(node, values, frozenset(SETTINGS) & frozenset(map(text, own if isinstance(own, list) else ())))


def read_changes(typed: Mapping[str, str]) -> dict[str, str]:
    """Return the settings to change, by name, as nodes take them. Those that are empty do not change. Raises FieldError."""
    values = {name: typed.get(name, "").strip() for name in SETTINGS}
    return {name: value if value == AS_NODE else _read(name, value) for name, value in values.items() if value}


def differences(nodes: Iterable[NodeSettings], changes: Mapping[str, str]) -> list[Change]:
    """Return the effects of the changes: of those that at least one node does not have already."""
    listed, found = list(nodes), []
    for name, after in changes.items():
        if all(node.has(name, after) for node in listed):
            continue
        before: dict[str, tuple[str, ...]] = {}
        for node in listed:
            value = node.values[name] if name in node.own else f"{node.values[name]} ({AS_NODE})"
            before[value] = (*before.get(value, ()), node.node)
        found.append(Change(name, SETTINGS[name].label, tuple(before.items()), after))
    return found


def may_remove(nodes: Iterable[NodeSettings], changes: Mapping[str, str]) -> bool:
    """Return whether nodes may remove retained messages because of the changes.

    A bound of 0 does not bound; with both bounds messages stay within both.
    """
    for node in nodes:
        try:
            retention, size = parse_duration(node.values["retention"]), int(node.values["retention_bytes"])
        except ValueError:  # a node may lie: be careful
            return True
        for name, now, parse in (("retention", retention, parse_duration), ("retention_bytes", size, int)):
            after = changes.get(name)
            if after is None or node.has(name, after) or not (retention or size):
                continue
            bound = 0 if after == AS_NODE else parse(after)
            if not now or bound < now:
                return True
    return False


def state_of(nodes: Iterable[NodeSettings]) -> str:
    """Return a word that differs if any setting does, to notice changes between a preview and its confirmation."""
    states = sorted((node.node, *sorted(node.values.items()), *sorted(node.own)) for node in nodes)
    return hashlib.sha256(repr(states).encode()).hexdigest()[:16]


def differing(nodes: Iterable[NodeSettings]) -> set[str]:
    """Return the names of the settings that are not the same on all nodes."""
    listed = list(nodes)
    return {name for name in SETTINGS if len({(one.values[name], name in one.own) for one in listed}) > 1}


def _read(name: str, value: str) -> str:
    """Return the value of a setting as nodes take it. Raises FieldError."""
    setting = SETTINGS[name]
    try:
        return str(setting.show(setting.read(value)))
    except ValueError:
        raise FieldError(name, f"{setting.label} must be {setting.expected}, or {AS_NODE}.") from None

"""Makers of nodes, channels and snapshots for alarms. Times are ns since the epoch."""

from collections.abc import Mapping
from typing import Any

from hypothesis import strategies as st

from admin.alarms.checks import Checks
from admin.alarms.rules import Thresholds
from admin.alarms.subject import Subject
from admin.nodes.cluster import Producer
from admin.nodes.inventory import NodeRecord, NodeState
from admin.nodes.snapshot import ChannelFigures, Key, NodeFacts, Snapshot, TopicFigures

SECOND = 1_000_000_000
MINUTE = 60 * SECOND
NOW = 1_800_000_000 * SECOND
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(1 << 70), 1 << 70) | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
)  # answers of a node that lies


def producer(name: str = "n", port: int = 1, **more: Any) -> Producer:
    """Return a node of version 1.0.0 that one nsqlookupd names; its address is NAME:PORT."""
    given: dict[str, Any] = {"tcp_port": 4150, "version": "1.0.0", "remote_addresses": ("l:1/a",)}
    return Producer(**{"hostname": name, "broadcast_address": name, "http_port": port, **given, **more})


def record(name: str = "n", port: int = 1, *, is_named: bool = True, **more: Any) -> NodeRecord:
    """Return the record of a node that answered just now."""
    return NodeRecord(**{"producer": producer(name, port), "is_named": is_named, "seen_at": NOW, **more})


def facts(state: NodeState = NodeState.UP, node: NodeRecord | None = None, **more: Any) -> NodeFacts:
    return NodeFacts(node or record(), state, **more)


def channel(**counts: Any) -> ChannelFigures:
    return ChannelFigures(**{**dict.fromkeys(ChannelFigures._fields, 0), "paused": False, **counts})


def topic(**counts: Any) -> TopicFigures:
    return TopicFigures(**{**dict.fromkeys(TopicFigures._fields, 0), "paused": False, **counts})


def look(
    channels: Mapping[Key, ChannelFigures] | None = None, at: int = NOW, answered: tuple[str, ...] = ("n:1",), **more: Any
) -> Snapshot:  # fmt: skip
    """Return a snapshot of these channels, all on the first of the nodes that answered."""
    parts = {node: dict(channels or {}) if node == answered[0] else {} for node in answered}
    return look_at(parts, at, **more)


def look_at(parts: Mapping[str, Mapping[Key, ChannelFigures]], at: int = NOW, **more: Any) -> Snapshot:
    channels: dict[Key, ChannelFigures] = {}
    for part in parts.values():
        channels |= {key: channels[key].plus(one) if key in channels else one for key, one in part.items()}
    given = {"channels": channels, "parts": {node: dict(part) for node, part in parts.items()}}
    return Snapshot(**{"at": at, **given, "answered": frozenset(parts), **more})


def found(rule: str, *looks: Snapshot, settings: tuple[str, ...] = ()) -> list[Subject]:
    checks = Checks(Thresholds(settings))
    subjects: list[Subject] = []
    for one in looks:
        subjects = checks.check(one)
    return [one for one in subjects if one.rule == rule]


def words(rule: str, *looks: Snapshot, settings: tuple[str, ...] = ()) -> dict[str, str]:
    """Return the texts of the rule's subjects in the last snapshot, by key."""
    return {one.key: one.words for one in found(rule, *looks, settings=settings)}

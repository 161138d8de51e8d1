"""The numbers of messages on a node, as any of its answers reports them. Pure; nodes may lie."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from admin.nodes.merge import LONGEST_NAME, fields, items
from shared.json_fields import JsonObject, number, objects, text

TOTALS = ("topics", "depth", "in_flight", "deferred", "buried", "clients", "messages")
JOBS, BURIED_JOBS = "jobs", "buried_jobs"  # totals of tubes, which the others do not count
_HELD = ("depth", "in_flight_count", "deferred_count")  # of a channel in /stats
_STATES = ("depth", "in_flight", "deferred")


class OnTopic(NamedTuple):
    """The messages of a topic on a node."""

    messages: int  # in any state but buried
    buried: int

    def plus(self, other: OnTopic) -> OnTopic:
        """Return the sum."""
        return OnTopic(self.messages + other.messages, self.buried + other.buried)


NOTHING = OnTopic(0, 0)


@dataclass(frozen=True, slots=True)
class Observation:
    """The messages on a node when it answered."""

    totals: Mapping[str, int] = field(default_factory=dict)  # some of TOTALS, JOBS and BURIED_JOBS
    topics: Mapping[str, OnTopic] = field(default_factory=dict)
    is_complete: bool = False  # True: all topics that hold messages are in it
    is_exact: bool = True  # False: its topics may hold more


def observation_of(path: str, arguments: Mapping[str, Any], data: JsonObject) -> Observation | None:
    """Return the messages on the node that gave this answer; None if the answer has no such number."""
    match path:
        case "/topics/figures":
            return _of_figures(data)
        case "/topics/rows":
            return _of_rows(arguments.get("topic", ()), data)
        case "/stats":
            return _of_stats(arguments, objects(data.get("topics")))
        case "/channels/attention":
            return _of_attention(data)
        case "/node/drain" if "depth" in data:  # it leaves out the topics of statistics and of the audit
            totals = {name: _count(data, name) for name in (*_STATES, JOBS)}
            return Observation(totals | {BURIED_JOBS: _count(data, "buried")})
    return None


def observation_of_topics(topics: Iterable[JsonObject]) -> Observation:
    """Return the messages in all topics of a node. `topics`: in the form of /stats."""
    listed = list(topics)
    channels = [one for topic in listed for one in objects(topic.get("channels"))]
    keys = {
        "in_flight": "in_flight_count",
        "deferred": "deferred_count",
        "buried": "buried_count",
        "clients": "client_count",
    }
    totals = {name: _sum(channels, key) for name, key in keys.items()}
    totals |= {"topics": len(listed), "messages": _sum(listed, "message_count")}
    totals["depth"] = _sum(listed, "depth") + _sum(channels, "depth")
    return Observation(totals, _held_in(listed), is_complete=True)


def _of_figures(data: JsonObject) -> Observation | None:
    totals = data.get("totals")
    if not isinstance(totals, dict):
        return None
    sums, columns = {name: _count(totals, name) for name in TOTALS}, fields(data.get("columns"))
    held, buried = items(columns.get("held")), items(columns.get("buried"))
    names = data.get("names")
    if not isinstance(names, list) or not len(names) == len(held) == len(buried):
        return Observation(sums)
    topics = {
        name: OnTopic(max(0, number(one)), max(0, number(other)))
        for name, one, other in zip(names, held, buried, strict=True)
        if (one or other) and isinstance(name, str) and len(name) <= LONGEST_NAME
    }
    return Observation(sums, topics, is_complete=True)


def _of_rows(asked: object, data: JsonObject) -> Observation:
    absent = dict.fromkeys(map(text, items(asked)), NOTHING)
    rows = {text(one.get("topic_name")): one for one in objects(data.get("topics"))}
    return Observation(
        topics=absent | {name: OnTopic(_count(one, "held"), _count(one, "buried")) for name, one in rows.items()}
    )


def _of_stats(arguments: Mapping[str, Any], topics: list[JsonObject]) -> Observation:
    if not arguments.get("topic"):
        return observation_of_topics(topics)
    return Observation(topics=_held_in(topics), is_exact=not arguments.get("channel"))


def _of_attention(data: JsonObject) -> Observation:
    found: dict[str, OnTopic] = {}
    for one in objects(data.get("channels")):
        held = OnTopic(sum(_count(one, name) for name in _STATES), _count(one, "buried"))
        found[_name(one, "topic")] = found.get(_name(one, "topic"), NOTHING).plus(held)
    for one in objects(data.get("topics")):
        found[_name(one, "topic")] = found.get(_name(one, "topic"), NOTHING).plus(OnTopic(_count(one, "depth"), 0))
    return Observation(topics=found, is_exact=False)


def _held_in(topics: Iterable[JsonObject]) -> dict[str, OnTopic]:
    """Return the messages of topics in the form of /stats."""
    found: dict[str, OnTopic] = {}
    for topic in topics:
        channels = objects(topic.get("channels"))
        held = _count(topic, "depth") + sum(_count(one, name) for one in channels for name in _HELD)
        found[_name(topic, "topic_name")] = OnTopic(held, _sum(channels, "buried_count"))
    return found


def _name(one: JsonObject, key: str) -> str:
    return text(one.get(key))[:LONGEST_NAME]


def _count(one: JsonObject, key: str) -> int:
    return max(0, number(one.get(key)))


def _sum(parts: Iterable[JsonObject], key: str) -> int:
    return sum(_count(one, key) for one in parts)

"""The subjects of alarms: one channel, topic, tube or node, with its problem, and the pages that show it. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from urllib.parse import quote

from admin.alarms.rules import Severity
from admin.nodes.snapshot import Key, Snapshot


@dataclass(frozen=True, slots=True)
class Place:
    """The subject of a page, as its address has it: `page` is the first segment of the path, "" for the topics."""

    page: str = ""
    topic: str = ""  # or tube
    channel: str = ""
    node: str = ""  # address


@dataclass(frozen=True, slots=True)
class Subject:
    """The node, channel, topic or tube that an alarm is about."""

    rule: str
    key: str  # identifies it within the rule
    name: str  # for people
    path: str  # of the page about it, below the base path
    words: str  # the problem now
    value: float  # the larger, the worse
    severity: Severity
    topic: str = ""  # "": it concerns no topic, and users who may see all topics see it
    since: int = 0  # ns since the epoch, if that is known; 0: since it was found
    node: str = ""  # address of the node that it concerns; "": of no particular one
    neighbors: tuple[str, ...] = ()  # addresses of other nodes that it concerns, as those on the same disk
    advice: str = ""  # the action to take here; "": that of its rule

    def is_about(self, place: Place) -> bool:
        """Return whether a page is about the same topic, channel, tube or node, or is the page to which the alarm leads."""
        if place.node:
            return place.node in (self.node, *self.neighbors) and place.topic in ("", self.topic)
        if not place.topic:
            return bool(place.page) and self.path.partition("?")[0] == place.page
        names = place.topic, f"{place.topic}/{place.channel}"
        return self.topic == place.topic and (not place.channel or self.name in names)


Found = Iterator[Subject]
Check = Callable[[Snapshot], Found]  # yields the subjects of a rule


def channel_subject(
    rule: str, key: Key, words: str, value: float, severity: Severity = Severity.WARNING, asked: str = "", page: str = "topics"
) -> Subject:  # fmt: skip
    """Return a subject that is a channel. Its page is `page`, with `asked` as its query."""
    path = f"{page}/{'/'.join(quote(one, safe='') for one in key)}{asked}"
    return Subject(rule, "/".join(key), "/".join(key), path, words, value, severity, key[0])


def topic_subject(rule: str, name: str, words: str, value: float) -> Subject:
    """Return a subject that is a topic."""
    return Subject(rule, name, name, f"topics/{quote(name, safe='')}", words, value, Severity.WARNING, name)


def node_subject(
    rule: str, name: str, words: str, value: float = 0.0, severity: Severity = Severity.WARNING, path: str = "", since: int = 0
) -> Subject:  # fmt: skip
    """Return a subject that is a node or an nsqlookupd. `path` "": its page is that of the node."""
    path = path or f"nodes/{quote(name, safe='')}"
    return Subject(rule, name, name, path, words, value, severity, since=since, node=name)

"""What an alarm is about: one channel, topic, tube or node, and what is wrong with it. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from urllib.parse import quote

from admin.alarm_rules import Severity
from admin.snapshot import Key, Snapshot


@dataclass(frozen=True, slots=True)
class Subject:
    """What an alarm is about: a node, a channel, a topic, a tube."""

    rule: str
    key: str  # identifies it within the rule
    name: str  # for people
    path: str  # of the page about it, below the base path
    words: str  # what is wrong with it now
    value: float  # the larger, the worse
    severity: Severity
    topic: str = ""  # "": it concerns no topic, and everybody who may see all topics sees it
    since: int = 0  # ns since the epoch, if that is known; 0: since it was found

    def is_about(self, topic: str, channel: str, node: str) -> bool:
        """Return whether the page of this node, topic, or channel of the topic ("": of none) shows what it is about."""
        if node:
            return not self.topic and self.key == node
        return bool(topic) and self.topic == topic and (not channel or self.name in (topic, f"{topic}/{channel}"))


Found = Iterator[Subject]
Check = Callable[[Snapshot], Found]  # yields what a rule holds for


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
    return Subject(rule, name, name, path or f"nodes/{quote(name, safe='')}", words, value, severity, since=since)

"""How far a query has read: for each topic and node the log that it reads and the next offset. Pure.

Spark stores {"orders/617": {"log": "c0ffee...", "next": 17}, ..., "v": 1} and compares the text, so the keys are sorted.

See docs/contributing/design/spark.md#offsets.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, NamedTuple

VERSION = 1
OWN, PROMOTED, REPLICA = "own", "promoted", "replica"  # how a node has a log


class NodeTopic(NamedTuple):
    """A topic on one node, given by its node number."""

    topic: str
    node: str

    def __str__(self) -> str:
        return f"{self.topic}/{self.node}"


class LogPosition(NamedTuple):
    """The position of a reader in a place."""

    log: str  # id of the log; another log has other messages at the same offsets
    next: int


@dataclass(frozen=True, slots=True)
class TopicRange:
    """The messages that a topic on a node has."""

    address: str  # HTTP address of the node
    log: str
    first: int  # offset of the earliest message
    next: int  # offset after the last durable message
    # the logs that this one was restored from, each with the offset up to which both have the same messages
    parents: tuple[tuple[str, int], ...] = ()
    kind: str = OWN  # OWN, PROMOTED or REPLICA
    retained: bool = True  # False: the topic retains no finished messages

    def has(self, at: LogPosition) -> bool:
        """Return True if this log has the message at the position."""
        end = self.next if at.log == self.log else min(self.next, dict(self.parents).get(at.log, 0))
        return self.first <= at.next < end

    def continues(self, at: LogPosition) -> bool:
        """Return True if this log has the messages before the position, at the same offsets."""
        return at.log == self.log or at.next <= dict(self.parents).get(at.log, -1)


@dataclass(frozen=True, slots=True)
class Span:
    """Messages of a topic on a node, from one offset to another."""

    place: NodeTopic
    log: str
    first: int
    end: int
    address: str = ""  # the last known address of the node; "": unknown

    @property
    def count(self) -> int:
        """Return the number of offsets in the span."""
        return self.end - self.first


class OffsetError(ValueError):
    """An offset that this version cannot read."""


def encode(offsets: Mapping[NodeTopic, LogPosition]) -> dict[str, Any]:
    """Return the offsets in the form that Spark stores."""
    stored: dict[str, Any] = {str(place): {"log": at.log, "next": at.next} for place, at in offsets.items()}
    return dict(sorted(stored.items())) | {"v": VERSION}


def decode(stored: Mapping[str, Any]) -> dict[NodeTopic, LogPosition]:
    """Return the offsets that `encode` wrote. Raises OffsetError."""
    if stored.get("v") != VERSION:
        raise OffsetError(
            f"the checkpoint is of version {stored.get('v')!r} of this source's offsets, which knows {VERSION}"
        )
    found = {}
    for key, value in stored.items():
        if key == "v":
            continue
        topic, slash, node = key.rpartition("/")
        try:
            found[NodeTopic(topic, node)] = LogPosition(str(value["log"]), int(value["next"]))
        except (TypeError, KeyError, ValueError):
            slash = ""
        if not slash:
            raise OffsetError(f"the checkpoint is not of this source: {key!r}: {value!r}")
    return found


def ends(
    start: Mapping[NodeTopic, LogPosition], ranges: Mapping[NodeTopic, TopicRange]
) -> dict[NodeTopic, LogPosition]:
    """Return the end of each place. A place that does not answer keeps its position in `start`; a new place is added."""
    return {**start, **{place: LogPosition(one.log, one.next) for place, one in ranges.items()}}


def firsts_of(ranges: Mapping[NodeTopic, TopicRange]) -> dict[NodeTopic, int]:
    """Return the offset of the earliest message of each place."""
    return {place: one.first for place, one in ranges.items()}


def moved(
    start: Mapping[NodeTopic, LogPosition],
    end: Mapping[NodeTopic, LogPosition],
    ranges: Mapping[NodeTopic, TopicRange],
) -> dict[NodeTopic, LogPosition]:
    """Return `start` with positions in the logs of `end`, where a node was restored that had read so far."""
    found = dict(start)
    for place, at in start.items():
        after, one = end.get(place), ranges.get(place)
        if after is not None and one is not None and after.log != at.log and one.continues(at) and one.continues(after):
            found[place] = LogPosition(after.log, at.next)
    return found


def holder_for(at: LogPosition, holders: Iterable[TopicRange]) -> TopicRange | None:
    """Return the holder to read the message at the position from; None: no one has it. Replicas are the last choice."""
    having = [one for one in holders if one.has(at)]
    return min(having, key=lambda one: (one.kind == REPLICA, one.log != at.log, one.address), default=None)


def is_behind(at: LogPosition, one: TopicRange | None) -> bool:
    """Return True if a reader may have to read from another node before it continues with the log that the node has now.

    `one`: the messages of the node; None: it does not answer.
    """
    return one is None or (one.log != at.log and not (one.continues(at) and one.first <= at.next))


def older_logs(at: LogPosition, one: TopicRange | None) -> list[str]:
    """Return the logs that may have the next message of a reader that `is_behind`, the oldest first.

    The node may have had more than one log since the reader's: each time it was lost and returned, it began another one.
    """
    later = () if one is None or not one.continues(at) else one.parents
    return [at.log, *(log for log, end in later if log != at.log and end > at.next)]


def old_log(at: LogPosition, one: TopicRange | None, holders: Iterable[TopicRange]) -> TopicRange | None:
    """Return the unread part of a log of a reader that `is_behind`, up to the node's later logs; None: there is none."""
    left = [other for other in holders if other.log == at.log and other.has(at)]
    found = holder_for(at, left)
    if found is None or one is None or not one.continues(at):
        return found
    return replace(found, next=min(found.next, one.first, dict(one.parents)[at.log]))


def clipped(
    start: Mapping[NodeTopic, LogPosition],
    end: Mapping[NodeTopic, LogPosition],
    firsts: Mapping[NodeTopic, int],
    most: int,
) -> dict[NodeTopic, LogPosition]:
    """Move from `start` towards `end` by `most` messages in total, shared among places by how many messages wait in each.

    `firsts` gives the first offset of places whose log was not read before.
    """
    waiting = {place: at.next - _begin(start, place, at, firsts) for place, at in end.items()}
    total = sum(count for count in waiting.values() if count > 0)
    if total <= most:
        return dict(end)
    found, left = {}, most
    for place, at in sorted(end.items()):
        count = max(0, waiting[place])
        share = min(left, -(-count * most // total))
        left -= share
        if share or place in start:
            found[place] = LogPosition(at.log, at.next - count + share) if count else at
    return found


def spans(
    start: Mapping[NodeTopic, LogPosition],
    end: Mapping[NodeTopic, LogPosition],
    firsts: Mapping[NodeTopic, int],
    least: int = 0,
) -> list[Span]:
    """Split the messages between `start` and `end` into about `least` spans if that is more than one for each place."""
    whole = []
    for place, at in sorted(end.items()):
        first = _begin(start, place, at, firsts)
        if at.next > first:
            whole.append(Span(place, at.log, first, at.next))
    total = sum(part.count for part in whole)
    if len(whole) >= least or not total:
        return whole
    return [piece for part in whole for piece in _split(part, -(-part.count * least // total))]


def packed(parts: Sequence[Span], most: int) -> list[tuple[Span, ...]]:
    """Pack spans into at most `most` groups with about as many messages each; the spans keep their order."""
    size = -(-sum(part.count for part in parts) // most)
    groups: list[list[Span]] = []
    held = size  # messages of the last group
    for part in parts:
        if held >= size:
            groups.append([])
            held = 0
        groups[-1].append(part)
        held += part.count
    return [tuple(group) for group in groups]


def _begin(
    start: Mapping[NodeTopic, LogPosition], place: NodeTopic, at: LogPosition, firsts: Mapping[NodeTopic, int]
) -> int:
    before = start.get(place)
    return before.next if before is not None and before.log == at.log else firsts.get(place, 0)


def _split(span: Span, count: int) -> Iterable[Span]:
    return (Span(span.place, span.log, span.first + first, span.first + end) for first, end in parts(span.count, count))


def parts(size: int, count: int) -> list[tuple[int, int]]:
    """Split 0..size into `count` ranges (first, end) of about the same size, and leave out empty ones."""
    marks = [size * number // count for number in range(count + 1)]
    return [(first, end) for first, end in pairwise(marks) if end > first]

"""The durable state of all batches of one log: how the log's records change it, and what a checkpoint has of it.

Members are known from the attributes of PUBLISH records, so publishing one writes no record of its own. The other records are
in msgpack:

    BATCH      [name, state, created, changed, count, moved, buried, next number, members]
    FOLLOW_UP  [batch, number, topic, attributes, body]
    FOLLOWED   [batch, [number, ...]]: these follow-ups were published

`members` is nil, or {topic: [first, end, first, end, ...]}. A BATCH record without members changes the rest, and creates the
batch. A checkpoint has one with members of each batch, then its follow-ups. Each can be applied to a state that includes it.
"""

from __future__ import annotations

from array import array
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

import msgpack

from nsqd.core.message.attributes import Attributes, unpack
from nsqd.core.records import RecordKind
from penstock.protocol.headers import AFTER, BATCH, DEAD_LETTER_TOPIC

PACKED_BATCH: bytes = msgpack.packb(BATCH)  # is in the packed attributes of each member


class BatchState(IntEnum):
    """The state of a batch; the numbers are those of the log."""

    OPEN = 0
    CLOSED = 1  # it is done once no member is pending; until then members can be added, as by a member at work
    DONE = 2
    FORGOTTEN = 3  # only in the log


@dataclass(frozen=True, slots=True)
class FollowUp:
    """A message that is published when a batch is done."""

    topic: str
    body: bytes
    attributes: Attributes

    @property
    def batch(self) -> str:
        """Return the batch of which it will be a member; "": none."""
        return dict(self.attributes.headers).get(BATCH, "")

    @property
    def size(self) -> int:
        return len(self.body) + sum(len(name) + len(value) for name, value in self.attributes.headers)


@dataclass(slots=True)
class NamedBatch:
    """A batch, as far as its members and follow-ups are in one log."""

    name: str
    created: int  # s since the epoch
    changed: int  # s since the epoch, when its last member was published, or when it was done
    state: BatchState = BatchState.OPEN
    count: int = 0  # members, also those that are finished, and those of deleted topics
    moved: int = 0  # of these, those that were moved to a dead-letter topic
    buried: int = 0  # of these, those that were buried or moved when the batch was done
    # by the topic's number, ascending: first, end, first, end ...; none once the batch is done
    members: dict[int, array[int]] = field(default_factory=dict)
    follow_ups: dict[int, FollowUp] = field(default_factory=dict)  # by number, ascending
    next_number: int = 0  # of a follow-up: one is never used again
    # follow-ups that were published since the start, and may not be safe yet
    sent: set[int] = field(default_factory=set)

    def add(self, topic: int, first: int, count: int) -> int:
        """Add members from the ordinal `first` of a topic on, later than its earlier ones. Returns the number of new runs."""
        self.count += count
        spans = self.members.setdefault(topic, array("Q"))
        if spans and spans[-1] == first:
            spans[-1] += count
            return 0
        spans.extend((first, first + count))
        return 1

    @property
    def spans(self) -> int:
        """Return the number of runs of members, each of which takes 16 bytes."""
        return sum(map(len, self.members.values())) // 2

    def ordinals(self) -> Iterator[tuple[int, int]]:
        """Yield topic and ordinal of each member. Other members may be added meanwhile, and topics deleted."""
        for topic, spans in list(self.members.items()):
            for at in range(0, len(spans), 2):
                yield from ((topic, ordinal) for ordinal in range(spans[at], spans[at + 1]))


class BatchTable:
    """All batches of a log, as its records state them."""

    def __init__(self) -> None:
        self.known: dict[str, NamedBatch] = {}  # the oldest first
        self.spans = 0  # runs of members of all of them

    def apply(self, kind: RecordKind, content: bytes) -> None:
        """Apply a BATCH, FOLLOW_UP or FOLLOWED record. Those of unknown batches precede the state in a checkpoint."""
        name, *fields = msgpack.unpackb(content, strict_map_key=False)
        if kind is RecordKind.BATCH:
            self._apply_batch(name, *fields)
        elif (batch := self.known.get(name)) is not None:
            if kind is RecordKind.FOLLOW_UP:
                _, number, follow_up = unpack_follow_up(content)
                batch.follow_ups[number] = follow_up
                batch.next_number = max(batch.next_number, number + 1)
            else:
                for number in fields[0]:
                    batch.follow_ups.pop(number, None)

    def _apply_batch(self, name: str, state: int, *fields: Any) -> None:
        if state == BatchState.FORGOTTEN:
            if name in self.known:
                self.spans -= self.known.pop(name).spans
            return
        created, changed, count, moved, buried, next_number, members = fields
        batch = self.known.setdefault(name, NamedBatch(name, created, changed))
        batch.state, batch.created, batch.changed = BatchState(state), created, changed
        batch.count, batch.moved, batch.buried, batch.next_number = count, moved, buried, next_number
        if members is not None or batch.state is BatchState.DONE:
            self._set_members(batch, {topic: array("Q", spans) for topic, spans in (members or {}).items()})

    def _set_members(self, batch: NamedBatch, members: dict[int, array[int]]) -> None:
        before, batch.members = batch.spans, members
        self.spans += batch.spans - before

    def note_published(self, attributes: bytes, topic: int, first: int, count: int, changed: int) -> None:
        """Note that messages with these packed attributes were published at `changed` (s since the epoch)."""
        if PACKED_BATCH not in attributes:
            return
        headers = dict(unpack(attributes, 0).headers)
        batch = self.known.get(headers.get(BATCH, ""))
        if batch is None or batch.state is BatchState.DONE:
            return
        batch.changed = changed
        if DEAD_LETTER_TOPIC in headers:
            if "," not in headers[DEAD_LETTER_TOPIC]:  # else the dead letter of a dead letter
                batch.moved += count
        else:
            self.spans += batch.add(topic, first, count)

    def drop_topic(self, number: int) -> None:
        """Note that a topic was deleted: its members are pending no longer."""
        for batch in self.known.values():
            self.spans -= len(batch.members.pop(number, ())) // 2

    def keep_topics(self, numbers: Iterable[int]) -> None:
        """Drop the members of all other topics: ephemeral ones, after a restart."""
        kept = set(numbers)
        for batch in self.known.values():
            self._set_members(batch, {topic: spans for topic, spans in batch.members.items() if topic in kept})

    def keep_tail(self, firsts: Mapping[int, int], follow_ups: Container[tuple[str, int]]) -> None:
        """Drop members before an ordinal of each topic, other topics' members, other follow-ups, and batches without any."""
        for name, batch in list(self.known.items()):
            members = {topic: _from(spans, firsts[topic]) for topic, spans in batch.members.items() if topic in firsts}
            self._set_members(batch, {topic: spans for topic, spans in members.items() if spans})
            kept = {number: one for number, one in batch.follow_ups.items() if (name, number) in follow_ups}
            batch.follow_ups, batch.moved, batch.buried = kept, 0, 0
            batch.count = sum(1 for _ in batch.ordinals())
            if not batch.members and not kept:
                del self.known[name]

    def dump(self) -> Iterator[tuple[RecordKind, bytes]]:
        """Yield the records of a checkpoint. The batches may change meanwhile."""
        for batch in list(self.known.values()):
            if self.known.get(batch.name) is batch:
                members = {topic: list(spans) for topic, spans in batch.members.items()}
                yield RecordKind.BATCH, pack_batch(batch, batch.state, members)
            for number in list(batch.follow_ups):
                if self.known.get(batch.name) is batch and number in batch.follow_ups:
                    yield RecordKind.FOLLOW_UP, pack_follow_up(batch.name, number, batch.follow_ups[number])


def _from(spans: array[int], boundary: int) -> array[int]:
    """Return the part of members' runs from an ordinal on."""
    kept = array("Q")
    for at in range(0, len(spans), 2):
        if spans[at + 1] > boundary:
            kept.extend((max(boundary, spans[at]), spans[at + 1]))
    return kept


def pack_batch(batch: NamedBatch, state: BatchState, members: dict[int, list[int]] | None = None) -> bytes:
    """Return the content of a BATCH record."""
    counts = batch.count, batch.moved, batch.buried, batch.next_number
    packed: bytes = msgpack.packb((batch.name, state, batch.created, batch.changed, *counts, members))
    return packed


def pack_follow_up(batch: str, number: int, follow_up: FollowUp) -> bytes:
    """Return the content of a FOLLOW_UP record."""
    fields = batch, number, follow_up.topic, follow_up.attributes.pack(0), follow_up.body
    packed: bytes = msgpack.packb(fields)
    return packed


def unpack_follow_up(content: bytes) -> tuple[str, int, FollowUp]:
    """Return the batch, the number and the follow-up in a FOLLOW_UP record."""
    batch, number, topic, attributes, body = msgpack.unpackb(content)
    return batch, number, FollowUp(topic, body, unpack(attributes, 0))


def pack_followed(batch: str, numbers: list[int]) -> bytes:
    """Return the content of a FOLLOWED record."""
    packed: bytes = msgpack.packb((batch, numbers))
    return packed


def totals(parts: Iterable[NamedBatch]) -> tuple[int, int]:
    """Return the number of members of a batch, and how many were buried when it was done. `parts`: those in all logs.

    A member that two channels moved to dead-letter topics counts as two that were buried, but never as more than there are.
    """
    counts = [(part.count, part.buried) for part in parts]
    members = sum(count for count, _ in counts)
    return members, min(members, sum(buried for _, buried in counts))


def names_in(attributes: Attributes) -> tuple[str | None, str | None] | None:
    """Return the batch of messages with these attributes, and the batch that they follow, if any; None: neither."""
    batch = after = None
    for name, value in attributes.headers:
        if name == BATCH:
            batch = value
        elif name == AFTER:
            after = value
    return None if batch is after is None else (batch, after)

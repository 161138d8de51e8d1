"""The store that makes spans: it is between the core and its store, and sees every change of messages, as that of a trace does.

A node without spans has none, and pays nothing.
"""

from bisect import bisect_left
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from operator import itemgetter
from typing import Any, cast

from nsqd.core.message.frame import HEADER_SIZE, ID_SIZE
from nsqd.core.reader import ReaderKind
from nsqd.core.sequence.journal import ReaderJournal, TopicJournal
from nsqd.core.sequence.mark import Mark, Promise
from nsqd.core.sequence.store import Store
from nsqd.core.sequence.wrapper import Wrapper
from nsqd.core.spans import INTERNAL, SERVER, Sampled, Span, Spans

_ordinal = itemgetter(0)


def spanned_store(store: Store, spans: Spans) -> Store:
    """Return a store that passes every call on to `store`, and makes spans of what the core records."""
    return cast(Store, _SpannedStore(store, spans))


class _SpannedStore(Wrapper):
    def __init__(self, store: Store, spans: Spans) -> None:
        super().__init__(store)
        self._spans = spans

    def begin(self, now: int, wall: int) -> str:
        self._spans.begin_turn(wall)
        refusal: str = self._inner.begin(now, wall)
        return refusal

    def commit(self) -> Sequence[Promise]:
        promises: Sequence[Promise] = self._inner.commit()
        if self._spans.has_published:
            self._spans.committed(promises)
        return promises

    def topic(self, number: int, name: str) -> TopicJournal:
        return cast(TopicJournal, _SpannedTopic(self._inner.topic(number, name), self._spans, name))


class _SpannedTopic(Wrapper):
    """A TopicJournal that makes the spans of publishes."""

    def __init__(self, journal: TopicJournal, spans: Spans, name: str) -> None:
        super().__init__(journal)
        self._spans, self._name = spans, name
        self._marks: tuple[Mark, ...] = ()
        self._sampled: list[Sampled] = []  # ascending

    def set_policy(self, policy: Any) -> tuple[Mark, ...]:
        self._marks = self._inner.set_policy(policy)
        return self._marks

    def ask_for_copies(self, count: int, has_limit: bool = False) -> tuple[Mark, ...]:
        self._marks = self._inner.ask_for_copies(count, has_limit)
        return self._marks

    def publish(
        self,
        first: int,
        frames: list[bytes],
        ids: bytes,
        largest: int,
        due: int,
        attributes: bytes,
        references: int,
        owners: Collection[int] | None = None,
    ) -> None:
        self._inner.publish(first, frames, ids, largest, due, attributes, references, owners)
        chosen, trace, parent = self._spans.sample(attributes, len(frames))
        if trace and chosen:  # published together: one span
            self._publish(trace, parent, frames, ids[:ID_SIZE].decode())
        for index in chosen:
            message_id = ids[index * ID_SIZE : (index + 1) * ID_SIZE].decode()
            own, above = trace, parent
            if not trace:
                own = _digest(16, message_id)
                above = self._publish(own, "", frames[index : index + 1], message_id)
            self._spans.keep(self._sampled, Sampled(first + index, message_id, own, above, due != 0, owners))

    def _publish(self, trace: str, parent: str, frames: list[bytes], message_id: str) -> str:
        """Make the span of a publish, and return its id. `message_id` is the first message's."""
        attributes = _attributes("publish", "send", self._name)
        if len(frames) == 1:
            size = len(frames[0]) - HEADER_SIZE
            attributes |= {"messaging.message.id": message_id, "messaging.message.body.size": size}
        else:
            attributes["messaging.batch.message_count"] = len(frames)
        span_id, wall = _digest(8, "publish", message_id), self._spans.wall
        span = Span(f"publish {self._name}", SERVER, trace, span_id, parent, wall, 0, attributes)
        self._spans.publish(span, self._marks)
        return span_id

    def reader(self, number: int, name: str, kind: int, start: int) -> ReaderJournal:
        journal: ReaderJournal = self._inner.reader(number, name, kind, start)
        if kind != ReaderKind.CHANNEL:
            return journal
        return cast(ReaderJournal, _SpannedReader(journal, self._spans, self, (self._name, name), number, start))

    def sampled(self, first: int, end: int) -> list[Sampled]:
        """Return those of the messages first..end whose deliveries are spans, ascending."""
        found = self._sampled
        if not found or found[-1].ordinal < first:
            return []
        return found[bisect_left(found, first, key=_ordinal) : bisect_left(found, end, key=_ordinal)]


@dataclass(slots=True)
class _Deliveries:
    """The deliveries of a sampled message by a channel."""

    message: Sampled
    attempts: int
    start: int  # of the last one, in ns since the epoch; 0: it has ended, or there was none


class _SpannedReader(Wrapper):
    """The ReaderJournal of a channel, which makes the spans of deliveries."""

    def __init__(
        self,
        journal: ReaderJournal,
        spans: Spans,
        topic: _SpannedTopic,
        names: tuple[str, str],
        number: int,
        start: int,
    ) -> None:
        super().__init__(journal)
        self._spans, self._topic, self._names, self._number, self._cursor = spans, topic, names, number, start
        self._deliveries: dict[int, _Deliveries] = {}  # by ordinal, until the channel is done with the message
        self._dropped: list[tuple[int, int]] = []  # (first, end) of messages that ended before the cursor passes them

    def advance(self, cursor: int) -> None:
        self._inner.advance(cursor)
        for message in self._topic.sampled(self._cursor, cursor):
            ordinal, is_own = message.ordinal, message.owners is None or self._number in message.owners
            is_dropped = any(first <= ordinal < end for first, end in self._dropped)
            if is_own and not is_dropped and not message.is_delayed and ordinal not in self._deliveries:
                self._deliver(message, 1)
        if self._dropped:
            self._dropped = [span for span in self._dropped if span[1] > cursor]
        self._cursor = cursor

    def requeue(self, ordinal: int, attempts: int, failures: int, due: int) -> None:
        self._inner.requeue(ordinal, attempts, failures, due)
        self._update(ordinal, attempts, "requeued")

    def bury(self, ordinal: int, message_id: bytes, attempts: int, failures: int, reason: str) -> None:
        self._inner.bury(ordinal, message_id, attempts, failures, reason)
        self._update(ordinal, attempts, "buried", reason)

    def finish(self, first: int, count: int) -> None:
        end = first + count
        self._inner.finish(first, count)
        self._forget(first, end, "finished")
        if end > self._cursor:
            if self._dropped and self._dropped[-1][1] == first:  # as a channel that is full drops each new message
                first = self._dropped.pop()[0]
            self._dropped.append((first, end))

    def finish_all(self, end: int) -> None:
        self._inner.finish_all(end)
        self._forget(0, end, "dropped")

    def _update(self, ordinal: int, attempts: int, outcome: str, error: str = "") -> None:
        """Note that a message came back after `attempts` deliveries, or is delivered again if there were fewer."""
        deliveries = self._deliveries.get(ordinal)
        if deliveries is not None:
            self._end(deliveries, outcome, error)
            if attempts > deliveries.attempts:
                deliveries.start = self._spans.wall
            deliveries.attempts = attempts
        else:
            for message in self._topic.sampled(ordinal, ordinal + 1):
                self._deliver(message, attempts)

    def _deliver(self, message: Sampled, attempts: int) -> None:
        """Note the first delivery of a message, or with 0 `attempts` that the cursor will pass it before that."""
        if self._spans.hold():
            start = self._spans.wall if attempts else 0
            self._deliveries[message.ordinal] = _Deliveries(message, attempts, start)

    def _end(self, deliveries: _Deliveries, outcome: str, error: str = "") -> None:
        """End the delivery that has begun, if one has."""
        message, start, deliveries.start = deliveries.message, deliveries.start, 0
        if not start:
            return
        topic, channel = self._names
        attributes = _attributes("deliver", "receive", topic) | {
            "messaging.consumer.group.name": channel,
            "messaging.message.id": message.id,
            "penstock.attempts": deliveries.attempts,
            "penstock.outcome": outcome,
        }
        span_id, wall = _digest(8, message.id, self._number, deliveries.attempts, start), self._spans.wall
        self._spans.end(
            Span(f"deliver {topic}", INTERNAL, message.trace, span_id, message.parent, start, wall, attributes, error)
        )

    def _forget(self, first: int, end: int, outcome: str) -> None:
        """End the deliveries of messages first..end, which the channel is done with."""
        known = self._deliveries
        if end - first <= len(known):
            chosen = [ordinal for ordinal in range(first, end) if ordinal in known]
        else:
            chosen = [ordinal for ordinal in known if first <= ordinal < end]
        for ordinal in chosen:
            self._end(known.pop(ordinal), outcome)
            self._spans.held -= 1


def _attributes(name: str, kind: str, topic: str) -> dict[str, str | int]:
    return {
        "messaging.system": "nsq",
        "messaging.operation.name": name,
        "messaging.operation.type": kind,
        "messaging.destination.name": topic,
    }


def _digest(size: int, *parts: object) -> str:
    """Return an id of `size` bytes as hex digits: equal parts have equal ids."""
    return blake2b(repr(parts).encode(), digest_size=size).hexdigest()

"""The store that makes spans: it is between the core and its store, and sees every change of messages, as that of a trace does.

A node without spans has none, and pays nothing.
"""

from bisect import bisect_left
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from operator import itemgetter
from typing import Any, cast

from nsqd.core.message.attributes import unpack
from nsqd.core.message.frame import HEADER_SIZE, ID_SIZE
from nsqd.core.reader import ReaderKind
from nsqd.core.sequence.journal import ReaderJournal, TopicJournal
from nsqd.core.sequence.mark import Mark, Promise
from nsqd.core.sequence.store import Store
from nsqd.core.sequence.wrapper import Wrapper
from nsqd.core.spans import INTERNAL, MOST_OF_BATCH, SERVER, Sampled, Span, Spans, context_in
from nsqd.core.work_queue.job import DUE_AT, RESERVATION, STATE_AT, JobState

NSQ, JOBS = "nsq", "beanstalkd"  # values of messaging.system, as those of penstock/telemetry.py
END_OF_ALL = 1 << 63  # higher than any ordinal
_ordinal = itemgetter(0)


def spanned_store(store: Store, spans: Spans, is_own: bool = True) -> Store:
    """Return a store that passes every call on to `store`, and makes spans of what the core records.

    `is_own`: it is that of the node's own log, whose turns are those of the spans.
    """
    return cast(Store, (_SpannedStore if is_own else _SpannedLog)(store, spans))


class _SpannedLog(Wrapper):
    def __init__(self, store: Store, spans: Spans) -> None:
        super().__init__(store)
        self._spans = spans

    def topic(self, number: int, name: str) -> TopicJournal:
        return cast(TopicJournal, _SpannedTopic(self._inner.topic(number, name), self._spans, name))


class _SpannedStore(_SpannedLog):
    def begin(self, now: int, wall: int) -> str:
        self._spans.begin_turn(wall)
        refusal: str = self._inner.begin(now, wall)
        return refusal

    def commit(self) -> Sequence[Promise]:
        promises: Sequence[Promise] = self._inner.commit()
        if self._spans.has_published:
            self._spans.committed(promises)
        return promises


class _SpannedTopic(Wrapper):
    """A TopicJournal that makes the spans of publishes."""

    def __init__(self, journal: TopicJournal, spans: Spans, name: str) -> None:
        super().__init__(journal)
        self._spans, self.name = spans, name
        self._marks: tuple[Mark, ...] = ()
        self._sampled: list[Sampled] = []  # ascending
        # ordinal of the first message that was published since the start; None: none was
        self._first: int | None = None

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
        if self._first is None:
            self._first = first
        chosen, trace, parent = self._spans.sample(attributes, len(frames))
        if not chosen:
            return
        system = NSQ if unpack(attributes, 0).job is None else JOBS
        if trace:  # published together: one span
            self._publish(system, trace, parent, frames, ids[:ID_SIZE].decode())
        for index in chosen:
            message_id = ids[index * ID_SIZE : (index + 1) * ID_SIZE].decode()
            own, above = trace, parent
            if not trace:
                own = _digest(16, message_id)
                above = self._publish(system, own, "", frames[index : index + 1], message_id)
            self._spans.keep(self._sampled, Sampled(first + index, message_id, own, above, due != 0, owners))

    def _publish(self, system: str, trace: str, parent: str, frames: list[bytes], message_id: str) -> str:
        """Make the span of a publish, and return its id. `message_id` is the first message's."""
        attributes = _attributes(system, "publish", "send", self.name)
        if len(frames) == 1:
            size = len(frames[0]) - HEADER_SIZE
            attributes |= {"messaging.message.id": message_id, "messaging.message.body.size": size}
        else:
            attributes["messaging.batch.message_count"] = len(frames)
        span_id, wall = _digest(8, "publish", message_id), self._spans.wall
        span = Span(f"publish {self.name}", SERVER, trace, span_id, parent, wall, 0, attributes)
        self._spans.publish(span, self._marks)
        return span_id

    def reader(self, number: int, name: str, kind: int, start: int) -> ReaderJournal:
        journal: ReaderJournal = self._inner.reader(number, name, kind, start)
        if kind == ReaderKind.CHANNEL:
            return cast(ReaderJournal, _SpannedChannel(journal, self._spans, self, name, number, start))
        return cast(ReaderJournal, _SpannedTube(journal, self._spans, self, number))

    def sampled(self, first: int, end: int) -> list[Sampled]:
        """Return those of the messages first..end whose deliveries are spans, ascending."""
        found = self._sampled
        earlier = self._earlier(first, end) if self._first is None or first < self._first else []
        if not found or found[-1].ordinal < first:
            return earlier
        return earlier + found[bisect_left(found, first, key=_ordinal) : bisect_left(found, end, key=_ordinal)]

    def _earlier(self, first: int, end: int) -> list[Sampled]:
        """Return those of the messages first..end from before the start that are sampled, as far as they are in memory."""
        if self._first is not None:
            end = min(end, self._first)
        found: list[Sampled] = []
        while (first := self._inner.next_with_headers(first, end)) < end:
            extent = self._inner.read(first) if self._inner.frame_in_memory(first, False) else None
            if extent is None:
                break
            for start, stop, attributes in extent.attributed(first, end):
                trace, parent, is_sampled = context_in(attributes)
                for ordinal in range(start, min(stop, start + MOST_OF_BATCH) if is_sampled else start):
                    at = (ordinal - extent.first) * ID_SIZE
                    message_id = extent.ids[at : at + ID_SIZE].decode()
                    found.append(Sampled(ordinal, message_id, trace, parent, extent.delayed, None))
            first = extent.end
        return found


@dataclass(slots=True)
class _Deliveries:
    """The deliveries of a sampled message by a channel."""

    message: Sampled
    attempts: int
    start: int  # of the last one, in ns since the epoch; 0: it has ended, or there was none


class _SpannedReader(Wrapper):
    """A ReaderJournal that makes the spans of deliveries."""

    def __init__(self, journal: ReaderJournal, spans: Spans, topic: _SpannedTopic, number: int) -> None:
        super().__init__(journal)
        self._spans, self._topic, self._number = spans, topic, number
        self._deliveries: dict[int, _Deliveries] = {}  # by ordinal, until the reader is done with the message
        self._attributes: dict[str, str | int] = {}

    def finish(self, first: int, count: int) -> None:
        self._inner.finish(first, count)
        self._forget(first, first + count, "finished")

    def finish_each(self, ordinals: list[int]) -> None:
        for ordinal in ordinals:
            self.finish(ordinal, 1)

    def finish_all(self, end: int) -> None:
        self._inner.finish_all(end)
        self._forget(0, end, "dropped")

    def detach(self) -> None:
        self._inner.detach()
        self._forget(0, END_OF_ALL, "moved")

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
        attributes = self._attributes | {
            "messaging.message.id": message.id,
            "penstock.attempts": deliveries.attempts,
            "penstock.outcome": outcome,
        }
        span_id, wall = _digest(8, message.id, self._number, deliveries.attempts, start), self._spans.wall
        name = f"deliver {attributes['messaging.destination.name']}"
        self._spans.end(Span(name, INTERNAL, message.trace, span_id, message.parent, start, wall, attributes, error))

    def _forget(self, first: int, end: int, outcome: str) -> None:
        """End the deliveries of messages first..end, which the reader is done with."""
        known = self._deliveries
        if end - first <= len(known):
            chosen = [ordinal for ordinal in range(first, end) if ordinal in known]
        else:
            chosen = [ordinal for ordinal in known if first <= ordinal < end]
        for ordinal in chosen:
            self._end(known.pop(ordinal), outcome)
            self._spans.held -= 1


class _SpannedChannel(_SpannedReader):
    """The journal of a channel, which makes the spans of its deliveries."""

    def __init__(
        self, journal: ReaderJournal, spans: Spans, topic: _SpannedTopic, name: str, number: int, start: int
    ) -> None:
        super().__init__(journal, spans, topic, number)
        self._attributes = _attributes(NSQ, "deliver", "receive", topic.name)
        self._attributes["messaging.consumer.group.name"] = name
        self._cursor = start
        self._dropped: list[tuple[int, int]] = []  # (first, end) of messages that ended before the cursor passes them

    def resume(self, cursor: int, holes: list[tuple[int, int]]) -> None:
        self._inner.resume(cursor, holes)
        self._cursor, self._dropped = cursor, list(holes)

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

    def requeue(self, ordinals: Collection[int], attempts: int, failures: int, due: int) -> None:
        self._inner.requeue(ordinals, attempts, failures, due)
        for ordinal in ordinals:
            self._update(ordinal, attempts, "requeued")

    def bury(self, ordinal: int, message_id: bytes, attempts: int, failures: int, reason: str) -> None:
        self._inner.bury(ordinal, message_id, attempts, failures, reason)
        self._update(ordinal, attempts, "buried", reason)

    def finish(self, first: int, count: int) -> None:
        super().finish(first, count)
        if first + count > self._cursor:
            if self._dropped and self._dropped[-1][1] == first:  # as a channel that is full drops each new message
                count += first - self._dropped[-1][0]
                first = self._dropped.pop()[0]
            self._dropped.append((first, first + count))


class _SpannedTube(_SpannedReader):
    """The ReaderJournal of a tube, whose deliveries are reservations."""

    def __init__(self, journal: ReaderJournal, spans: Spans, topic: _SpannedTopic, number: int) -> None:
        super().__init__(journal, spans, topic, number)
        self._attributes = _attributes(JOBS, "deliver", "receive", topic.name)

    def job(self, ordinal: int, row: bytes) -> None:
        self._inner.job(ordinal, row)
        state, known = row[STATE_AT], self._deliveries.get(ordinal)
        if state != JobState.RESERVED:
            if known is not None:
                self._end(known, "buried" if state == JobState.BURIED else "requeued")
            return
        attempts = RESERVATION.unpack_from(row, DUE_AT)[1]
        if known is None or attempts > known.attempts:  # else the time to run begins again
            self._update(ordinal, attempts, "requeued")


def _attributes(system: str, name: str, kind: str, topic: str) -> dict[str, str | int]:
    return {
        "messaging.system": system,
        "messaging.operation.name": name,
        "messaging.operation.type": kind,
        "messaging.destination.name": topic,
    }


def _digest(size: int, *parts: object) -> str:
    """Return an id of `size` bytes as hex digits: equal parts have equal ids."""
    return blake2b(repr(parts).encode(), digest_size=size).hexdigest()

"""Records back into state: what there was when the last one was written.

Where messages stand on disk is noted, and what channels have done with them; the messages themselves are read when somebody
wants them. Afterwards `picture` gives the core what it builds its topics and channels from.

Ephemeral topics and channels are never logged. What was handed out only to an ephemeral channel is owed by nobody.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from nsqd.core.channel.buried import Grave
from nsqd.core.message.attributes import unpack
from nsqd.core.message.frame import HEADER_SIZE, STAMP
from nsqd.core.recovery import LogPicture, RecoveredChannel, RecoveredTopic, Returned
from nsqd.core.retention.cursors import Cursor
from nsqd.core.sequence.puts import Terms
from nsqd.core.sequence.spans import overlap, united, without
from nsqd.core.work_queue.jobs import ROW
from nsqd.storage.held import add_piece
from nsqd.storage.log import records
from nsqd.storage.log.clocks import Anchor, LogClock
from nsqd.storage.log.far import Far
from nsqd.storage.log.known import KnownChannel, KnownTopic
from nsqd.storage.log.known_jobs import owe_all, recovered_terms, recovered_tube, rows_of_publish, settle
from nsqd.storage.log.pieces import OVERHEAD
from nsqd.storage.log.reader import Record
from nsqd.storage.log.records import CHANNEL_OF, RETURNED, RUN, Kind
from nsqd.storage.log.recovered import RecoveredStore
from nsqd.storage.log.state import decode_config, decode_jobs, decode_seen, decode_topic, retained, sequence_of, shifted
from nsqd.storage.sequence import Sequence


class Replay:
    """See above. `apply` every record, in order; then `picture`."""

    def __init__(self, store: RecoveredStore) -> None:
        self._store = store
        self._topics: dict[int, KnownTopic] = {}
        self.lease = 1  # ids below it may have been issued
        # Ids from this one on were never issued, for a clean stop was the last that happened; 0: it was not.
        self.next_id = 0
        self.stopped_in = -1  # base of the segment in which the last clean stop stands; -1: there is none
        self.last = 0  # time of the last group: when the node was alive last; 0: there was none
        self.anchor: Anchor | None = None  # the last one
        self.messages = 0  # published
        self.complete = False  # a checkpoint was read to its end
        self._highest = 0  # number of a topic or channel

    def apply(self, record: Record) -> bool:
        """What the record says has happened. False if it says nothing we know."""
        handler = _HANDLERS.get(record.kind)
        if record.kind == Kind.PUBLISH:
            self._publish(record)
            return True
        if record.kind == Kind.NEXT_ID:
            self.stopped_in = record.segment
        if handler is None:
            return False
        handler(self, record.content)
        return True

    # records

    def _group(self, content: bytes) -> None:
        self.last = records.GROUP.unpack_from(content)[1]

    def _anchor(self, content: bytes) -> None:
        self.anchor = Anchor(*records.ANCHOR.unpack_from(content))

    def _cursor(self, content: bytes) -> None:
        number, name, cursor = records.unpack_cursor(content)
        topic = self._topics.get(number)
        if topic is None:
            return
        if cursor is None:
            topic.cursors.pop(name, None)
        else:
            topic.cursors[name] = cursor

    def _seen(self, content: bytes) -> None:
        """What the checkpoint's picture of the topic has of this; what was published since came before, and counts."""
        (number,) = records.SEEN.unpack_from(content)
        topic = self._topics.get(number)
        if topic is not None:
            keys, producers = decode_seen(content)
            topic.keys_before.update(keys)
            topic.producers_before.update(producers)

    def _config(self, content: bytes) -> None:
        number, config = records.unpack_config(content)
        topic = self._topics.get(number)
        if topic is not None:
            topic.config = config

    def _first(self, content: bytes) -> None:
        number, first = records.FIRST.unpack_from(content)
        if number in self._topics:
            self._store.sequence(number).retain(None if first == records.UNRETAINED else first)

    def _lease(self, content: bytes) -> None:
        self.lease = max(self.lease, records.LEASE.unpack_from(content)[0])
        self.next_id = 0

    def _next_id(self, content: bytes) -> None:
        (self.next_id,) = records.NEXT_ID.unpack_from(content)

    def _topic(self, content: bytes) -> None:
        (number,) = records.TOPIC.unpack_from(content)
        self._topics[number] = KnownTopic(content[records.TOPIC.size :].decode(), number)
        self._highest = max(self._highest, number)

    def _channel(self, content: bytes) -> None:
        number, channel, start = records.CHANNEL.unpack_from(content)
        topic = self._topics.get(number)
        if topic is not None:
            name = content[records.CHANNEL.size :].decode()
            topic.channels[channel] = KnownChannel(name, channel, start, start, floor=start)
            if start < topic.distributed:
                self._owe_again(topic, start)
        self._highest = max(self._highest, channel)

    def _owe_again(self, topic: KnownTopic, start: int) -> None:
        """A channel was made that begins with what was published before it."""
        for first, end, delayed in self._store.owe_again(topic.number, start, topic.distributed):
            if delayed:  # the cursor passes over these
                topic.delayed = dict.fromkeys(range(first, end), 0) | topic.delayed

    def _pause(self, content: bytes) -> None:
        number, channel, paused = records.PAUSE.unpack_from(content)
        topic = self._topics.get(number)
        item = topic if topic is None or not channel else topic.channels.get(channel)
        if item is not None:
            item.paused = bool(paused)

    def _publish(self, record: Record) -> None:
        """The messages stay on disk until somebody wants them."""
        number, first, count, due, largest, flags = records.PUBLISH.unpack_from(record.content)
        topic = self._topics.get(number)
        if topic is None:
            return
        extents = self._store.sequence(number).append_cold(first, count, due != 0, record.end - record.start)
        rows: list[bytes] = []  # of jobs
        attributes, at = records.attributes_of(record.content, 0, flags)
        stamp = int.from_bytes(record.content[at : at + HEADER_SIZE][STAMP], "big")
        for held in extents:
            held.published(stamp, self.last)
            held.attributed |= bool(attributes)
            add_piece(held.pieces, record.segment, 0, record.start, record.end)
            held.size += (record.end - record.start + count * OVERHEAD) // len(extents)
        self.messages += count
        topic.end = first + count
        if due and not (flags & records.DISTRIBUTED and topic.has_tube_only):
            topic.delayed.update(dict.fromkeys(range(first, first + count), due))
        if attributes:
            said = unpack(attributes, first)
            topic.seen(said, count, self.last)
            if said.job is not None:
                rows = rows_of_publish(record.content, at, count, largest, said.job, stamp, due)
        if flags & records.DISTRIBUTED:
            owners = records.owners_of(record.content, 0, flags)
            if owners is None and len(extents) == 1 and topic.channels and not topic.rows:  # nearly always
                topic.distributed = topic.end
                extents[0].owe(extents[0].count - count, extents[0].count, len(topic.channels))
                self._store.sequence(number).edge = topic.end
            else:
                self._hand_out(topic, first, topic.end, owners)
            tube = topic.tube if rows else None
            if tube is not None:
                if count == 1:
                    tube.jobs.put_row(first, rows[0])
                else:
                    tube.jobs.put_rows(first, rows)
        else:
            topic.rows.update(enumerate(rows, first))

    def _distribute(self, content: bytes) -> None:
        number, first, end = records.DISTRIBUTE.unpack_from(content)
        topic = self._topics.get(number)
        if topic is not None:
            self._hand_out(topic, first, end)

    def _hand_out(self, topic: KnownTopic, first: int, end: int, owners: frozenset[int] | None = None) -> None:
        """`owners`: the only channels that owe the messages; None: all of them."""
        topic.distributed = end
        owing = [number for number in topic.channels if owners is None or number in owners]
        for start, stop in self._store.present(topic.number, first, end):
            self._store.distribute(topic.number, start, stop, max(1, len(owing)))
        if not owing:  # there was an ephemeral one, which nobody remembers
            self._done(topic.number, first, end)
        if owners is not None:
            for number in topic.channels.keys() - owners:
                topic.channels[number].finish(first, end - first)
        if topic.rows:
            tube, rows = topic.tube, topic.rows
            topic.rows = {ordinal: row for ordinal, row in rows.items() if ordinal >= end}
            for ordinal, row in rows.items():
                if tube is not None and ordinal < end:
                    tube.jobs.put_row(ordinal, row)

    def _advance(self, content: bytes) -> None:
        number, channel, cursor = records.ADVANCE.unpack_from(content)
        found = self._find(number, channel)
        if found is not None:
            found.cursor = cursor

    def _finish(self, content: bytes) -> None:
        number, channel = CHANNEL_OF.unpack_from(content)
        found = self._find(number, channel)
        if found is None:
            return
        for first, count in RUN.iter_unpack(content[CHANNEL_OF.size :]):
            found.finish(first, count)
            self._done(number, first, first + count)

    def _requeue(self, content: bytes) -> None:
        number, channel = CHANNEL_OF.unpack_from(content)
        found = self._find(number, channel)
        if found is None:
            return
        for ordinal, attempts, due in RETURNED.iter_unpack(content[CHANNEL_OF.size :]):
            found.buried.pop(ordinal, None)
            self._noted(number, found, ordinal)
            found.notes[ordinal] = Returned(ordinal, attempts, due)

    def _job(self, content: bytes) -> None:
        number, channel = CHANNEL_OF.unpack_from(content)
        found = self._find(number, channel)
        if found is not None:
            for at in range(CHANNEL_OF.size, len(content), records.ORDINAL.size + ROW.size):
                (ordinal,) = records.ORDINAL.unpack_from(content, at)
                at += records.ORDINAL.size
                found.jobs.put_row(ordinal, content[at : at + ROW.size])

    def _jobs(self, content: bytes) -> None:
        """A page as it was then: what it has not is gone."""
        number, channel, page, rows = decode_jobs(content)
        found = self._find(number, channel)
        if found is not None:
            found.jobs.put_page(page, rows)

    def _bury(self, content: bytes) -> None:
        number, channel, ordinal, attempts, wall, message_id = records.BURY.unpack_from(content)
        found = self._find(number, channel)
        if found is not None:
            reason = content[records.BURY.size :].decode()
            self._noted(number, found, ordinal)
            found.buried[ordinal] = message_id, Grave(ordinal, attempts, reason, wall)

    def _noted(self, topic: int, channel: KnownChannel, ordinal: int) -> None:
        if ordinal >= channel.cursor and ordinal not in self._topics[topic].delayed and ordinal not in channel.near:
            channel.pulled(ordinal)
        else:
            channel.noted(ordinal)

    def _finish_all(self, content: bytes) -> None:
        number, channel, end = records.FINISH_ALL.unpack_from(content)
        found = self._find(number, channel)
        if found is None:
            return
        for first, stop in [*found.owed(end), *_ones(found.far.waiting()), *_ones(found.near)]:
            self._done(number, first, stop)
        found.far, found.near = Far([]), {}
        found.floor = max(found.floor, end)
        found.done = {first: stop for first, stop in found.done.items() if first >= end}
        found.notes.clear()
        found.buried.clear()
        found.jobs.discard(0, end)
        found.cursor = max(found.cursor, end)

    def _hole(self, content: bytes) -> None:
        number, first, end = records.HOLE.unpack_from(content)
        topic = self._topics.get(number)
        if topic is None:
            return
        self._store.hole(number, first, end)
        topic.distributed = end
        topic.delayed = {ordinal: due for ordinal, due in topic.delayed.items() if ordinal < first}
        topic.rows = {ordinal: row for ordinal, row in topic.rows.items() if ordinal < first}
        topic.terms = {ordinal: terms for ordinal, terms in topic.terms.items() if ordinal < first}
        for channel in topic.channels.values():
            channel.finish(first, end - first)

    def _drop_channel(self, content: bytes) -> None:
        number, channel = CHANNEL_OF.unpack_from(content)
        topic = self._topics.get(number)
        dropped = topic.channels.pop(channel, None) if topic is not None else None
        if topic is not None and dropped is not None:
            owed = [*dropped.owed(topic.distributed), *_ones(dropped.far.waiting()), *_ones(dropped.near)]
            for first, stop in owed:
                self._done(number, first, stop)

    def _drop_topic(self, content: bytes) -> None:
        (number,) = records.TOPIC.unpack_from(content)
        if self._topics.pop(number, None) is not None:
            self._store.drop_topic(number)

    def _state(self, content: bytes) -> None:
        highest, lease = records.STATE.unpack_from(content)
        self._highest = max(self._highest, highest)
        self.lease = max(self.lease, lease)

    def _state_end(self, content: bytes) -> None:
        self.complete = True

    def _state_topic(self, content: bytes) -> None:
        """What was recorded of the topic before is in this, or was passed over for want of the topic."""
        state = decode_topic(content)
        number, name, paused, end, distributed, delayed, channels, extents, config, first, kept, cursors = state
        topic = KnownTopic(name, number, paused, end, distributed)
        topic.delayed = dict(delayed)
        topic.config = decode_config(config)
        topic.cursors = {name: Cursor(*of) for name, *of in cursors}
        before = self._topics.get(number)
        if before is not None:  # the checkpoint may not have come to its SEEN records
            topic.keys_before = _newest(before.keys_before, before.keys)
            topic.producers_before = _newest(before.producers_before, before.producers)
            topic.rows = {ordinal: row for ordinal, row in before.rows.items() if ordinal >= distributed}
        sequence = sequence_of(extents, distributed, end)
        sequence.first, sequence.kept = first, [retained(extent) for extent in kept]
        self._store.adopt(number, sequence)
        for state in channels:
            channel = self._state_channel(topic, sequence, state)
            topic.channels[channel.number] = channel
            known = before.channels.get(channel.number) if before is not None else None
            if known is not None:
                channel.jobs = known.jobs
                if known.unsaid[1]:
                    channel.unsaid = min(known.unsaid[0], channel.unsaid[0]), max(known.unsaid[1], channel.unsaid[1])
        sequence.count_freed()
        self._topics[number] = topic

    @staticmethod
    def _state_channel(topic: KnownTopic, sequence: Sequence, state: list[Any]) -> KnownChannel:
        number, name, paused, start, cursor, holes, returned, buried, far = state
        channel = KnownChannel(name, number, start, cursor, paused)
        if channel.is_tube:
            topic.terms = {at: Terms(priority, ttr, delay, due, True) for at, priority, ttr, delay, due in buried}
            channel.unsaid = cursor, topic.end
            return owe_all(channel, sequence, topic.distributed, holes)
        for ordinal, attempts, due in returned:
            channel.notes[ordinal] = Returned(ordinal, attempts, due)
            if ordinal >= cursor and _is_plain(sequence, ordinal):
                channel.near[ordinal] = None
            elif ordinal >= cursor and attempts:  # its delay at the topic is over; this one is the channel's own
                topic.delayed.setdefault(ordinal, 0)
            elif ordinal >= cursor:
                topic.delayed[ordinal] = due
        for name_of_it, ordinal, attempts, reason, at in buried:
            channel.buried[ordinal] = name_of_it, Grave(ordinal, attempts, reason, at)
            if ordinal >= cursor and _is_plain(sequence, ordinal):
                channel.near[ordinal] = None
            elif ordinal >= cursor:  # published with a delay, for the cursor has not come by it; it may be kicked
                topic.delayed.setdefault(ordinal, 0)
        for held, begin, stop in [found for one in channel.near for found in sequence.present_spans(one, one + 1)]:
            held.owe_one_more(begin, stop)
        owed = [(o, o + 1) for o in (*channel.notes, *channel.buried) if o not in channel.near]
        for first, end in sequence.plain(cursor, topic.distributed):
            owed += without(first, end, holes)
        owed.sort()
        for first, end in owed:
            for held, begin, stop in sequence.present_spans(first, end):
                held.owe_one_more(begin, stop)
        channel.far = Far(far)
        channel.far.owe(sequence)
        channel.floor = owed[0][0] if owed else topic.distributed
        position = channel.floor
        for first, end in owed:
            if first > position:
                channel.done[position] = first
            position = max(position, end)
        if channel.floor < position < topic.distributed:
            channel.done[position] = topic.distributed
        return channel

    # helpers

    def _find(self, topic: int, channel: int) -> KnownChannel | None:
        known = self._topics.get(topic)
        return known.channels.get(channel) if known is not None else None

    def _done(self, topic: int, first: int, end: int) -> None:
        """One channel less owes first..end. What was damaged is not there."""
        for start, stop in list(self._store.present(topic, first, end)):
            self._store.finish(topic, 0, start, stop - start)

    # the result

    def picture(self, clock: LogClock) -> LogPicture:
        """What there is. `clock`: the log's, which goes on."""
        now = clock.clocks.monotonic()

        def monotonic(due: int) -> int:
            return max(now, clock.monotonic(due)) if due else 0

        topics = [self._recovered(topic, monotonic, clock.offset) for topic in self._topics.values()]
        return LogPicture(topics, self._highest + 1)

    def _recovered(self, topic: KnownTopic, monotonic: Callable[[int], int], offset: int) -> RecoveredTopic:
        # Beyond the end only if the newest publishes are damaged: later records say that their numbers are used up.
        topic.distributed = max(topic.distributed, *(channel.reached for channel in topic.channels.values()), 0)
        topic.end = max(topic.end, topic.distributed)
        tube = topic.tube
        edge = settle(self._store, topic, tube) if tube is not None else 0
        ahead = [(o, monotonic(due)) for o, due in topic.delayed.items() if o >= topic.distributed]
        plain = list(self._store.plain_spans(topic.number, topic.distributed))
        return RecoveredTopic(
            name=topic.name,
            number=topic.number,
            paused=topic.paused,
            end=topic.end,
            distributed=topic.distributed,
            delayed=ahead,
            channels=[
                self._recovered_channel(topic, channel, plain, monotonic, offset)
                for channel in topic.channels.values()
                if channel is not tube
            ],
            config=topic.config,
            cursors=topic.cursors,
            keys={key: at - offset for key, at in _newest(topic.keys_before, topic.keys).items()},
            producers=_newest(topic.producers_before, topic.producers),
            tube=recovered_tube(tube, edge, offset) if tube is not None else None,
            terms=recovered_terms(topic, monotonic),
        )

    def _recovered_channel(
        self,
        topic: KnownTopic,
        channel: KnownChannel,
        plain: list[tuple[int, int]],
        monotonic: Callable[[int], int],
        offset: int,
    ) -> RecoveredChannel:
        cursor = max(channel.floor, min(channel.cursor, topic.distributed))
        holes = united((max(first, cursor), end) for first, end in sorted(channel.done.items()) if end > cursor)
        returned = []
        for ordinal in self._owed_one_by_one(topic, channel):
            if ordinal in channel.buried:
                continue
            note = channel.notes.get(ordinal)
            attempts = note.attempts if note else int(ordinal not in topic.delayed)
            due = note.due if note else topic.delayed.get(ordinal, 0)
            returned.append(Returned(ordinal, attempts, monotonic(due)))
        far = [shifted(page, -offset).tobytes() for page in channel.far.left()]
        return RecoveredChannel(
            name=channel.name,
            number=channel.number,
            paused=channel.paused,
            start=channel.start,
            cursor=cursor,
            holes=holes,
            ready=overlap(plain, [(cursor, topic.distributed)]) - overlap(plain, holes),
            returned=returned,
            buried=list(channel.buried.values()),
            far=far,
        )

    def _owed_one_by_one(self, topic: KnownTopic, channel: KnownChannel) -> Iterator[int]:
        """What it owes and the cursor will not come by: what is behind it, and what was published with a delay."""
        for first, end in channel.owed(min(channel.cursor, topic.distributed)):
            for start, stop in self._store.present(topic.number, first, end):
                yield from range(start, stop)
        for ordinal in channel.near:
            if self._store.present(topic.number, ordinal, ordinal + 1):
                yield ordinal
        yield from self._delayed_ahead_of(channel, topic)

    @staticmethod
    def _delayed_ahead_of(channel: KnownChannel, topic: KnownTopic) -> Iterable[int]:
        """Looks at what was delayed only: behind a message that is buried for a year stand all of that year as done."""
        runs = united(sorted(channel.done.items()))
        firsts = [first for first, _ in runs]

        def is_done(ordinal: int) -> bool:
            place = bisect_right(firsts, ordinal) - 1
            return place >= 0 and ordinal < runs[place][1]

        return (
            ordinal
            for ordinal in topic.delayed
            if max(channel.cursor, channel.start, channel.floor) <= ordinal < topic.distributed and not is_done(ordinal)
        )


_HANDLERS: dict[int, Callable[[Replay, bytes], None]] = {  # not bound to a Replay: it may hold much, and is no cycle so
    Kind.GROUP: Replay._group,
    Kind.LEASE: Replay._lease,
    Kind.TOPIC: Replay._topic,
    Kind.CHANNEL: Replay._channel,
    Kind.PAUSE: Replay._pause,
    Kind.DISTRIBUTE: Replay._distribute,
    Kind.ADVANCE: Replay._advance,
    Kind.FINISH: Replay._finish,
    Kind.REQUEUE: Replay._requeue,
    Kind.BURY: Replay._bury,
    Kind.FINISH_ALL: Replay._finish_all,
    Kind.HOLE: Replay._hole,
    Kind.DROP_CHANNEL: Replay._drop_channel,
    Kind.DROP_TOPIC: Replay._drop_topic,
    Kind.STATE: Replay._state,
    Kind.STATE_TOPIC: Replay._state_topic,
    Kind.STATE_END: Replay._state_end,
    Kind.CONFIG: Replay._config,
    Kind.FIRST: Replay._first,
    Kind.ANCHOR: Replay._anchor,
    Kind.CURSOR: Replay._cursor,
    Kind.SEEN: Replay._seen,
    Kind.JOB: Replay._job,
    Kind.JOBS: Replay._jobs,
    Kind.NEXT_ID: Replay._next_id,
}


def _newest(before: dict[str, int], since: dict[str, int]) -> dict[str, int]:
    """Both, the oldest first."""
    return {name: value for name, value in before.items() if name not in since} | since


def _is_plain(sequence: Sequence, ordinal: int) -> bool:
    """It was published without a delay: if something is known of it ahead of a cursor, it was pulled."""
    return any(not held.delayed for held, _, _ in sequence.present_spans(ordinal, ordinal + 1))


def _ones(ordinals: Iterable[int]) -> Iterator[tuple[int, int]]:
    """Each as a span."""
    return ((ordinal, ordinal + 1) for ordinal in ordinals)

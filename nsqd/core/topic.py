"""A topic: a sequence of messages, and the channels that read it.

What is published in a turn is sealed together: ids, frames, one record. The distribution edge `distributed` (U in
specs/log-and-channel.md rule 8) says up to where messages belong to the channels: it follows the end unless there is no
channel, the topic is paused, or its channels are still being asked for. A new channel starts at the edge, so the first one
gets what was published before it and later ones only what comes.
"""

from collections.abc import Collection, Iterable, Iterator
from typing import TYPE_CHECKING

from nsqd.core.channel.channel import Channel
from nsqd.core.message.attributes import NONE, Attributes, pack_job
from nsqd.core.message.frame import HEADER_SIZE, ID_SIZE, encode, encode_one
from nsqd.core.observation.outcomes import Producers
from nsqd.core.retention.cursors import Cursor
from nsqd.core.retention.keeping import TopicConfig
from nsqd.core.sequence.puts import Puts, Terms
from nsqd.core.sequence.seen import Seen
from nsqd.core.sequence.store import Store
from nsqd.core.timing.deferred import Deferred, Message
from nsqd.core.work_queue.tube import WORK, Tube
from penstock.protocol.names import is_ephemeral, is_valid_name

if TYPE_CHECKING:
    from nsqd.core.broker import Broker


class Topic:
    """See above. Created by Broker.topic."""

    __slots__ = (
        "_delayed_ahead",
        "_overdue",
        "_pending",
        "_pending_apart",
        "_puts",
        "broker",
        "channels",
        "config",
        "cursors",
        "delay_lane",
        "deleted",
        "distributed",
        "dropped_count",
        "duplicate_count",
        "end",
        "ephemeral",
        "held_back",
        "is_foreign",
        "is_tubes_own",
        "legal",
        "max_attempts",
        "message_bytes",
        "message_count",
        "name",
        "number",
        "ordinary",
        "paused",
        "producers",
        "promise",
        "put_count",
        "putting",
        "seen",
        "starting",
        "store",
        "terms",
        "tube",
        "watched",
    )

    def __init__(self, broker: "Broker", name: str, number: int, config: TopicConfig | None = None) -> None:
        self.broker = broker
        self.store: Store = broker.store
        self.name = name
        self.number = number  # never used again on this node
        self.ephemeral = is_ephemeral(name)
        self.max_attempts = broker.limits.attempts(name)  # deliveries before a message is buried; 0: any number
        self.channels: dict[str, Channel] = {}
        self.tube: Tube | None = None  # its jobs, if there are clients of beanstalkd
        self.terms: dict[
            int, Terms
        ] = {}  # by ordinal, of messages that will be jobs: others are put on the usual terms
        self._puts: list[Puts] = []  # what clients of beanstalkd put in this turn
        self.putting: Puts | None = None  # what becomes jobs just now
        self.legal = is_valid_name(name)  # False: only clients of beanstalkd can name it
        self.is_tubes_own = not self.legal  # clients of beanstalkd made it: it may go with its tube
        self.is_foreign = False  # somebody published to it who is no client of beanstalkd
        self.paused = False
        self.starting = False  # True: nsqlookupd is being asked for its channels; nothing is distributed yet
        self.deleted = False
        self.end = 0  # ordinal of the next message to be sealed
        self.distributed = 0  # the edge: messages before it belong to the channels; <= end
        self.ordinary = 0  # messages distributed without a delay, ever
        self.put_count = 0  # messages distributed, ever
        self.delay_lane = Deferred(number)  # messages published with a delay, until it is over
        self.held_back = 0  # of those, how many the channels know of (they are before the edge)
        self.message_count = 0  # published since the process started
        self.message_bytes = 0  # of bodies
        self.dropped_count = 0  # messages an ephemeral topic had no room for
        self.duplicate_count = 0  # messages that were published before, and so not again
        self.seen = Seen(broker.limits.seen, broker.remembered)
        self.watched: tuple[int, int] | None = None  # (due, handle) of our entry in the scan's index
        self.producers = Producers() if broker.limits.measures else None  # of whom its messages are
        self.store.create_topic(number, name)
        self.cursors: dict[str, Cursor] = {}  # of those who read it back, by name
        self.store.hold(number, self.cursors)
        self.promise = 0  # what an OK of this topic waits for: WRITTEN or SYNCED
        self.keep(config or TopicConfig())
        self._delayed_ahead = 0  # messages published with a delay at or past the edge
        self._overdue: list[Message] = []  # of those, the ones whose delay is over; no longer in the lane
        self._pending: list[bytes] = []  # bodies published in this turn
        # likewise, with a delay or attributes: due or 0, bodies, attributes
        self._pending_apart: list[tuple[int, list[bytes], Attributes]] = []

    # publishing

    def publish(self, bodies: list[bytes], size: int) -> None:
        """Take messages (`size` bytes of body in all); they exist from the turn's commit on."""
        if not self._pending and not self._pending_apart:
            self.broker.unsealed.append(self)
            self.is_foreign = True
        self._pending += bodies
        self.message_count += len(bodies)
        self.message_bytes += size

    def publish_deferred(self, body: bytes, due: int) -> None:
        """Take one message that no channel delivers before `due` (monotonic ns)."""
        self._publish_apart([body], NONE, due)

    def publish_with(self, bodies: list[bytes], attributes: Attributes, due: int = 0) -> int:
        """As `publish`, or with `due` as `publish_deferred`, what has attributes: behind what has none in this turn.

        Returns how many of them, the first ones, were published before. They are not again; for them, too, this turn's
        promise holds.
        """
        known = self.seen.admit(attributes, len(bodies), self.broker.now)
        if known:
            self.duplicate_count += known
            self.store.promise(self.number)  # the first time's may not have been kept yet
        if known < len(bodies):
            self._publish_apart(bodies[known:], attributes.behind(known), due)
        return known

    def _publish_apart(self, bodies: list[bytes], attributes: Attributes, due: int) -> None:
        if not self._pending and not self._pending_apart:
            self.broker.unsealed.append(self)
            self.is_foreign = True
        self._pending_apart.append((due, bodies, attributes))
        self.message_count += len(bodies)
        self.message_bytes += sum(map(len, bodies))

    def knows(self, key: str) -> bool:
        """Something was published with that key lately; if not, it is from now on."""
        known = self.seen.admit(Attributes(key=key), 1, self.broker.now) > 0
        self.duplicate_count += known
        return known

    def put(self, bodies: list[bytes], terms: Terms, key: str = "") -> int:
        """Take jobs: the number of the first one's id; the others' follow. They exist from Broker.settle on.

        `key`: of the one job that there is, as Attributes have it.
        """
        self.message_count += len(bodies)
        self.message_bytes += sum(map(len, bodies))
        return self._puts_on(terms, key).add(bodies, self.broker.ids)

    def _puts_on(self, terms: Terms, key: str) -> Puts:
        """What was put last in this turn, if it was so on the same terms; else there is nothing yet."""
        puts = self._puts[-1] if self._puts else None
        if puts is not None and puts.terms == terms and not puts.key and not key:
            return puts
        if puts is None:
            self.broker.unsettled.append(self)
        puts = Puts(terms, self.broker.wall, key)
        self._puts.append(puts)
        return puts

    def put_known(self, body: bytes, terms: Terms, number: int, created: int) -> None:
        """Take one job, at once, that has an id, higher than all before and lower than any to be issued, and was put then."""
        puts = Puts(terms, created)
        puts.add_one(body, number, self.broker.ids.named(number))
        self.message_count += 1
        self.message_bytes += len(body)
        self._seal_puts(puts)

    def settle(self) -> None:
        """What was put in this turn exists, ahead of what was published in it."""
        puts, self._puts = self._puts, []
        for some in puts:
            self._seal_puts(some)

    def _seal_puts(self, puts: Puts) -> None:
        first, terms, count = self.end, puts.terms, len(puts.frames)
        puts.first = first
        if terms.due and (self.channels or self.paused or self.starting):  # else nobody but the tube will wait for them
            for ordinal in range(first, first + count):
                self.delay_lane.push(terms.due, Message(ordinal, 0), self.broker.now)
            self._delayed_ahead += count
            self._watch_lane()
        packed = pack_job(terms.priority, terms.ttr, terms.delay)
        self._note_producer(NONE)
        if puts.key:
            packed = Attributes(key=puts.key, job=(terms.priority, terms.ttr, terms.delay)).pack(first)
        self.store.publish(self.number, first, puts.frames, b"".join(puts.ids), puts.largest, terms.due, packed)
        self.end += count
        self.putting = puts
        self.distribute()
        self.putting = None
        if not puts.came:
            self.terms.update(dict.fromkeys(range(first, self.end), terms))

    def seal(self, now: int, wall: int) -> None:
        """Give this turn's messages their ids, frames and places, and hand them to the channels."""
        if self._pending:
            bodies, self._pending = self._pending, []
            if self.ephemeral:
                bodies = self._bounded(bodies)
            self._append(bodies, wall, NONE)
        apart, self._pending_apart = self._pending_apart, []
        for due, bodies, attributes in apart:
            if not due:
                self._append(self._bounded(bodies) if self.ephemeral else bodies, wall, attributes)
                continue
            for index, body in enumerate(bodies):
                self.delay_lane.push(due, Message(self.end, 0), now)
                self._delayed_ahead += 1
                if self.tube is not None:
                    self.terms[self.end] = Terms(due=due)
                self._append_one(body, due, wall, attributes.behind(index))
                self._watch_lane()

    def _append(self, bodies: list[bytes], wall: int, attributes: Attributes) -> None:
        if len(bodies) <= 1:
            if bodies:
                self._append_one(bodies[0], 0, wall, attributes)
            return
        ids = self.broker.ids.take(len(bodies))
        sizes = set(map(len, bodies))
        frames = encode(bodies, sizes, ids, wall)
        joined = b"".join([block.joined for block in ids])
        packed = attributes.pack(self.end) if attributes is not NONE else b""
        self._note_producer(attributes)
        self.store.publish(self.number, self.end, frames, joined, max(sizes) + HEADER_SIZE, 0, packed)
        self.end += len(bodies)
        self.distribute()

    def _append_one(self, body: bytes, due: int, wall: int, attributes: Attributes) -> None:
        """For a third of what _append costs: many topics get no more than one message a turn."""
        message_id = self.broker.ids.one()
        frame = encode_one(body, message_id, wall)
        packed = attributes.pack(self.end) if attributes is not NONE else b""
        self._note_producer(attributes)
        self.store.publish(self.number, self.end, [frame], message_id, len(frame), due, packed)
        self.end += 1
        self.distribute()

    def _note_producer(self, attributes: Attributes) -> None:
        """The next messages are his."""
        if self.producers is not None:
            self.producers.note(self.end, attributes.producer)

    def _bounded(self, bodies: list[bytes]) -> list[bytes]:
        """An ephemeral topic keeps mem-queue-size messages nobody has taken over; what is new is dropped beyond that."""
        if self.channels and not self.paused and not self.starting:
            return bodies
        room = max(0, self.broker.limits.mem_queue_size - (self.end - self.distributed))
        self.dropped_count += len(bodies) - min(room, len(bodies))
        return bodies[:room]

    def publish_to(self, only: Channel, bodies: list[bytes], attributes: Attributes) -> int:
        """As `publish_with`, for one of the channels; before what else is published in this turn.

        The topic is neither paused nor starting.
        """
        known = self.seen.admit(attributes, len(bodies), self.broker.now)
        self.duplicate_count += known
        self.store.promise(self.number)
        assert self.distributed == self.end
        if known < len(bodies):
            fresh = bodies[known:]
            self.message_count += len(fresh)
            self.message_bytes += sum(map(len, fresh))
            self.take_in([(self.broker.wall, body) for body in fresh], only, attributes.behind(known))
        return known

    def take_in(self, messages: list[tuple[int, bytes]], only: Channel | None, attributes: Attributes = NONE) -> None:
        """Messages of another daemon (when they were published, ns since the epoch; body): for `only`, or as if published now.

        The topic is neither paused nor starting. They exist from the turn's commit on.
        """
        first = self.end
        ids = b"".join([block.joined for block in self.broker.ids.take(len(messages))])
        frames = [
            encode_one(body, ids[index * ID_SIZE : (index + 1) * ID_SIZE], stamp)
            for index, (stamp, body) in enumerate(messages)
        ]
        packed = attributes.pack(first) if attributes else b""
        self._note_producer(attributes)
        self.store.publish(self.number, first, frames, ids, max(map(len, frames)), 0, packed)
        self.end += len(frames)
        self.distribute(only)

    # how its messages are kept

    def configure(self, config: TopicConfig) -> None:
        """From now on, and after restarts."""
        self.store.configure(self.number, config)
        self.keep(config)

    def keep(self, config: TopicConfig) -> None:
        """From now on."""
        self.config = config
        keeping = config.over(self.broker.limits.keeping)
        self.promise = keeping.promise
        self.store.keep(self.number, keeping)

    def set_cursor(self, name: str, cursor: Cursor | None) -> None:
        """Somebody who reads the topic back stands there, or (None) does so no more."""
        if cursor is None:
            del self.cursors[name]
        else:
            self.cursors[name] = cursor
        self.store.set_cursor(self.number, name, cursor)

    # after a restart

    def resume(self, end: int, distributed: int, paused: bool, delayed: Iterable[tuple[int, int]], now: int) -> None:
        """It ends here. `delayed`: (ordinal, due) of the messages at or past the edge that have a delay."""
        self.end, self.distributed, self.paused = end, distributed, paused
        self.ordinary = distributed  # only differences to it count
        for ordinal, due in delayed:
            self.delay_lane.push(due, Message(ordinal, 0), now)
            self._delayed_ahead += 1
        self._watch_lane()

    # distribution

    def distribute(self, only: Channel | None = None) -> None:
        """Move the edge to the end, if it may. `only`: the new messages, of which none has a delay, are for that channel."""
        first, end = self.distributed, self.end
        if first == end or self.paused or self.starting or not (self.channels or self.tube):
            return
        readers = self.readers()
        delayed, self._delayed_ahead = self._delayed_ahead, 0
        ordinary = end - first - delayed
        self.distributed = end
        self.ordinary += ordinary
        self.put_count += end - first
        self.held_back += delayed
        self.store.distribute(self.number, first, end, len(readers), None if only is None else (only.number,))
        for channel in readers:
            if only is not None and channel is not only:
                channel.skip(first, end, ordinary)
                continue
            channel.delayed += delayed
            if isinstance(channel, Channel) and (channel.ephemeral or self.ephemeral):
                self._bound(channel, first, ordinary)
            channel.wake()
        self._release_overdue()

    def _bound(self, channel: Channel, first: int, ordinary: int) -> None:
        """A memory-only channel holds mem-queue-size ready messages; of the `ordinary` new ones the rest is dropped."""
        excess = min(ordinary, channel.depth - self.broker.limits.mem_queue_size)
        if excess <= 0:
            return
        channel.dropped_count += excess
        for start, stop in self._newest(first, ordinary, excess):
            channel.skip(start, stop, stop - start)
            self.store.finish(self.number, channel.number, start, stop - start)

    def _newest(self, first: int, ordinary: int, count: int) -> list[tuple[int, int]]:
        """The last `count` messages without a delay from `first` to the edge, as ascending spans."""
        end = self.distributed
        if ordinary == end - first:
            return [(end - count, end)]
        lane = [message.ordinal for _, message in self.delay_lane.items()]
        delayed = {*lane, *(message.ordinal for message in self._overdue)}
        plain = [ordinal for ordinal in range(first, end) if ordinal not in delayed]
        return [(ordinal, ordinal + 1) for ordinal in plain[-count:]]

    def _release_overdue(self) -> None:
        """What came due behind the edge goes to the channels with the next scan."""
        overdue, self._overdue = self._overdue, []
        for message in overdue:
            self.delay_lane.push(0, message, 0)
        self._watch_lane()

    def start(self) -> None:
        """The channels known elsewhere exist now."""
        self.starting = False
        self.distribute()

    def pause(self, paused: bool) -> None:
        """Keep new messages here instead of handing them to the channels, or stop doing so."""
        self.paused = paused
        self.store.pause(self.number, 0, paused)
        self.distribute()

    # channels

    def channel(self, name: str) -> Channel:
        """The channel of that name, created if it is not there. Raises TooMany."""
        channel = self.channels.get(name)
        if channel is None:
            self.broker.admit_channel()
            number = self.broker.next_number()
            channel = Channel(self.broker, self, name, number, is_ephemeral(name))
            self.channels[name] = channel
            self.store.create_channel(self.number, number, name, channel.start, Channel.kind)
            self.broker.channel_created(channel)
            self.distribute()
        return channel

    @property
    def may_go(self) -> bool:
        """Nothing is lost with it but a tube without jobs: no message can be read back."""
        retains = self.end > 0 and self.config.over(self.broker.limits.keeping).retains
        plain = self.config == TopicConfig() and not self.cursors and not retains
        return self.is_tubes_own and not self.is_foreign and not self.channels and plain

    def readers(self) -> list[Channel | Tube]:
        """All that its messages are handed out to."""
        return [*self.channels.values(), self.tube] if self.tube is not None else [*self.channels.values()]

    def work(self) -> Tube:
        """The tube, created if it is not there. Raises TooMany."""
        if self.tube is None:
            self.broker.admit_channel()
            self.tube = Tube(self.broker, self, self.broker.next_number())
            self.terms.update((message.ordinal, Terms(due=due)) for due, message in self.delay_lane.items())
            self.store.create_channel(self.number, self.tube.number, WORK, self.tube.start, Tube.kind)
            self.broker.scan.add(self.tube)
            self.broker.tubes.added(self.tube)
            self.distribute()
        return self.tube

    def delete_tube(self) -> None:
        """Drop the tube and its jobs."""
        tube, self.tube = self.tube, None
        if tube is not None:
            tube.delete()
            self.broker.scan.discard(tube)
            self.broker.awake.pop(tube, None)
            self.terms.clear()

    def channel_from(self, name: str, start: int, now: int) -> Channel:
        """A new channel that begins with message `start`, before the edge; from there on all is retained. Raises TooMany."""
        assert name not in self.channels
        channel = self.channel(name) if start >= self.distributed else None
        if channel is not None:
            return channel
        self.broker.admit_channel()
        number = self.broker.next_number()
        channel = self.channels[name] = Channel(self.broker, self, name, number, is_ephemeral(name))
        self.store.create_channel(self.number, number, name, start, Channel.kind)
        parts = self.store.owe_again(self.number, start, self.distributed)
        waiting = set(self.delayed_ordinals(start))
        delayed = [ordinal for first, end, late in parts if late for ordinal in range(first, end)]
        ready = sum(end - first for first, end, late in parts if not late)
        channel.resume(start, start, ready, False)
        channel.delayed = len(waiting)
        dues = self._dues({ordinal for ordinal in delayed if ordinal not in waiting})
        for ordinal, due in dues.items():
            channel.take_back(Message(ordinal, 0), due, now)
        self.broker.channel_created(channel)
        self.distribute()
        return channel

    def _dues(self, ordinals: set[int]) -> dict[int, int]:
        """When these, published with a delay, are due: 0 for what no channel waits for any more. Walks what waits."""
        found = dict.fromkeys(sorted(ordinals), 0)
        for channel in self.channels.values() if ordinals else ():
            for due, message in channel.deferred.items():
                if message.ordinal in found and not message.attempts:
                    found[message.ordinal] = due
        return found

    def delete_channel(self, name: str) -> None:
        """Drop the channel, its messages and its connections. An ephemeral topic goes with its last channel."""
        channel = self.channels.pop(name)
        channel.delete()
        self.broker.channel_deleted(channel)
        if self.ephemeral and not self.channels and not self.deleted:
            self.broker.delete_topic(self.name)

    def empty(self) -> None:
        """Drop the messages that no channel has been given yet."""
        first, end = self.distributed, self.end
        if first == end:
            return
        self.store.hole(self.number, first, end)
        self.delay_lane.remove_from(first)
        self._overdue.clear()
        self._delayed_ahead = 0
        self.distributed = end
        for channel in self.readers():
            channel.skip(first, end, 0)
        self.terms = {ordinal: terms for ordinal, terms in self.terms.items() if ordinal < first}

    def delete(self) -> None:
        """Drop everything. Called by the broker."""
        self.deleted = True
        self._pending.clear()
        self._pending_apart.clear()
        self._puts.clear()
        self.seen.clear()
        for name in list(self.channels):
            self.delete_channel(name)
        self.delete_tube()
        self.delay_lane.clear()
        self._overdue.clear()
        self.broker.unwatch(self)
        self.store.drop_topic(self.number)

    # time

    def scan(self, now: int, limit: int) -> int:
        """Release up to `limit` messages whose delay is over. Returns how many it moved."""
        moved = self.delay_lane.approach(now, limit)
        released = self.delay_lane.pop_due(now, limit)
        for message in released:
            if message.ordinal >= self.distributed:  # paused or without channels: it is due, and waits for the edge
                self._overdue.append(message)
                continue
            self.held_back -= 1
            for channel in self.readers():
                if channel.start <= message.ordinal:
                    channel.release(message)
        return moved + len(released)

    def hand_over(self, ordinals: Collection[int]) -> None:
        """What of these waits in the delay lane waits in each of the channels from now on."""
        lane = self.delay_lane.take_with_due(ordinals) if self.held_back else []
        for due, message in lane:
            if message.ordinal >= self.distributed:
                self.delay_lane.push(due, message, self.broker.now)
                continue
            self.held_back -= 1
            for channel in self.readers():
                if channel.start <= message.ordinal:
                    channel.own(due, Message(message.ordinal, 0), self.broker.now)

    def next_due(self) -> int | None:
        """When scan has something to do."""
        return self.delay_lane.wake_at()

    def _watch_lane(self) -> None:
        due = self.delay_lane.wake_at()
        if due is not None and (self.watched is None or due < self.watched[0]):
            self.broker.watch(self, due)

    # queries

    @property
    def depth(self) -> int:
        """Messages that no channel has been given yet."""
        return self.end - self.distributed

    @property
    def backend_depth(self) -> int:
        """Of those, the ones that are on disk only."""
        return self.store.cold(self.number, self.distributed, self.end)

    @property
    def overdue(self) -> tuple[Message, ...]:
        """Messages at or past the edge whose delay is over."""
        return tuple(self._overdue)

    def frame(self, ordinal: int) -> bytes:
        """A message's frame, as far as it can be read at once; b"" else."""
        extent = self.store.read(self.number, ordinal)
        return extent.frames[ordinal - extent.first] if extent is not None else b""

    def delayed_ordinals(self, first: int) -> Iterator[int]:
        """Messages from `first` on, before the edge, that wait in the delay lane."""
        for _, message in self.delay_lane.items():
            if first <= message.ordinal < self.distributed:
                yield message.ordinal

    def check(self) -> None:
        """Raise AssertionError if a sentence above is false."""
        assert 0 <= self.distributed <= self.end
        assert self.distributed == self.end or not self.readers() or self.paused or self.starting
        self.delay_lane.check()
        lane = [message.ordinal for _, message in self.delay_lane.items()]
        assert self.held_back == sum(ordinal < self.distributed for ordinal in lane)
        assert self._delayed_ahead == len(self._overdue) + sum(ordinal >= self.distributed for ordinal in lane)
        for channel in self.readers():
            channel.check()
            assert channel.delayed == sum(channel.start <= ordinal < self.distributed for ordinal in lane)

"""Channels that nodes share: consumers here get messages of channels that nobody reads on another node, and the reverse.

A node tells the others how many messages its consumers of a channel may have: READ. To a node that has the channel, and no
consumers of its own for it, the sender is a consumer with that RDY count. What is delivered to it goes over the connection:
MESSAGES. There it is a stripe of the channel (nsqd/core/borrowed.py), and what becomes of a message comes back: DONE.

When the connection is lost, the lender takes everything back at once, and the borrower forgets it.

See docs/design/cluster.md#sharing-channels.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field

from nsqd.cluster.lending import MOST_AHEAD, MOST_BYTES, REPEAT_EVERY
from nsqd.cluster.link import Link
from nsqd.core import borrowed
from nsqd.core.broker import Broker
from nsqd.core.channel import commands
from nsqd.core.channel.channel import Channel
from nsqd.core.channel.consumer import Consumer
from nsqd.core.message.frame import message_id
from nsqd.protocols.peer.frames import FrameKind, PeerError
from nsqd.protocols.peer.sharing import (
    MOST_DONE,
    Key,
    pack_done,
    pack_messages,
    pack_read,
    split,
    unpack_done,
    unpack_messages,
    unpack_read,
)

MOST_SHARED = 10_000  # channels that one other node reads here, and that this one reads there
GRACE = 60_000_000_000  # ns
LOOK_EVERY = 25_000_000  # ns
LOOKED_AT = 500  # channels in one look, of each kind: about 2 ms
MOST_HELD = 10_000  # messages of a channel, and twice what was asked for: more come only if a lender does not count


class _Reader:
    """The consumers that another node has for a channel, as one consumer of the channel here. Implements ConsumerSink."""

    def __init__(self, sharing: Sharing, link: Link, key: Key) -> None:
        self._sharing = sharing
        self._link = link
        self._key = key
        self.ready = 0  # messages that the other node's consumers may have
        self._rdy = 0  # RDY count of `_consumer`
        self._channel: Channel | None = None
        self._consumer: Consumer | None = None  # None: the channel does not exist, or was deleted
        self.queued = 0  # bytes that were delivered in this turn
        self._is_refused = False  # room() has returned 0 or less

    # ConsumerSink

    def deliver(self, frames: list[bytes], size: int, now: int) -> None:
        assert self._channel is not None
        if self._channel.offsets.gate is not None:
            self._channel.offsets.gate.pass_through()  # what is lent in a turn leaves when all promises of it are kept
        self.queued += size
        self._sharing.delivered[self] = None
        self._sharing.lent += len(frames)
        self._sharing.output += ((self._link, frame) for frame in pack_messages(self._key, frames))

    def room(self) -> int:
        free = MOST_AHEAD - self._link.backlog - self.queued
        self._is_refused = free <= 0
        return free

    def flush(self) -> None: ...

    def evicted(self) -> None:
        self._channel = self._consumer = None

    # what the other node says

    def done(self, finished: bytes, returned: list[tuple[bytes, int]], now: int) -> None:
        """Finish messages, and make others ready again. What is not in flight any more is passed over."""
        channel, consumer = self._channel, self._consumer
        if channel is None or consumer is None:
            return
        commands.finish(channel, consumer, finished)
        for name, delay in returned:
            if delay in (borrowed.UNDELIVERED, borrowed.NOT_FAILED):
                commands.give_back(channel, consumer, name, delay == borrowed.NOT_FAILED)
            else:
                commands.requeue(channel, consumer, name, delay, now)

    # turns

    def update(self) -> bool:
        """Agree with what the node has: the channel, and whether it has consumers of its own, which come first.

        Returns False if the other node's consumers want nothing, and have nothing.
        """
        channel = self._sharing.channel(self._key)
        if channel is not self._channel:
            self.leave()
            if channel is not None:
                self._channel = channel
                self._consumer = channel.subscribe(self, self._sharing.loan_time, 0)
                self._consumer.is_guest = True
        if channel is None or self._consumer is None:
            return self.ready > 0
        ready = self.ready if all(one.is_guest for one in channel.consumers.values()) else 0
        if ready != self._rdy:
            self._rdy = ready
            commands.set_ready(channel, self._consumer, ready)
        elif self._is_refused and self._link.backlog < MOST_AHEAD // 2:
            channel.refresh(self._consumer)
        return self.ready > 0 or any(member.in_flight for _, member in self._holders(channel, self._consumer))

    def _holders(self, channel: Channel, consumer: Consumer) -> list[tuple[Channel, Consumer]]:
        """Return the channel and its stripes, each with the consumer that has its messages."""
        return consumer.window.holders() if consumer.window is not None else [(channel, consumer)]

    def leave(self) -> None:
        """Take back everything, and read no more."""
        channel, consumer = self._channel, self._consumer
        self._channel = self._consumer = None
        self._rdy = 0
        if channel is None or consumer is None:
            return
        for one, member in self._holders(channel, consumer):
            one.take_back(member)
        channel.unsubscribe(consumer)


class _Borrowed:
    """What another node lends to the consumers of one channel. Implements nsqd.core.borrowed.Lender."""

    def __init__(self, sharing: Sharing, broker: Broker, home: Channel, node: _Node, key: Key) -> None:
        self.home, self.node, self.key = home, node, key
        self._sharing = sharing
        self.channel = borrowed.borrow(broker, home, self)
        self._finished: list[bytes] = []
        self._returned: list[tuple[bytes, int]] = []

    def finished(self, ids: list[bytes]) -> None:
        self._finished += ids
        self._sharing.done[self] = None

    def returned(self, message_id: bytes, delay: int) -> None:
        self._returned.append((message_id, delay))
        self._sharing.done[self] = None

    def pack_done(self) -> Iterator[bytes]:
        """Yield the frames that tell what became of messages, and forget it."""
        while self._finished or self._returned:
            finished, self._finished = self._finished[:MOST_DONE], self._finished[MOST_DONE:]
            returned, self._returned = self._returned[:MOST_DONE], self._returned[MOST_DONE:]
            yield pack_done(self.key, b"".join(finished), returned)


@dataclass(slots=True)
class _Node:
    """Another node that is connected, and what this node and that one read of each other's channels."""

    link: Link
    readers: dict[Key, _Reader] = field(default_factory=dict)  # what it reads here
    borrowed: dict[Key, _Borrowed] = field(default_factory=dict)  # what it has lent
    # what it knows of the consumers here; of a channel that is not there: there are none
    announced: dict[Key, int] = field(default_factory=dict)
    parts: bytearray = field(default_factory=bytearray)  # of messages that are not complete
    _reader_keys: deque[Key] = field(default_factory=deque)  # those that are still to be looked at in this round
    _borrowed_keys: deque[Key] = field(default_factory=deque)

    def next_readers(self, most: int) -> list[Key]:
        """Return which readers to look at next."""
        return _next_of(self._reader_keys, self.readers, most)

    def next_borrowed(self, most: int) -> list[Key]:
        """Return which borrowed channels to look at next."""
        return _next_of(self._borrowed_keys, self.borrowed, most)


def _next_of(keys: deque[Key], present: Collection[Key], most: int) -> list[Key]:
    """Take the next keys of those that are still present. All come in their turn."""
    if not keys:
        keys.extend(present)
    taken = [keys.popleft() for _ in range(min(most, len(keys)))]
    return [key for key in taken if key in present]


class Sharing:
    """The channels that one node shares with others. All methods belong to a turn, but for `closed`."""

    def __init__(self, broker: Broker, longest: int) -> None:
        """`longest`: ns for which a consumer may have a message, however often it sends TOUCH (-max-msg-timeout)."""
        self._broker = broker
        self.loan_time = longest + GRACE  # a borrower gives everything back before
        self.output: list[tuple[Link, bytes]] = []  # frames that leave when the promises of this turn are kept
        self.lent = self.borrowed = 0  # messages since the start
        self._nodes: dict[int, _Node] = {}  # by node number
        self.done: dict[_Borrowed, None] = {}  # those that have something to tell their lenders
        self.delivered: dict[_Reader, None] = {}  # those that were given messages in this turn
        self._gone: list[tuple[int, Link]] = []  # connections that are gone since the last turn
        self._look_due = self._repeat_due = 0  # monotonic ns
        self._repeats = False  # this round says again what the others have been told
        self.scan_entry: tuple[int, int] | None = None  # (due, handle) in the agenda: see ScanQueue
        self._waiting: deque[Key] = deque()  # channels of this node that are still to be looked at in this round

    def channel(self, key: Key) -> Channel | None:
        """Return a channel that may be shared, if it exists."""
        topic = self._broker.topics.get(key[0])
        channel = topic.channels.get(key[1]) if topic is not None and not topic.ephemeral else None
        return channel if channel is not None and not channel.ephemeral else None

    # connections

    def admitted(self, link: Link) -> None:
        """Begin with a node that is connected now."""
        assert link.peer is not None
        self._end(link.peer.number)
        self._nodes[link.peer.number] = _Node(link)
        self._waiting.clear()
        self._look_due = 0

    def closed(self, number: int, link: Link) -> None:
        """Note that a connection to a node is gone: what was lent over it is taken back in the next turn."""
        self._gone.append((number, link))

    def _end(self, number: int) -> None:
        node = self._nodes.pop(number, None)
        if node is not None:
            for reader in node.readers.values():
                reader.leave()
            for one in node.borrowed.values():
                self.done.pop(one, None)
                borrowed.end(self._broker, one.channel)

    # frames

    def receive(self, link: Link, kind: FrameKind, content: bytes) -> None:
        """Take a frame about shared channels that came from another node. Raises PeerError."""
        assert link.peer is not None
        node = self._nodes.get(link.peer.number)
        if node is None or node.link is not link:
            return
        match kind:
            case FrameKind.READ:
                self._read(node, *unpack_read(content))
            case FrameKind.MESSAGES:
                key, has_more, data = unpack_messages(content)
                node.parts += data
                if len(node.parts) > MOST_BYTES:
                    raise PeerError("a message of a shared channel is too large")
                if not has_more:
                    self._take(node, key, split(bytes(node.parts)))
                    node.parts.clear()
            case FrameKind.DONE:
                key, finished, returned = unpack_done(content)
                reader = node.readers.get(key)
                if reader is not None:
                    reader.done(finished, returned, self._broker.now)

    def _read(self, node: _Node, key: Key, ready: int) -> None:
        reader = node.readers.get(key)
        if reader is None:
            if not ready or len(node.readers) >= MOST_SHARED:
                return
            reader = node.readers[key] = _Reader(self, node.link, key)
        reader.ready = ready
        reader.update()

    def _take(self, node: _Node, key: Key, frames: list[bytes]) -> None:
        home = self.channel(key)
        if home is None or not wanted(home):
            self._announce(key)  # first: what comes back is lent again at once
            returned = [(message_id(frame), borrowed.UNDELIVERED) for frame in frames]
            for at in range(0, len(returned), MOST_DONE):
                self.output.append((node.link, pack_done(key, b"", returned[at : at + MOST_DONE])))
            return
        one = node.borrowed.get(key)
        if one is None:
            one = node.borrowed[key] = _Borrowed(self, self._broker, home, node, key)
        if one.channel.held + len(frames) > MOST_HELD + 2 * node.announced.get(key, 0):
            raise PeerError("more messages of a shared channel came than were asked for")
        self.borrowed += len(frames)
        for frame in frames:
            one.channel.add(frame)

    # turns

    def tick(self, now: int) -> None:
        """Look after a part of the channels, and tell the others what has changed. Call it in a turn."""
        for number, link in self._gone:
            if number in self._nodes and self._nodes[number].link is link:
                self._end(number)
        self._gone.clear()
        if not self._nodes:
            return
        if now < self._look_due:
            if self.scan_entry is None:  # there may be no turn after this one that looks at what this one changes
                self._broker.agenda.schedule_scan(self, self._look_due)
            return
        self._look_due = now + LOOK_EVERY
        if not self._waiting:
            self._repeats = now >= self._repeat_due  # others may have had no room for an announcement
            if self._repeats:
                self._repeat_due = now + REPEAT_EVERY
            own = {(topic.name, name) for topic in self._broker.topics.values() for name in topic.channels}
            self._waiting.extend(sorted(own.union(*(node.announced for node in self._nodes.values()))))
        for _ in range(min(LOOKED_AT, len(self._waiting))):
            self._announce(self._waiting.popleft())
        for node in self._nodes.values():
            for key in node.next_readers(LOOKED_AT):
                if not node.readers[key].update():
                    node.readers.pop(key).leave()
            for key in node.next_borrowed(LOOKED_AT):
                self._look_after(node.borrowed[key])

    def next_due(self) -> int | None:
        """Return None: `tick` has looked before the scan comes."""
        return None

    def scan(self, now: int, limit: int) -> int:
        """Do nothing: an entry in the agenda only sees to it that there is a turn."""
        return 0

    def _look_after(self, one: _Borrowed) -> None:
        """Give back what nobody waits for any more, and forget a channel that has nothing."""
        channel, is_same = one.channel, self.channel(one.key) is one.home
        ready = wanted(one.home) if is_same else 0
        if not ready:
            self._announce(one.key)
        if not is_same:
            channel.empty()
        elif not ready:
            channel.give_back_waiting()
        if is_same and (ready or channel.in_flight_count):
            return
        self._send_done(one)
        borrowed.end(self._broker, channel)
        del one.node.borrowed[one.key]

    def _announce(self, key: Key) -> None:
        home = self.channel(key)
        ready = wanted(home) if home is not None else 0
        share = -(-ready // len(self._nodes))
        for node in self._nodes.values():
            before = node.announced.get(key, 0)
            if before == share and not (share and self._repeats):
                continue
            if not share:
                del node.announced[key]
            elif before or len(node.announced) < MOST_SHARED:
                node.announced[key] = share
            else:
                continue
            self.output.append((node.link, pack_read(key, share)))

    def _send_done(self, one: _Borrowed) -> None:
        self.output += ((one.node.link, frame) for frame in one.pack_done())

    def take_output(self) -> list[tuple[Link, bytes]]:
        """Return the frames that leave when the promises of this turn are kept, and forget them."""
        for one in self.done:
            self._send_done(one)
        self.done.clear()
        for reader in self.delivered:
            reader.queued = 0
        self.delivered.clear()
        output, self.output = self.output, []
        return output

    def __repr__(self) -> str:
        return f"<Sharing with {len(self._nodes)} nodes: {self.lent} lent, {self.borrowed} borrowed>"


def wanted(channel: Channel) -> int:
    """Return how many messages the channel's own consumers may have in flight together; 0 while it is paused."""
    if channel.paused is not None:
        return 0
    own = [consumer for consumer in channel.consumers.values() if not consumer.is_guest]
    return sum(consumer.window.rdy if consumer.window is not None else consumer.ready for consumer in own)

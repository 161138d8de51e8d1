"""Channels that nodes share: consumers here get messages of channels that nobody reads on another node, and the reverse.

A node tells the others how many messages its consumers of a channel may have: READ. To a node that has the channel, and no
consumers of its own for it, the sender is a consumer with that RDY count. What is delivered to it goes over the connection:
MESSAGES. There it is a stripe of the channel (nsqd/core/borrowed.py), and what becomes of a message comes back: DONE.

When the connection is lost, the lender takes everything back at once, and the borrower forgets it.

See docs/design/cluster.md#sharing-channels.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

from nsqd.cluster.lending import MOST_AHEAD
from nsqd.cluster.link import Link
from nsqd.core import borrowed
from nsqd.core.broker import Broker
from nsqd.core.channel import commands
from nsqd.core.channel.channel import Channel
from nsqd.core.channel.consumer import Consumer
from nsqd.core.message.frame import message_id
from nsqd.protocols.peer.frames import FrameKind, PeerError
from nsqd.protocols.peer.sharing import (
    MOST_AT_ONCE,
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
LOOK_EVERY = 25_000_000  # ns
LOOKED_AT = 500  # channels of this node in one look: about 0.3 ms


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
        self._queued = 0  # bytes that were delivered in this turn
        self._is_refused = False  # room() has returned 0 or less

    # ConsumerSink

    def deliver(self, frames: list[bytes], size: int, now: int) -> None:
        assert self._channel is not None
        if self._channel.offsets.gate is not None:
            self._channel.offsets.gate.pass_through()  # what is lent in a turn leaves when all promises of it are kept
        self._queued += size
        self._sharing.lent += len(frames)
        self._sharing.output += ((self._link, frame) for frame in pack_messages(self._key, frames))

    def room(self) -> int:
        free = MOST_AHEAD - self._link.backlog - self._queued
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
            if delay == borrowed.UNDELIVERED:
                commands.give_back(channel, consumer, name)
            else:
                commands.requeue(channel, consumer, name, delay, now)

    # turns

    def update(self) -> bool:
        """Agree with what the node has: the channel, and whether it has consumers of its own, which come first.

        Returns False if the other node's consumers want nothing, and have nothing.
        """
        self._queued = 0
        channel = self._sharing.channel(self._key)
        if channel is not self._channel:
            self.leave()
            if channel is not None:
                self._channel = channel
                self._consumer = channel.subscribe(self, self._sharing.loan_time, 0)
        if channel is None or self._consumer is None:
            return self.ready > 0
        ready = 0 if any(map(is_own, channel.consumers.values())) else self.ready
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
        holders = self._holders(channel, consumer)
        channel.unsubscribe(consumer)
        for one, member in holders:
            one.return_all(member)


class _Borrowed:
    """What another node lends to the consumers of one channel. Implements nsqd.core.borrowed.Lender."""

    def __init__(self, broker: Broker, home: Channel) -> None:
        self.home = home
        self.channel = borrowed.borrow(broker, home, self)
        self._finished: list[bytes] = []
        self._returned: list[tuple[bytes, int]] = []

    def finished(self, ids: list[bytes]) -> None:
        self._finished += ids

    def returned(self, message_id: bytes, delay: int) -> None:
        self._returned.append((message_id, delay))

    def take_done(self, key: Key) -> Iterator[bytes]:
        """Yield the frames that tell what became of messages, and forget it."""
        while self._finished or self._returned:
            finished, self._finished = self._finished[:MOST_DONE], self._finished[MOST_DONE:]
            returned, self._returned = self._returned[:MOST_DONE], self._returned[MOST_DONE:]
            yield pack_done(key, b"".join(finished), returned)


@dataclass(slots=True)
class _Node:
    """Another node that is connected."""

    link: Link
    readers: dict[Key, _Reader] = field(default_factory=dict)  # what it reads here
    borrowed: dict[Key, _Borrowed] = field(default_factory=dict)  # what it has lent
    announced: dict[Key, int] = field(
        default_factory=dict
    )  # what it knows of the consumers here; a channel without: none
    parts: bytearray = field(default_factory=bytearray)  # of messages that are not complete


class Sharing:
    """The channels that one node shares with others. All methods belong to a turn, but for `closed`."""

    def __init__(self, broker: Broker, most_bytes: int, loan_time: int) -> None:
        """`most_bytes`: of a message's body. `loan_time`: ns until a message comes back of which its borrower says nothing."""
        self._broker = broker
        self._most_bytes = most_bytes
        self.loan_time = loan_time
        self.output: list[tuple[Link, bytes]] = []  # frames that leave when the promises of this turn are kept
        self.lent = self.borrowed = 0  # messages since the start
        self._nodes: dict[int, _Node] = {}  # by node number
        self._gone: list[tuple[int, Link]] = []  # connections that are gone since the last turn
        self._look_due = 0  # monotonic ns
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
                borrowed.end(self._broker, one.channel)

    # frames

    def receive(self, link: Link, kind: FrameKind, content: bytes) -> None:
        """Take a frame. Raises PeerError."""
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
                if len(node.parts) > self._most_bytes + MOST_AT_ONCE:
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
            one = node.borrowed[key] = _Borrowed(self._broker, home)
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
        for node in self._nodes.values():
            for key, reader in list(node.readers.items()):
                if not reader.update():
                    reader.leave()
                    del node.readers[key]
            for key, one in list(node.borrowed.items()):
                self._look_after(node, key, one)
        if not self._waiting:
            own = {(topic.name, name) for topic in self._broker.topics.values() for name in topic.channels}
            self._waiting.extend(own.union(*(node.announced for node in self._nodes.values())))
        for _ in range(min(LOOKED_AT, len(self._waiting))):
            self._announce(self._waiting.popleft())

    def next_due(self) -> int | None:
        """Return None: `tick` has looked before the scan comes."""
        return None

    def scan(self, now: int, limit: int) -> int:
        """Do nothing: an entry in the agenda only sees to it that there is a turn."""
        return 0

    def _look_after(self, node: _Node, key: Key, one: _Borrowed) -> None:
        """Give back what nobody waits for any more, and forget a channel that has nothing."""
        channel, is_same = one.channel, self.channel(key) is one.home
        ready = wanted(one.home) if is_same else 0
        if not ready:
            self._announce(key)
        if not is_same:
            channel.empty()
        elif not ready:
            channel.give_back_waiting()
        if is_same and (ready or channel.in_flight_count):
            return
        self._send_done(node, key, one)
        borrowed.end(self._broker, channel)
        del node.borrowed[key]

    def _announce(self, key: Key) -> None:
        home = self.channel(key)
        ready = wanted(home) if home is not None else 0
        share = -(-ready // len(self._nodes))
        for node in self._nodes.values():
            if node.announced.get(key, 0) == share or (
                len(node.announced) >= MOST_SHARED and key not in node.announced
            ):
                continue
            if share:
                node.announced[key] = share
            else:
                del node.announced[key]
            self.output.append((node.link, pack_read(key, share)))

    def _send_done(self, node: _Node, key: Key, one: _Borrowed) -> None:
        self.output += ((node.link, frame) for frame in one.take_done(key))

    def take_output(self) -> list[tuple[Link, bytes]]:
        """Return the frames that leave when the promises of this turn are kept, and forget them."""
        for node in self._nodes.values():
            for key, one in node.borrowed.items():
                self._send_done(node, key, one)
        output, self.output = self.output, []
        return output

    def __repr__(self) -> str:
        return f"<Sharing with {len(self._nodes)} nodes: {self.lent} lent, {self.borrowed} borrowed>"


def is_own(consumer: Consumer) -> bool:
    """Return True if this is a consumer of this node, and does not stand for those of another one."""
    return not isinstance(consumer.sink, _Reader)


def wanted(channel: Channel) -> int:
    """Return how many messages the channel's own consumers may have in flight together; 0 while it is paused."""
    if channel.paused is not None:
        return 0
    own = [consumer for consumer in channel.consumers.values() if is_own(consumer)]
    return sum(consumer.window.rdy if consumer.window is not None else consumer.ready for consumer in own)

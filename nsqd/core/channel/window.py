"""The shards of a channel, and the windows by which its consumers span them.

A *shard* is the channel of a promoted log, beside the *home channel* of the same name, to which consumers subscribe. A
consumer has one `Consumer` in each of these channels, its *members*, and one `Window`: whatever the members have in flight
together never exceeds its RDY. A channel without shards knows nothing of all this; with the first shard it is given another
Dispatch.

All channels share the consumers that are ready: those whose window is not full, and whose sink has room. A channel is *active*
while it may have messages that wait for one of them. The others cost nothing, however many there are: they take no part until
a message wakes them.

The law that this file keeps: while a consumer is ready, each channel that can deliver is in the agenda, or one is that wakes
the others when it has been served. So a window that opens wakes a single channel. The channels take turns: the one that has
just delivered is woken last. One that delivers many messages at once keeps its turn for a short time.

See docs/contributing/design/channel.md#shards.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from nsqd.core.channel.consumer import CLOSED_SINK, Consumer
from nsqd.core.channel.dispatch import Dispatch, Supply
from nsqd.core.channel.inflight import NOT_IN_FLIGHT
from nsqd.core.message.frame import ID_SIZE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from nsqd.core.channel.channel import Channel
    from nsqd.core.channel.inflight import DeliveryOwner

BATCH = 64  # messages; a channel that delivers so many at once, to consumers that are fast, keeps its turn
TURN = 25_000_000  # ns for which it keeps its turn: FINs and deliveries of one turn are then records of one log
NODE_DIGITS = 4  # of a message id: the node that issued it
# What a channel that is not active has for the ready consumers: somebody, so that it is served as soon as it has a message.
SOMEBODY: dict[Consumer, None] = {Consumer(CLOSED_SINK, 0, 0, 0): None}


class Shards:
    """A home channel and its shards, the consumers that are ready, and the channels that take turns."""

    __slots__ = ("_turn_ends", "active", "home", "ready", "routes")

    def __init__(self, home: Channel) -> None:
        """Begin without shards. From now on each consumer of the channel has a window."""
        self.home = home
        self.ready = home.dispatch.ready  # consumers of the home channel, in the order in which they are served
        self.active: dict[Channel, None] = {}  # channels that may have messages, the next in turn first
        self._turn_ends = 0  # monotonic ns; the channel whose turn it is keeps it until then
        # by the first digits of message ids: the channel in which such an id was last found in flight
        self.routes: dict[bytes, Channel] = {}
        home.dispatch = ShardedDispatch(home.dispatch, home, self)
        for consumer in home.consumers.values():
            consumer.window = Window(self, consumer)
        home.wake()

    def add(self, shard: Channel) -> None:
        """Let all consumers of the home channel consume from `shard`, too. It must have no consumers."""
        shard.dispatch = ShardedDispatch(shard.dispatch, shard, self)
        shard.count_with(self.home)
        self.home.shards += (shard,)
        for consumer in self.home.consumers.values():
            window_of(consumer).add(shard)
        shard.wake()

    def remove(self, shard: Channel) -> None:
        """Take `shard` out. What its consumers have in flight from it counts no more; FINs for that will fail."""
        home = self.home
        for consumer in list(shard.consumers.values()):
            window_of(consumer).drop(shard)
        shard.dispatch = plain(shard.dispatch, {})
        self.active.pop(shard, None)
        home.shards = tuple(one for one in home.shards if one is not shard)
        self.routes = {digits: channel for digits, channel in self.routes.items() if channel is not shard}
        if len(home.shards) == 1:
            self._end()
        for consumer in home.consumers.values():
            home.refresh(consumer)
        self.wake_active()  # it may have been the one that wakes the others

    def _end(self) -> None:
        """Make the home channel one without shards again."""
        self.active.clear()
        for consumer in self.home.consumers.values():
            consumer.ready = window_of(consumer).rdy
            consumer.window = None
        self.home.dispatch = plain(self.home.dispatch, self.ready)
        self.home.wake()

    # turns

    def wake_next(self) -> None:
        """Wake the next channel that can deliver, because a consumer has become ready.

        When the channel has been served, it wakes the others if a consumer is still ready.
        """
        for channel in [*self.active]:
            if channel.wake():
                return
            if channel.depth <= 0:
                self._rest(channel)

    def wake_active(self) -> None:
        """Wake all channels that can deliver, if a consumer is ready."""
        if self.ready:
            for channel in [*self.active]:
                if not channel.wake() and channel.depth <= 0:
                    self._rest(channel)

    def note_turn(self, channel: Channel, count: int, now: int) -> None:
        """Note that a channel has delivered `count` messages: all others are woken before it, unless it keeps its turn."""
        if count >= BATCH and now < self._turn_ends:
            return
        self._turn_ends = now + TURN
        if channel in self.active:
            del self.active[channel]
            self.active[channel] = None

    def _rest(self, channel: Channel) -> None:
        """Let a channel that has no messages take no part until it has some."""
        del self.active[channel]
        channel.dispatch.ready = SOMEBODY

    def check(self) -> None:
        """Raise AssertionError if an invariant of this class does not hold."""
        for consumer in self.ready:
            window = window_of(consumer)
            assert self.home.consumers[consumer] is consumer is window.home
            assert window.count(consumer) > 0
            assert consumer.room > 0
            assert window.taken == sum(member.in_flight for member in window.members.values())
        assert all(channel.dispatch.ready is self.ready for channel in self.active)

    def __repr__(self) -> str:
        return f"<Shards: {len(self.home.shards)} of {self.home.name}>"


class Window:
    """How many messages one consumer may have in flight, over a home channel and its shards."""

    __slots__ = ("_shards", "home", "members", "rdy", "taken")

    def __init__(self, shards: Shards, home: Consumer) -> None:
        """Take over the RDY count of `home`, the consumer of the home channel, and join all shards there are."""
        self._shards = shards
        self.home = home
        self.rdy = home.ready  # messages; what the client asked for
        self.members: dict[Channel, Consumer] = {shards.home: home}
        self.taken = home.counted = home.in_flight  # the sum of `counted` of the members
        for shard in shards.home.shards[1:]:
            self.add(shard)

    # members

    def add(self, shard: Channel) -> None:
        """Subscribe to a shard as the home consumer did to its channel."""
        home = self.home
        sink = ShardSink(self)
        member = sink.member = shard.subscribe(sink, home.msg_timeout, home.sample_rate, home.distance)
        member.window = self
        self.members[shard] = member

    def drop(self, shard: Channel) -> None:
        """Forget the member of a shard that goes, with what it has in flight."""
        member = self.members.pop(shard)
        self.taken -= member.counted
        del shard.consumers[member]
        member.sink, member.window = CLOSED_SINK, None

    def end(self) -> None:
        """Unsubscribe from all shards: the client leaves the home channel."""
        members, self.members = self.members, {}
        self.home.window = None
        self._shards.ready.pop(self.home, None)
        for channel, member in members.items():
            if member is not self.home:
                member.window = None
                channel.unsubscribe(member)

    # what is free of it

    def count(self, member: Consumer) -> int:
        """Take note of what `member` has in flight. Return how many more messages may be in flight; at most 0: none."""
        self.taken += member.in_flight - member.counted
        member.counted = member.in_flight
        return self.rdy - self.taken

    def refresh(self, member: Consumer) -> None:
        """Look again how much is free after messages of `member` have ended, and whether the consumer is ready.

        Wake a channel if it has just become so.
        """
        home, ready = self.home, self._shards.ready
        if member is not home:
            self.count(member)
        free = self.count(home)
        home.ready = home.in_flight + free
        if free <= 0:
            ready.pop(home, None)
        elif home not in ready:
            home.room = home.sink.room()
            if home.room > 0:
                ready[home] = None
                self._shards.wake_next()

    # commands

    def holders(self) -> list[tuple[Channel, Consumer]]:
        """Return the members, each with its channel; the home channel's is the first."""
        return list(self.members.items())

    def likely_holder(self, ids: bytes) -> Channel:
        """Return the channel that is likely to have these messages of one node in flight (16 bytes each)."""
        route = self._shards.routes.get(ids[:NODE_DIGITS])
        return self._find_route(ids) if route is None else route

    def _find_route(self, ids: bytes) -> Channel:
        first = ids[:ID_SIZE]
        for channel in self.members:
            if channel.in_flight.why_not(first) != NOT_IN_FLIGHT:
                self.note_route(first, channel)
                return channel
        return self._shards.home

    def note_route(self, message_id: bytes, channel: Channel) -> None:
        """Note where a message was found, for `likely_holder`. There are as many routes as nodes that issued messages."""
        self._shards.routes[message_id[:NODE_DIGITS]] = channel

    # figures

    def total(self, count: str) -> int:
        """Return the sum of a count of the members, for example "finish_count"."""
        return sum(getattr(member, count) for member in self.members.values())

    def __repr__(self) -> str:
        return f"<Window: RDY {self.rdy}, {self.rdy - self.taken} free, {len(self.members)} members>"


class ShardSink:
    """The sink of a member in a shard: it passes everything to that of the home channel's. Implements ConsumerSink."""

    __slots__ = ("_window", "member")

    member: Consumer

    def __init__(self, window: Window) -> None:
        self._window = window

    def deliver(self, frames: list[bytes], size: int, now: int) -> None:
        window = self._window
        home = window.home
        home.ready = home.in_flight + window.count(self.member)  # the connection looks whether more can follow
        home.sink.deliver(frames, size, now)

    def room(self) -> int:
        window = self._window
        room = window.home.sink.room()
        self.member.ready = self.member.in_flight + window.count(self.member)  # the sink may make the window smaller
        return room

    def flush(self) -> None:
        self._window.home.sink.flush()

    def evicted(self) -> None:
        raise AssertionError("a shard is taken out before it is deleted")

    def __repr__(self) -> str:
        return f"<ShardSink of {self._window!r}>"


class ShardedDispatch(Dispatch):
    """The Dispatch of a home channel that has shards, or of a shard. All consumers have windows."""

    __slots__ = ("_channel", "shards")

    def __init__(self, before: Dispatch, channel: Channel, shards: Shards) -> None:
        """Go on for `before`, the channel's Dispatch until now. The channel is to be woken next."""
        super().__init__(before.nearest_first, before.random_below)
        self.ready, self.deliveries = SOMEBODY, before.deliveries
        self._channel = channel
        self.shards = shards

    def join(self, consumer: Consumer) -> None:
        if self._channel is self.shards.home:
            consumer.window = Window(self.shards, consumer)

    def refresh(self, consumer: Consumer) -> bool:
        """Look again at the whole window. Return False: a channel that can deliver is awake already."""
        window_of(consumer).refresh(consumer)
        return False

    def remove(self, consumer: Consumer) -> None:
        if consumer.window is not None and consumer is consumer.window.home:
            consumer.window.end()
        consumer.ready = 0

    def close(self) -> None:
        shards = self.shards
        for shard in shards.home.shards[1:] if self._channel is shards.home else (self._channel,):
            shards.remove(shard)

    def serve(self, supply: Supply, depth: int, now: int) -> None:
        shards = self.shards
        if self.ready is SOMEBODY:
            self.ready = shards.ready
            shards.active[self._channel] = None
        if shards.ready:
            super().serve(supply, depth, now)
            if shards.ready:
                shards.wake_active()

    def pass_on(self) -> None:
        self.shards.wake_active()

    def _serve(self, supply: Supply, waiting: int, depth: int, now: int) -> int:
        ready, channel, before = self.ready, self._channel, depth
        while waiting > 0 and depth > 0:
            home = next(iter(ready))
            del ready[home]
            window = window_of(home)
            consumer = window.members[channel]
            most = consumer.ready = consumer.in_flight + window.count(home)
            depth = self._deliver_share(supply, consumer, -(-depth // waiting), depth, now)
            waiting -= 1
            if consumer.room > 0 and consumer.in_flight < most:
                home.room = consumer.room
                ready[home] = None
        if depth != before:
            self.shards.note_turn(channel, before - depth, now)
        return depth

    def _message_count(self, consumers: list[Consumer]) -> int:
        channel = self._channel
        return sum(window_of(home).members[channel].message_count for home in consumers)

    def check(self) -> None:
        home = self.shards.home
        assert self._channel in home.shards
        assert self._channel.dispatch is self
        assert (self.ready is SOMEBODY) == (self._channel not in self.shards.active)
        self.shards.check()

    def check_consumers(self, consumers: Mapping[DeliveryOwner, Consumer]) -> None:
        home = self.shards.home
        assert all(tuple(window_of(consumer).members) == home.shards for consumer in consumers.values())


def window_of(consumer: Consumer) -> Window:
    """Return the window of a consumer of a channel that has shards."""
    assert consumer.window is not None
    return consumer.window


def plain(sharded: Dispatch, ready: dict[Consumer, None]) -> Dispatch:
    """Return a Dispatch for a channel that has no shards any more, and is none. `ready`: its ready consumers."""
    dispatch = Dispatch(sharded.nearest_first, sharded.random_below)
    dispatch.ready, dispatch.deliveries = ready, sharded.deliveries
    return dispatch


def link(home: Channel, shard: Channel) -> None:
    """Make `shard`, which has no consumers, a shard of `home`."""
    dispatch = home.dispatch
    (dispatch.shards if isinstance(dispatch, ShardedDispatch) else Shards(home)).add(shard)


def unlink(channel: Channel) -> None:
    """Take a shard out, or all shards of a home channel. Does nothing for any other channel."""
    channel.dispatch.close()

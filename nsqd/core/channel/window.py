"""The shards of a channel, and the windows of consumers over all of them.

A *shard* is the channel of a promoted log. Consumers subscribe to the *local channel* of the same name, that of the node's own
log. A consumer has one `Consumer` in each of these channels, its *members*, and one `ShardedWindow`: the members together never
have more messages in flight than its RDY. A channel without shards knows nothing of all this; with the first shard it gets
another Dispatch.

All channels share the consumers that are ready: those whose window is not full, and whose sink has room. A channel is *active*
while it may have messages that wait for one of them. The others cost nothing, however many there are: they take no part until
a message wakes them.

The invariant of this file: while a consumer is ready, each channel that can deliver is in the agenda, or one is that wakes
the others when it has been served. So a window that opens wakes a single channel. The channels take turns: the one that has
just delivered is woken last. One that delivers many messages at once keeps its turn for a short time.

See docs/contributing/design/channel.md#shards.
"""

from collections.abc import Mapping

from nsqd.core.channel.channel import Channel
from nsqd.core.channel.consumer import CLOSED_SINK, Consumer
from nsqd.core.channel.dispatch import Dispatch, Supply
from nsqd.core.channel.inflight import NOT_IN_FLIGHT, DeliveryOwner, InFlight
from nsqd.core.message.frame import ID_SIZE

BATCH = 64  # messages; a channel that delivers as many at once, to consumers that are fast, keeps its turn
TURN = 25_000_000  # ns for which it keeps its turn: FINs and deliveries of one turn are then records of one log
NODE_DIGITS = 4  # of a message id: the node that issued it
# The ready consumers of a channel that is not active: any one, so that the channel is served as soon as it has a message.
SOME_CONSUMER: dict[Consumer, None] = {Consumer(CLOSED_SINK, 0, 0, 0): None}


class Shards:
    """A local channel and its shards, the consumers that are ready, and the channels that take turns."""

    __slots__ = ("_turn_ends", "active", "local", "ready", "routes")

    def __init__(self, local: Channel) -> None:
        """Begin without shards. From now on each consumer of the channel has a window."""
        self.local = local
        self.ready = local.dispatch.ready  # consumers of the local channel, in the order in which they are served
        self.active: dict[Channel, None] = {}  # channels that may have messages, the next in turn first
        self._turn_ends = 0  # monotonic ns; the channel whose turn it is keeps it until then
        # by the first digits of message ids: the channel in which such an id was last found in flight
        self.routes: dict[bytes, Channel] = {}
        local.dispatch = ShardedDispatch(local.dispatch, local, self)
        for consumer in local.consumers.values():
            consumer.window = ShardedWindow(self, consumer)
        local.wake()

    def add(self, shard: Channel) -> None:
        """Let all consumers of the local channel consume from `shard`, too. It must have no consumers."""
        shard.dispatch = ShardedDispatch(shard.dispatch, shard, self)
        shard.count_with(self.local)
        self.local.shards += (shard,)
        for consumer in self.local.consumers.values():
            window_of(consumer).add(shard)
        shard.wake()

    def remove(self, shard: Channel) -> None:
        """Take `shard` out. What its consumers have in flight from it no longer counts; FINs for that will fail."""
        local = self.local
        for consumer in list(shard.consumers.values()):
            window_of(consumer).drop(shard)
        shard.dispatch, shard.throttle = plain(shard.dispatch, {}), None
        self.active.pop(shard, None)
        local.shards = tuple(one for one in local.shards if one is not shard)
        self.routes = {digits: channel for digits, channel in self.routes.items() if channel is not shard}
        if len(local.shards) == 1:
            self._end()
        for consumer in local.consumers.values():
            local.refresh(consumer)
        self.wake_active()  # it may have been the one that wakes the others

    def _end(self) -> None:
        """Make the local channel one without shards again."""
        self.active.clear()
        for consumer in self.local.consumers.values():
            consumer.ready = window_of(consumer).rdy
            consumer.window = None
        self.local.dispatch = plain(self.local.dispatch, self.ready)
        self.local.wake()

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
        channel.dispatch.ready = SOME_CONSUMER

    def check(self) -> None:
        """Raise AssertionError if an invariant of this class does not hold."""
        for consumer in self.ready:
            window = window_of(consumer)
            assert self.local.consumers[consumer] is consumer is window.local
            assert window.count(consumer) > 0
            assert consumer.room > 0
            assert window.taken == sum(member.in_flight for member in window.members.values())
        assert all(channel.dispatch.ready is self.ready for channel in self.active)

    def __repr__(self) -> str:
        return f"<Shards: {len(self.local.shards)} of {self.local.name}>"


class ShardedWindow:
    """How many messages one consumer may have in flight, over a local channel and its shards. Implements Window."""

    __slots__ = ("_shards", "local", "members", "rdy", "taken")

    def __init__(self, shards: Shards, local: Consumer) -> None:
        """Take over the RDY count of `local`, the consumer of the local channel, and join all shards there are."""
        self._shards = shards
        self.local = local
        self.rdy = local.ready  # messages that the client asked for
        self.members: dict[Channel, Consumer] = {shards.local: local}
        self.taken = local.counted = local.in_flight  # the sum of `counted` of the members
        for shard in shards.local.shards[1:]:
            self.add(shard)

    # members

    def add(self, shard: Channel) -> None:
        """Subscribe to a shard as the consumer did to the local channel."""
        local = self.local
        sink = ShardSink(self)
        member = sink.member = shard.subscribe(
            sink, local.msg_timeout, local.sample_rate, local.distance, local.takes_headers
        )
        member.window = self
        self.members[shard] = member

    def drop(self, shard: Channel) -> None:
        """Forget the member of a shard that is taken out, with what it has in flight."""
        member = self.members.pop(shard)
        self.taken -= member.counted
        del shard.consumers[member]
        member.sink, member.window = CLOSED_SINK, None

    def end(self) -> None:
        """Unsubscribe from all shards: the client leaves the channel."""
        members, self.members = self.members, {}
        self.local.window = None
        self._shards.ready.pop(self.local, None)
        for channel, member in members.items():
            if member is not self.local:
                member.window = None
                channel.unsubscribe(member)

    # its free part

    def count(self, member: Consumer) -> int:
        self.taken += member.in_flight - member.counted
        member.counted = member.in_flight
        return self.rdy - self.taken

    def refresh(self, member: Consumer) -> None:
        """Look again how much is free after messages of `member` have ended, and whether the consumer is ready.

        Wake a channel if it has just become so.
        """
        local, ready = self.local, self._shards.ready
        if member is not local:
            self.count(member)
        free = self.count(local)
        local.ready = local.in_flight + free
        if free <= 0:
            ready.pop(local, None)
        elif local not in ready:
            local.room = local.sink.room()
            if local.room > 0:
                ready[local] = None
                self._shards.wake_next()

    # commands

    def holders(self) -> list[tuple[Channel, Consumer]]:
        """Return the members, each with its channel; that of the local channel is the first."""
        return list(self.members.items())

    def in_flight(self) -> list[tuple[InFlight, Consumer]]:
        return [(channel.in_flight, member) for channel, member in self.members.items()]

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
        return self._shards.local

    def note_route(self, message_id: bytes, channel: Channel) -> None:
        """Note where a message was found, for `likely_holder`. There are as many routes as nodes that issued messages."""
        self._shards.routes[message_id[:NODE_DIGITS]] = channel

    def total(self, count: str) -> int:
        return sum(getattr(member, count) for member in self.members.values())

    def __repr__(self) -> str:
        return f"<ShardedWindow: RDY {self.rdy}, {self.rdy - self.taken} free, {len(self.members)} members>"


class ShardSink:
    """The sink of a member in a shard, which passes everything to that of the local channel. Implements ConsumerSink."""

    __slots__ = ("_window", "member")

    member: Consumer

    def __init__(self, window: ShardedWindow) -> None:
        self._window = window

    def deliver(self, frames: list[bytes], size: int, now: int) -> None:
        window = self._window
        local = window.local
        local.ready = local.in_flight + window.count(self.member)  # the connection looks whether more can follow
        local.sink.deliver(frames, size, now)

    def room(self) -> int:
        window = self._window
        room = window.local.sink.room()
        self.member.ready = self.member.in_flight + window.count(self.member)  # the sink may make the window smaller
        return room

    def flush(self) -> None:
        self._window.local.sink.flush()

    def evicted(self) -> None:
        raise AssertionError("a shard is taken out before it is deleted")

    def __repr__(self) -> str:
        return f"<ShardSink of {self._window!r}>"


class ShardedDispatch(Dispatch):
    """The Dispatch of a local channel that has shards, or of a shard. All consumers have windows."""

    __slots__ = ("_channel", "shards")

    def __init__(self, before: Dispatch, channel: Channel, shards: Shards) -> None:
        """Continue for `before`, the channel's Dispatch until now. The channel is to be woken next."""
        super().__init__(before.nearest_first, before.random_below)
        self.ready, self.deliveries = SOME_CONSUMER, before.deliveries
        self._channel = channel
        self.shards = shards

    def join(self, consumer: Consumer) -> None:
        if self._channel is self.shards.local:
            consumer.window = ShardedWindow(self.shards, consumer)

    def refresh(self, consumer: Consumer) -> bool:
        """Look again at the whole window. Return False: a channel that can deliver is awake already."""
        window_of(consumer).refresh(consumer)
        return False

    def remove(self, consumer: Consumer) -> None:
        if consumer.window is not None and consumer is consumer.window.local:
            window_of(consumer).end()
        consumer.ready = 0

    def close(self) -> None:
        shards = self.shards
        for shard in shards.local.shards[1:] if self._channel is shards.local else (self._channel,):
            shards.remove(shard)

    def serve(self, supply: Supply, depth: int, now: int) -> None:
        shards = self.shards
        if self.ready is SOME_CONSUMER:
            self.ready = shards.ready
            shards.active[self._channel] = None
        if shards.ready:
            super().serve(supply, depth, now)
            if shards.ready:
                shards.wake_active()

    def leads(self, channel: object) -> bool:
        return channel is self.shards.local

    def pass_on(self) -> None:
        self.shards.wake_active()

    def _serve(self, supply: Supply, waiting: int, depth: int, now: int) -> int:
        ready, channel, before = self.ready, self._channel, depth
        while waiting > 0 and depth > 0 and self._takes_left:
            local = next(iter(ready))
            del ready[local]
            window = window_of(local)
            consumer = window.members[channel]
            most = consumer.ready = consumer.in_flight + window.count(local)
            depth = self._deliver_share(supply, consumer, -(-depth // waiting), depth, now)
            waiting -= 1
            if consumer.room > 0 and consumer.in_flight < most:
                local.room = consumer.room
                ready[local] = None
        if depth != before:
            self.shards.note_turn(channel, before - depth, now)
        return depth

    def _message_count(self, consumers: list[Consumer]) -> int:
        channel = self._channel
        return sum(window_of(local).members[channel].message_count for local in consumers)

    def check(self) -> None:
        local = self.shards.local
        assert self._channel in local.shards
        assert self._channel.dispatch is self
        assert (self.ready is SOME_CONSUMER) == (self._channel not in self.shards.active)
        self.shards.check()

    def check_consumers(self, consumers: Mapping[DeliveryOwner, Consumer]) -> None:
        local = self.shards.local
        assert all(tuple(window_of(consumer).members) == local.shards for consumer in consumers.values())


def window_of(consumer: Consumer) -> ShardedWindow:
    """Return the window of a consumer of a channel that has shards."""
    window = consumer.window
    assert isinstance(window, ShardedWindow)
    return window


def plain(sharded: Dispatch, ready: dict[Consumer, None]) -> Dispatch:
    """Return a Dispatch for a channel that no longer has shards, and is none. `ready`: its ready consumers."""
    dispatch = Dispatch(sharded.nearest_first, sharded.random_below)
    dispatch.ready, dispatch.deliveries = ready, sharded.deliveries
    return dispatch


def link(local: Channel, shard: Channel) -> None:
    """Make `shard`, which has no consumers, a shard of `local`."""
    dispatch = local.dispatch
    (dispatch.shards if isinstance(dispatch, ShardedDispatch) else Shards(local)).add(shard)

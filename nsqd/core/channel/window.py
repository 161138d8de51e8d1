"""The stripes of a channel, and the windows by which its consumers span them.

A *stripe* is the channel of an adopted log, beside the *home channel* of the same name, to which consumers subscribe. A
consumer has one `Consumer` in each of these channels, its *members*, and one `Window`: whatever the members have in flight
together never exceeds its RDY. A channel without stripes knows nothing of all this; with the first stripe it is given another
Dispatch.

The law that this file keeps: a member is ready in its channel's Dispatch exactly if the window is not full and the sink has
room. So a window that fills closes at all members, and one that opens wakes every channel that has messages. The channels take
turns: the one that has just delivered is woken last.

See docs/design/channel.md#stripes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from nsqd.core.channel.consumer import CLOSED_SINK, Consumer
from nsqd.core.channel.dispatch import Dispatch, Supply

if TYPE_CHECKING:
    from nsqd.core.channel.channel import Channel

NODE_DIGITS = 4  # of a message id: the node that issued it


class Stripes:
    """A home channel and its stripes, in the order in which they take turns."""

    __slots__ = ("channels", "home", "routes")

    def __init__(self, home: Channel) -> None:
        """Begin without stripes. From now on each consumer of the channel has a window."""
        self.home = home
        self.channels: dict[Channel, None] = {home: None}  # the next in turn first
        # by the first digits of message ids: the channel in which such an id was last found in flight
        self.routes: dict[bytes, Channel] = {}
        home.dispatch = StripedDispatch(home.dispatch, home, self)
        for consumer in home.consumers.values():
            consumer.window = Window(self, consumer)

    def add(self, stripe: Channel) -> None:
        """Let all consumers of the home channel consume from `stripe`, too. It must have no consumers."""
        stripe.dispatch = StripedDispatch(stripe.dispatch, stripe, self)
        stripe.count_with(self.home)
        self.channels[stripe] = None
        self.home.stripes += (stripe,)
        for consumer in self.home.consumers.values():
            window = window_of(consumer)
            window.add(stripe)
            self.home.refresh(consumer)

    def remove(self, stripe: Channel) -> None:
        """Take `stripe` out. What its consumers have in flight from it counts no more; FINs for that will fail."""
        for consumer in list(stripe.consumers.values()):
            window_of(consumer).drop(stripe)
        stripe.dispatch = plain(stripe.dispatch)
        del self.channels[stripe]
        self.home.stripes = tuple(one for one in self.home.stripes if one is not stripe)
        self.routes = {digits: channel for digits, channel in self.routes.items() if channel is not stripe}
        if not self.home.stripes:
            self._end()
        for consumer in self.home.consumers.values():
            self.home.refresh(consumer)

    def _end(self) -> None:
        """Make the home channel one without stripes again."""
        for consumer in self.home.consumers.values():
            consumer.ready = window_of(consumer).rdy
            consumer.window = None
        self.home.dispatch = plain(self.home.dispatch)

    def note_turn(self, channel: Channel) -> None:
        """Note that a channel has delivered: all others are woken before it the next time."""
        if channel in self.channels:
            del self.channels[channel]
            self.channels[channel] = None

    def __repr__(self) -> str:
        return f"<Stripes: {len(self.channels) - 1} beside {self.home.name}>"


class Window:
    """How many messages one consumer may have in flight, over a home channel and its stripes."""

    __slots__ = ("_stripes", "home", "members", "rdy")

    def __init__(self, stripes: Stripes, home: Consumer) -> None:
        """Take over the RDY count of `home`, the consumer of the home channel, and join all stripes there are."""
        self._stripes = stripes
        self.home = home
        self.rdy = home.ready  # messages; what the client asked for
        self.members: dict[Channel, Consumer] = {stripes.home: home}
        for stripe in stripes.home.stripes:
            self.add(stripe)

    # members

    def add(self, stripe: Channel) -> None:
        """Subscribe to a stripe as the home consumer did to its channel."""
        home = self.home
        member = stripe.subscribe(StripeSink(self), home.msg_timeout, home.sample_rate, home.distance)
        member.window = self
        self.members[stripe] = member

    def drop(self, stripe: Channel) -> None:
        """Forget the member of a stripe that goes, with what it has in flight."""
        member = self.members.pop(stripe)
        del stripe.consumers[member]
        stripe.dispatch.ready.pop(member, None)
        member.sink, member.window = CLOSED_SINK, None

    def end(self) -> None:
        """Unsubscribe from all stripes: the client leaves the home channel."""
        members, self.members = self.members, {}
        self.home.window = None
        for channel, member in members.items():
            if member is not self.home:
                member.window = None
                channel.unsubscribe(member)
            channel.dispatch.ready.pop(member, None)

    # what is free of it

    @property
    def free(self) -> int:
        """Return how many more messages may be in flight; at most 0: none."""
        return self.rdy - sum([member.in_flight for member in self.members.values()])

    def refresh(self) -> None:
        """Look again how much is free, and let all members deliver or none."""
        free = self.free
        self.home.ready = self.home.in_flight + free
        if free > 0:
            self._open()
        else:
            self.shut()

    def shut(self) -> None:
        """Let no member be ready: the window is full."""
        for channel, member in self.members.items():
            channel.dispatch.ready.pop(member, None)

    def _open(self) -> None:
        """Let all members be ready if the sink has room, and wake their channels in the order of their turns."""
        members = self.members
        for channel in self._stripes.channels:
            member, ready = members[channel], channel.dispatch.ready
            if member not in ready:
                member.room = member.sink.room()
                if member.room <= 0:
                    return
                ready[member] = None
                channel.wake()

    # commands

    def holders(self) -> list[tuple[Channel, Consumer]]:
        """Return the members, each with its channel; the home channel's is the first."""
        return list(self.members.items())

    def likely_holder(self, message_id: bytes) -> Channel:
        """Return the channel that is likely to have the message in flight."""
        return self._stripes.routes.get(message_id[:NODE_DIGITS], self._stripes.home)

    def note_route(self, message_id: bytes, channel: Channel) -> None:
        """Note where a message was found, for `likely_holder`. There are as many routes as nodes that issued messages."""
        self._stripes.routes[message_id[:NODE_DIGITS]] = channel

    # figures

    def total(self, count: str) -> int:
        """Return the sum of a count of the members, for example "finish_count"."""
        return sum(getattr(member, count) for member in self.members.values())

    def __repr__(self) -> str:
        return f"<Window: RDY {self.rdy}, {self.free} free, {len(self.members)} members>"


class StripeSink:
    """The sink of a member in a stripe: it passes everything to that of the home channel's. Implements ConsumerSink."""

    __slots__ = ("_window",)

    def __init__(self, window: Window) -> None:
        self._window = window

    def deliver(self, frames: list[bytes], size: int, now: int) -> None:
        window, home = self._window, self._window.home
        home.ready = home.in_flight + window.free  # the connection looks whether more can follow
        home.sink.deliver(frames, size, now)

    def room(self) -> int:
        return self._window.home.sink.room()

    def flush(self) -> None:
        self._window.home.sink.flush()

    def evicted(self) -> None:
        raise AssertionError("a stripe is taken out before it is deleted")

    def __repr__(self) -> str:
        return f"<StripeSink of {self._window!r}>"


class StripedDispatch(Dispatch):
    """The Dispatch of a home channel that has stripes, or of a stripe. All consumers have windows."""

    __slots__ = ("_channel", "stripes")

    def __init__(self, before: Dispatch, channel: Channel, stripes: Stripes) -> None:
        """Go on for `before`, the channel's Dispatch until now."""
        super().__init__(before.nearest_first, before.random_below)
        self.ready, self.deliveries = before.ready, before.deliveries
        self._channel = channel
        self.stripes = stripes

    def join(self, consumer: Consumer) -> None:
        if self._channel is self.stripes.home:
            consumer.window = Window(self.stripes, consumer)

    def refresh(self, consumer: Consumer) -> bool:
        """Look again at the whole window. Return False: every channel that can deliver is awake already."""
        window_of(consumer).refresh()
        return False

    def remove(self, consumer: Consumer) -> None:
        if consumer.window is not None and consumer is consumer.window.home:
            consumer.window.end()
        super().remove(consumer)

    def close(self) -> None:
        stripes = self.stripes
        for stripe in stripes.home.stripes if self._channel is stripes.home else (self._channel,):
            stripes.remove(stripe)

    def _serve(self, supply: Supply, waiting: int, depth: int, now: int) -> int:
        ready, before = self.ready, depth
        while waiting > 0 and depth > 0:
            consumer = next(iter(ready))
            del ready[consumer]
            window = window_of(consumer)
            most = consumer.ready = consumer.in_flight + window.free
            depth = self._deliver_share(supply, consumer, -(-depth // waiting), depth, now)
            waiting -= 1
            if consumer.in_flight >= most:
                window.shut()
            elif consumer.room > 0:
                ready[consumer] = None
        if depth != before:
            self.stripes.note_turn(self._channel)
        return depth

    def check(self) -> None:
        assert self._channel in self.stripes.channels
        assert self._channel.dispatch is self
        for consumer in self.ready:
            window = window_of(consumer)
            assert window.members[self._channel] is consumer
            assert window.free > 0
            assert consumer.room > 0
        for consumer in self._channel.consumers.values():
            assert list(window_of(consumer).members) == [self.stripes.home, *self.stripes.home.stripes]


def window_of(consumer: Consumer) -> Window:
    """Return the window of a consumer of a channel that has stripes."""
    assert consumer.window is not None
    return consumer.window


def plain(striped: Dispatch) -> Dispatch:
    """Return a Dispatch for a channel that has no stripes any more, and is none."""
    dispatch = Dispatch(striped.nearest_first, striped.random_below)
    dispatch.ready, dispatch.deliveries = striped.ready, striped.deliveries
    return dispatch


def link(home: Channel, stripe: Channel) -> None:
    """Make `stripe`, which has no consumers, a stripe of `home`."""
    dispatch = home.dispatch
    (dispatch.stripes if isinstance(dispatch, StripedDispatch) else Stripes(home)).add(stripe)


def unlink(channel: Channel) -> None:
    """Take a stripe out, or all stripes of a home channel. Does nothing for any other channel."""
    channel.dispatch.close()

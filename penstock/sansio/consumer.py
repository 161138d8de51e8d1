"""All subscriptions of one consumer: which nsqds are wanted, when each is dialed, how RDY is shared, and the end.

The owner of the sockets reports what happened, and then sends the output of the subscriptions named in `outgoing`.

Invariants:
* Every wanted address is subscribed to or in the dial plan.
* The messages that are here, may be on their way, or are asked for by RDY never add up to more than max_in_flight. If a server
  sends more nevertheless, the surplus is delivered later.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from math import inf
from random import Random
from typing import Protocol

from penstock.protocol import nsq
from penstock.sansio.backoff import Backoff, Flow
from penstock.sansio.dials import DialPlan
from penstock.sansio.errors import ConnectionLost, ConsumerError
from penstock.sansio.message import Message
from penstock.sansio.session import Session
from penstock.sansio.settings import Settings
from penstock.sansio.subscription import Subscription, SubscriptionState
from penstock.sansio.tls import client_context

log = logging.getLogger("penstock.client")

TICK_S = 1.0  # how often silent connections and rotations are checked when nothing happens
SLACK = 100  # messages of one nsqd that may come on top of twice max_in_flight
BEGUN = (SubscriptionState.IDENTIFYING, SubscriptionState.SUBSCRIBING)  # they soon get a share, which is reserved
MEASURE_S = 1.0  # between two measurements of the load
READ_S = 0.02  # between two ticks, to read the messages that have arrived
SHARES = 8  # how often RDY is shared again while max_in_flight messages are answered, and an nsqd waits for its share
TURN_S = 5.0  # with more nsqds than max_in_flight: how long the chosen ones keep their RDY (as in go-nsq)


class Sockets(Protocol):
    """The owner of a consumer's sockets."""

    def has_output(self, subscription: Subscription, is_urgent: bool) -> None:
        """Note that an answer waits to be sent: with others if there are some soon, or at once if it is urgent."""

    def lost(self, subscription: Subscription) -> None:
        """Send the last output, as far as that needs no waiting, and close the socket."""


class ConsumerCore:
    """The decisions of one consumer of a channel. `clock` returns monotonic s."""

    def __init__(
        self,
        topic: str,
        channel: str,
        max_in_flight: int,
        settings: Settings,
        sockets: Sockets,
        clock: Callable[[], float],
        random: Random,
    ) -> None:
        """Begin without any nsqd. Raises ValueError for a bad name or max_in_flight, and for TLS settings of no use."""
        nsq.sub(topic, channel)  # raises ValueError for bad names now, not when the first nsqd has answered
        if max_in_flight < 1:
            raise ValueError("max_in_flight must be at least 1")
        self.topic, self.channel = topic, channel
        self.subscriptions: dict[str, Subscription] = {}  # by address
        self.outgoing: dict[Subscription, None] = {}  # those that have something to send, the first one first
        self.lost_count = 0  # connections that broke so far
        self.ask_at = inf  # when the owner is to ask nsqlookupd, before an nsqd is dialed again; then it sets inf
        self.backoff = Backoff(settings, random)
        self._max_in_flight = max_in_flight
        self._most_in_flight = 2 * max_in_flight + SLACK
        self._settings = settings
        self._sockets = sockets
        self._clock = clock
        self._random = random
        self._tls = client_context(settings)
        self._given: frozenset[str] = frozenset()
        self._named: Mapping[str, float] = {}
        self._dials = DialPlan()
        self._dialing: set[str] = set()  # addresses that were taken and neither connected nor failed since
        self._turn, self._turn_at = 0, 0.0
        self._is_rotating = False  # there are more nsqds than messages to ask for, so RDY is shared again at every tick
        self._measure_at = -inf  # when the load of the nsqds is measured next
        self._has_deficit = False  # an nsqd gets less than its share until messages of others are answered
        self._freed = 0  # messages that were answered since RDY was shared
        self._settling: dict[Subscription, float] = {}  # the messages that were on their way have arrived; since when
        self._held: list[Message] = []  # beyond max_in_flight
        self._most = max_in_flight
        self._is_leaving = False

    # which nsqds

    def want(self, addresses: frozenset[str]) -> None:
        """Connect to these addresses from now on, whatever nsqlookupd says."""
        self._given = addresses
        self._want()

    def found(self, named: Mapping[str, float]) -> None:
        """Connect to the addresses that nsqlookupd names, too; a subscription at any other one stays until it breaks.

        Each comes with the time, by the clock, of the latest request whose response names it. An address whose connection
        broke, or could not be made, is dialed again only if the request was made after that.
        """
        self._named = named
        self._want()

    def _want(self) -> None:
        wanted = {**self._named, **dict.fromkeys(self._given, inf)}
        self._dials.want(wanted, self.subscriptions.keys() | self._dialing)

    def take_due(self) -> str | None:
        """Return an address to be dialed now, or None. `connected` or `failed` must follow."""
        address = self._dials.take_due(self._clock())
        if address is not None:
            self._dialing.add(address)
        return address

    def failed(self, address: str, error: object) -> None:
        """Note that an address could not be dialed."""
        self._dialing.discard(address)
        if address not in self._dials:
            return
        now = self._clock()
        delay = self._dials.fail(address, now)
        if self._dials.is_named(address):
            log.warning("%s; trying again in %g s", error, delay)
        else:
            self.ask_at = min(self.ask_at, now + delay)
            log.warning("%s; asking nsqlookupd in %g s before trying again", error, delay)

    def connected(self, address: str) -> Subscription:
        """Note that an address was dialed. The subscription's first bytes wait to be sent."""
        self._dialing.discard(address)
        session = Session(address, self._settings, self._tls)
        subscription = Subscription(session, self.topic, self.channel, self._settings, self, self._clock())
        subscription.demand = self._max_in_flight  # until it is known
        self.subscriptions[address] = subscription
        self.outgoing[subscription] = None
        return subscription

    def lose(self, subscription: Subscription, error: object) -> None:
        """Note that a connection broke or must be given up: `error` says why."""
        if subscription.state is SubscriptionState.LOST:
            return
        subscription.drop()
        self.outgoing.pop(subscription, None)
        del self.subscriptions[subscription.address]
        self._sockets.lost(subscription)
        self.lost_count += 1
        if not self._is_leaving:
            self.failed(subscription.address, error)
            self.share()

    # messages

    def receive(self, subscription: Subscription, data: bytes) -> list[Message]:
        """Return the messages that `data`, which has arrived, completes; b"" is the end of the stream.

        The subscription is lost if its server misbehaves. Raises ConsumerError if it refuses the subscription permanently.
        """
        if subscription.state is SubscriptionState.LOST:
            return []
        before = subscription.state
        try:
            messages = subscription.receive(data, self._clock())
        except (ConnectionLost, ConsumerError) as error:
            self.lose(subscription, error)
            if isinstance(error, ConsumerError) and not self._is_leaving:
                raise
            return []
        if before is SubscriptionState.IDENTIFYING and subscription.address not in self._dials:
            self.lose(subscription, f"{subscription.address}: nsqlookupd no longer names it")  # before SUB is sent
            return []
        if subscription.in_flight > self._most_in_flight:
            self.lose(subscription, f"{subscription.address}: it sends more messages than RDY allows")
            return []
        self.outgoing[subscription] = None
        if subscription.state is not before and subscription.state is SubscriptionState.SUBSCRIBED:
            self._dials.succeed(subscription.address, self._clock())
            self.share()
        if self._is_leaving:
            for message in messages:
                message.requeue(0)
            return []
        if self._has_deficit:
            self.share()
        if self._settings.max_attempts:
            messages = self._within_attempts(messages)
        if len(self.subscriptions) > 1 and (surplus := self._surplus(messages)):
            self._held += messages[-surplus:]
            del messages[-surplus:]
        return messages

    def take_held(self) -> list[Message]:
        """Return messages that came beyond max_in_flight, and have room now."""
        self._held = [one for one in self._held if one.is_pending]
        free = len(self._held) - self._surplus(self._held)
        taken, self._held = self._held[:free], self._held[free:]
        return taken

    def _surplus(self, messages: list[Message]) -> int:
        """Return the number of these undelivered messages that are beyond max_in_flight."""
        unanswered = sum(one.in_flight for one in self.subscriptions.values())
        others = 0 if messages is self._held else len(self._held)
        return max(0, min(len(messages), unanswered - others - self._most))

    @property
    def has_held(self) -> bool:
        """Return True if messages wait for `take_held`."""
        return bool(self._held)

    def answered(self, subscription: Subscription, failed: bool | None) -> None:
        """See SubscriptionOwner. A result may begin or end the backoff."""
        if failed or (failed is False and self.backoff.flow is not Flow.FULL):
            now = self._clock()
            if self.backoff.fail(now) if failed else self.backoff.succeed(now):
                self.share()
        if self._has_deficit:
            self._freed += 1
            if self._freed * SHARES >= self._most:
                self.share()
        if subscription.state is not SubscriptionState.LOST:
            self.outgoing[subscription] = None
            self._sockets.has_output(subscription, False)

    def touched(self, subscription: Subscription) -> None:
        """See SubscriptionOwner."""
        if subscription.state is not SubscriptionState.LOST:
            self.outgoing[subscription] = None
            self._sockets.has_output(subscription, True)

    def _within_attempts(self, messages: list[Message]) -> list[Message]:
        """Return the messages within max_attempts, and give the others up."""
        good = []
        for message in messages:
            if message.attempts <= self._settings.max_attempts:
                good.append(message)
            else:
                log.warning("%s: giving up on %r", self.topic, message)
                message.finish()
        return good

    # time

    def tick(self) -> float:
        """Do what is due by time, and return the s until the next call is needed: 0 if an address is to be dialed."""
        now = self._clock()
        for subscription in [*self.subscriptions.values()]:
            if now - subscription.last_receive_at > self._settings.read_timeout_s:
                silent_s = self._settings.read_timeout_s
                error = f"{subscription.address}: no data, not even a heartbeat, for {silent_s:g} s"
                self.lose(subscription, error)
        is_over = self._settle(now) or self._has_deficit
        is_over = self.backoff.tick(now) or is_over
        if now >= self._turn_at:
            self._turn, self._turn_at = self._turn + 1, now + TURN_S
        if now >= self._measure_at and self._settings.rdy_by_load:
            self._measure_at = now + MEASURE_S
            is_over = self._measure() or is_over
        if is_over or self._is_rotating:
            self.share()
        due = min(
            self._dials.next_at,
            self._settles_at(now),
            self.backoff.until if self.backoff.flow is Flow.WAITING else now + TICK_S,
        )
        return max(0.0, min(TICK_S, due - now))

    # RDY

    def _settle(self, now: float) -> bool:
        """Note which lowered RDYs have taken effect. Returns True if any has.

        Messages that have arrived by then are read between two ticks.
        """
        arrived = [one for one in self.subscriptions.values() if one.settles_at <= now]
        ready = [one for one in arrived if now - self._settling.get(one, now) >= READ_S]
        self._settling = {one: self._settling.get(one, now) for one in arrived}
        for one in ready:
            one.on_way, one.settles_at = 0, inf
        return bool(ready)

    def _settles_at(self, now: float) -> float:
        waiting = (one for one in self.subscriptions.values() if one.on_way)
        return min((max(one.settles_at, now + READ_S) for one in waiting), default=inf)

    def _measure(self) -> bool:
        """Measure the load of the nsqds. Returns True if it makes a difference that is worth a RDY."""
        for one in self._subscribed:
            one.measure()
        return any(abs(rdy - one.rdy) > max(1, one.rdy // 4) for one, rdy in self._plan())

    def limit(self, max_in_flight: int) -> None:
        """Share `max_in_flight` messages from now on; 0 stops the flow."""
        self._max_in_flight = max_in_flight
        self.share()

    def share(self) -> None:
        """Set the RDY of every subscription, decreases first. An increase waits until there is room (see the invariants)."""
        plan = self._plan()
        self._is_rotating = self._total < len(plan)
        self._has_deficit, self._freed, now = False, 0, self._clock()
        for one, rdy in plan:
            if rdy < one.rdy and one.set_rdy(rdy, now):
                self.outgoing[one] = None
                self._settling.pop(one, None)
        free = max(0, self._max_in_flight - sum(one.reach for one in self.subscriptions.values()))
        for one, rdy in plan:
            before = one.reach
            granted = min(rdy, before + free)
            self._has_deficit = self._has_deficit or granted < rdy
            if granted > one.rdy and one.set_rdy(granted, now):
                free -= one.reach - before
                self.outgoing[one] = None

    def _plan(self) -> list[tuple[Subscription, int]]:
        """Return the RDY that each subscription should have. Those that have begun soon get a share, which is reserved."""
        links, total = self._subscribed, self._total
        begun = [one for one in self.subscriptions.values() if one.state in BEGUN]
        sharers = links if total < len(links) + len(begun) else links + begun
        plan = shares(total, [one.max_rdy for one in sharers], [one.demand for one in sharers], self._turn)
        return list(zip(links, plan, strict=False))

    @property
    def _subscribed(self) -> list[Subscription]:
        return [one for one in self.subscriptions.values() if one.state is SubscriptionState.SUBSCRIBED]

    @property
    def _total(self) -> int:
        """Return the number of messages to ask for."""
        if self.backoff.flow is Flow.FULL:
            return self._max_in_flight
        return min(self._max_in_flight, int(self.backoff.flow is Flow.PROBING))

    # the end

    def leave(self) -> None:
        """Unsubscribe from all nsqds: each gets CLS, and messages that still arrive are requeued."""
        self._is_leaving = True
        self._given, self._named = frozenset(), {}
        self._want()
        for message in self._held:
            message.requeue(0)
        self._held.clear()
        for subscription in self.subscriptions.values():
            subscription.leave()
            self.outgoing[subscription] = None

    @property
    def has_left(self) -> bool:
        """Return True when, after `leave`, no more messages come."""
        return all(one.state is SubscriptionState.CLOSED for one in self.subscriptions.values())

    def __repr__(self) -> str:
        return f"<ConsumerCore: {self.topic}/{self.channel}, {len(self.subscriptions)} nsqds, {self.backoff!r}>"


def shares(total: int, limits: Sequence[int], demands: Sequence[int], turn: int) -> list[int]:
    """Split `total` into one RDY for each connection, none above its limit. The sum never exceeds `total`.

    If `total` suffices, every connection gets at least 1, and as much of its demand as possible; the rest is split equally.
    Otherwise `total` of the connections get 1, and the choice rotates with `turn`, so that no nsqd waits forever.
    """
    count = len(limits)
    if total >= count:
        wanted = [max(1, min(demand, limit)) for demand, limit in zip(demands, limits, strict=True)]
        rdy = _fair_parts(total, wanted)
        rest = _fair_parts(total - sum(rdy), [limit - part for limit, part in zip(limits, rdy, strict=True)])
        return [part + more for part, more in zip(rdy, rest, strict=True)]
    rdy = [0] * count
    for i in range(total):
        rdy[(turn * total + i) % count] = 1
    return rdy


def _fair_parts(total: int, wanted: Sequence[int]) -> list[int]:
    """Split `total`: none gets more than it wants, and those that get less get equal parts (max-min fairness)."""
    parts, left = [0] * len(wanted), total
    for place, i in enumerate(sorted(range(len(wanted)), key=wanted.__getitem__)):
        parts[i] = min(wanted[i], -(-left // (len(wanted) - place)))
        left -= parts[i]
    return parts

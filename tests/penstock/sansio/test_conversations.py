"""Sessions, publishers and whole consumers against nsqds that are spelled out, in virtual time and without a socket."""

import json
from math import inf
from random import Random
from struct import pack

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.protocol import nsq
from penstock.sansio.backoff import Flow
from penstock.sansio.consumer import READ_S, ConsumerCore
from penstock.sansio.errors import ConnectionLost, ConsumerError
from penstock.sansio.message import Message
from penstock.sansio.publisher import Publisher
from penstock.sansio.session import Session
from penstock.sansio.settings import Settings
from penstock.sansio.subscription import Subscription, SubscriptionState
from tests.cases import each
from tests.effort import tries


def frame(data: bytes, kind: int = 0) -> bytes:
    return pack(">ii", 4 + len(data), kind) + data


def delivered(message_id: bytes, attempts: int = 1) -> bytes:
    return frame(pack(">qH16s", 0, attempts, message_id), 2)


def features(**granted: object) -> bytes:
    return frame(json.dumps({"max_rdy_count": 2500, **granted}).encode())


OK = frame(b"OK")
BEAT = frame(b"_heartbeat_")


def identified(settings: Settings | None = None) -> Session:
    """Return a session that is identified, and has nothing to send."""
    session = Session("h:1", settings or Settings())
    session.take_output()
    assert session.receive(features()) == []
    assert session.features is not None
    return session


# publishers


def test_answers_belong_to_publishes_in_order() -> None:
    publisher: Publisher[str] = Publisher(identified())
    for body in (b"a", b"b", b"c"):
        publisher.publish(nsq.pub("t", body), body.decode())
    assert publisher.session.take_output() == b"".join(nsq.pub("t", body) for body in (b"a", b"b", b"c"))
    assert publisher.receive(OK + OK[:5]) == [("a", None)]
    assert publisher.receive(OK[5:] + BEAT) == [("b", None)]
    assert publisher.receive(frame(b"E_BAD_MESSAGE no", 1)) == [("c", nsq.ErrorFrame("E_BAD_MESSAGE", "no"))]


@each("data", [OK, frame(b"E_INVALID x", 1), frame(pack(">qH16s", 0, 1, b"i" * 16) + b"body", 2)])
def test_an_answer_to_nothing_ends_the_connection(data: bytes) -> None:
    with pytest.raises(ConnectionLost):
        Publisher[str](identified()).receive(data)


# consumers


class FakeNsqd:
    """One nsqd with a queue of messages. It delivers as far as RDY allows."""

    def __init__(self, waiting: int) -> None:
        self.waiting = [b"%016d" % number for number in range(waiting)]
        self.finished: set[bytes] = set()
        self.in_flight: set[bytes] = set()
        self.rdy = 0
        self.commands: list[bytes] = []
        self._left = False
        self._replies = b""

    def connect(self) -> None:
        self.waiting += sorted(self.in_flight)
        self.in_flight.clear()
        self.rdy, self._left, self._replies = 0, False, b""

    def take(self, data: bytes) -> None:
        if data.startswith(b"  V2"):
            data = data[4:]
        if data.startswith(b"IDENTIFY\n"):
            data = data[13 + int.from_bytes(data[9:13]) :]
            self._replies += features()
        for line in data.splitlines():
            verb, *rest = line.split()
            self.commands.append(verb)
            if verb == b"SUB":
                self._replies += OK
            elif verb == b"RDY":
                self.rdy = int(rest[0])
            elif verb == b"CLS":
                self._left = True
                self._replies += frame(b"CLOSE_WAIT")
            elif verb in (b"FIN", b"REQ"):
                self.in_flight.remove(rest[0])
                (self.finished.add if verb == b"FIN" else self.waiting.append)(rest[0])

    def give(self) -> bytes:
        data, self._replies = self._replies, b""
        while self.waiting and len(self.in_flight) < self.rdy and not self._left:
            one = self.waiting.pop(0)
            self.in_flight.add(one)
            data += delivered(one)
        return data


class World:
    """A consumer, its nsqds and their connections, under one clock. Bytes are on their way until they arrive or time passes."""

    def __init__(self, nsqds: dict[str, FakeNsqd], most: int, settings: Settings | None = None, seed: int = 1) -> None:
        self.now = 0.0
        self.nsqds = nsqds
        self.most = most
        self.held: list[Message] = []
        self.down: set[str] = set()
        self.urgent = 0
        self.to: dict[str, list[bytes]] = {name: [] for name in nsqds}
        self.back: dict[str, list[bytes]] = {name: [] for name in nsqds}
        self.core = ConsumerCore("t", "c", most, settings or Settings(), self, lambda: self.now, Random(seed))
        self.core.want(frozenset(nsqds))

    @property
    def only(self) -> Subscription:
        (found,) = self.core.subscriptions.values()
        return found

    def dial(self) -> Subscription:
        address = self.core.take_due()
        assert address is not None
        return self.core.connected(address)

    def has_output(self, subscription: Subscription, is_urgent: bool) -> None:
        self.urgent += is_urgent

    def lost(self, subscription: Subscription) -> None:
        address = subscription.address
        self.nsqds[address].connect()
        self.to[address].clear()
        self.back[address].clear()

    def act(self) -> None:
        """Let the consumer do what it does by itself."""
        self.core.tick()
        while (address := self.core.take_due()) is not None:
            if address in self.down:
                self.core.failed(address, "refused")
            else:
                self.core.connected(address)
        self.flush()

    def flush(self) -> None:
        while self.core.outgoing:
            subscription, _ = self.core.outgoing.popitem()
            self.to[subscription.address].append(subscription.take_output())

    def arrive(self, name: str) -> None:
        """Let the next bytes arrive at an nsqd, which answers."""
        if self.to[name]:
            self.nsqds[name].take(self.to[name].pop(0))
        if name in self.core.subscriptions:
            self.back[name].append(self.nsqds[name].give())
        self.check()

    def read(self, name: str) -> None:
        subscription = self.core.subscriptions.get(name)
        if self.back[name] and (data := self.back[name].pop(0)) and subscription is not None:
            self.held += self.core.receive(subscription, data)
            self.flush()
        self.check()

    def settle(self) -> None:
        """Let all bytes arrive."""
        self.flush()
        while any(self.to.values()) or any(self.back.values()):
            for name in self.nsqds:
                while self.to[name]:
                    self.arrive(name)
                while self.back[name]:
                    self.read(name)

    def step(self) -> None:
        """Let everything happen that needs no time."""
        self.act()
        for name in self.core.subscriptions:
            self.arrive(name)
        self.settle()
        links = self.core.subscriptions.values()
        assert all(one.rdy == self.nsqds[one.address].rdy for one in links)
        assert all(one.in_flight == len(self.nsqds[one.address].in_flight) for one in links)

    def check(self) -> None:
        """Assert the invariants of ConsumerCore, and that no more messages than max_in_flight are unanswered anywhere."""
        links = self.core.subscriptions
        assert sum(one.reach for one in links.values()) <= self.most
        if self.core.backoff.flow is Flow.WAITING:
            assert not any(one.rdy for one in links.values())
        wanted = self.core._given | self.core._named.keys()
        assert all(address in links or address in self.core._dials for address in wanted)
        unanswered = 0
        for name, subscription in links.items():
            answers = b"".join([*self.to[name], *subscription._commands])
            unanswered += sum(one not in answers for one in self.nsqds[name].in_flight)
        assert unanswered <= self.most

    def fall(self, address: str) -> None:
        subscription = self.core.subscriptions.get(address)
        if subscription is not None:
            self.held += self.core.receive(subscription, b"")

    def play(self, event: str, value: float) -> None:
        """Let an event of a random history happen."""
        names = [*self.nsqds]
        name = names[int(value) % len(names)]
        if event == "wait":  # no bytes are on their way for longer than SETTLE_S
            self.settle()
            self.now += value + READ_S
        elif event in ("act", "step"):
            getattr(self, event)()
        elif event in ("arrive", "read"):
            getattr(self, event)(name)
        elif event == "want":
            self.core.want(frozenset(one for bit, one in enumerate(names) if int(value) >> bit & 1))
        elif event == "up":
            self.down.discard(name)
        elif event in ("down", "fall"):
            self.down |= {name} if event == "down" else set()
            self.fall(name)
        elif self.held:
            message = self.held.pop(int(value) % len(self.held))
            message.finish() if event == "finish" else message.requeue(0, backoff=event == "fail")

    def finish_all(self) -> None:
        for _ in range(1000):
            if all(len(one.finished) == 7 for one in self.nsqds.values()):
                return
            self.held += self.core.take_held()
            self.step()
            while self.held:
                self.held.pop().finish()
            self.now += 1.0
        raise AssertionError("messages are lost")


def test_a_consumer_subscribes_and_gets_its_messages() -> None:
    world = World({"a:1": FakeNsqd(3), "b:1": FakeNsqd(3)}, 10)
    world.step()
    assert len(world.held) == 6
    assert [one.rdy for one in world.core.subscriptions.values()] == [5, 5]
    world.held[0].touch()
    assert world.urgent == 1
    world.settle()
    assert sorted(one.commands[-1] for one in world.nsqds.values()) == [b"RDY", b"TOUCH"]
    for message in world.held:
        message.finish()
        message.requeue()
    world.step()
    assert [len(one.finished) for one in world.nsqds.values()] == [3, 3]


def rdys(world: World) -> list[int]:
    """Return the RDY of each nsqd."""
    return [one.rdy for one in world.nsqds.values()]


def rdy_commands(world: World) -> int:
    """Return the number of RDYs so far."""
    return sum(one.commands.count(b"RDY") for one in world.nsqds.values())


def let_pass(world: World, seconds: int, answered: float = 1.0) -> None:
    """Let time pass, in quarters of a second. In each, this part of the messages is finished."""
    for _ in range(4 * seconds):
        world.step()
        for _ in range(int(answered * len(world.held))):
            world.held.pop(0).finish()
        world.now += 0.25


@each("most, is_on, shares", [(100, True, [97, 1, 1, 1]), (100, False, [25, 25, 25, 25]), (4, True, [1, 1, 1, 1])])
def test_rdy_follows_the_load_of_four_nsqds(most: int, is_on: bool, shares: list[int]) -> None:
    names = ["a:1", "b:1", "c:1", "d:1"]
    world = World({name: FakeNsqd(0) for name in names}, most, Settings(rdy_by_load=is_on, read_timeout_s=1e9))
    let_pass(world, 1)
    for busy, quiet in (("a:1", "d:1"), ("d:1", "a:1")):
        world.nsqds[busy].waiting, world.nsqds[quiet].waiting = [b"%016d" % number for number in range(20_000)], []
        let_pass(world, 5)
        assert world.nsqds[busy].rdy >= min(shares[0], 40)
        let_pass(world, 5)
        assert rdys(world) == shares
        commands = rdy_commands(world)
        let_pass(world, 20)
        assert rdy_commands(world) == commands, "it does not oscillate"
        shares.reverse()


def test_a_slow_consumer_divides_rdy_among_the_busy_nsqds_and_a_trickle_needs_little() -> None:
    world = World({"a:1": FakeNsqd(9000), "b:1": FakeNsqd(9000), "c:1": FakeNsqd(0), "d:1": FakeNsqd(0)}, 100)
    for second in range(60):
        world.nsqds["c:1"].waiting.append(b"c%015d" % second)
        let_pass(world, 1, answered=0.2)
        if second == 30:
            commands = rdy_commands(world)
    a, b, c, d = rdys(world)
    assert min(a, b) >= 35
    assert 1 <= c <= 16
    assert 1 <= d <= 2
    assert rdy_commands(world) == commands


def test_a_refused_subscription_is_an_error_unless_the_channel_is_full_or_the_consumer_leaves() -> None:
    refused = features() + frame(b"E_BAD_TOPIC no", 1)
    world = World({"a:1": FakeNsqd(0)}, 1)
    with pytest.raises(ConsumerError, match="E_BAD_TOPIC"):
        world.core.receive(world.dial(), refused)
    world = World({"a:1": FakeNsqd(0)}, 1)
    subscription = world.dial()
    assert world.core.receive(subscription, features() + frame(b"E_SUB_FAILED full", 1)) == []
    assert subscription.state is SubscriptionState.LOST
    assert "a:1" in world.core._dials
    world = World({"a:1": FakeNsqd(0)}, 1)
    subscription = world.dial()
    world.core.leave()
    assert world.core.receive(subscription, refused) == []
    assert world.core.has_left


def test_a_silent_nsqd_is_given_up() -> None:
    world = World({"a:1": FakeNsqd(1)}, 1, Settings(read_timeout_s=5))
    world.step()
    world.now = 6.0
    world.core.tick()
    assert not world.core.subscriptions
    assert world.core.lost_count == 1
    world.held[0].finish()
    assert not world.core.outgoing, "the server delivers the message again"


def test_messages_that_came_too_often_and_a_nsqd_that_ignores_rdy_are_given_up() -> None:
    world = World({"a:1": FakeNsqd(0)}, 2, Settings(max_attempts=2))
    world.step()
    world.nsqds["a:1"].in_flight = {b"1" * 16, b"2" * 16}
    data = b"".join(delivered(b"%d" % tries * 16, tries) for tries in (1, 2, 3))
    assert [one.attempts for one in world.core.receive(world.only, data)] == [1, 2]
    assert world.only.take_output() == nsq.fin(b"3" * 16)
    world = World({"a:1": FakeNsqd(0)}, 1)
    world.step()
    flood = b"".join(delivered(b"%016d" % number) for number in range(500))
    subscription = world.only
    assert world.core.receive(subscription, flood) == []
    assert subscription.is_lost


def test_an_address_that_goes_and_comes_while_it_is_dialed_is_dialed_once() -> None:
    world = World({"a:1": FakeNsqd(0)}, 1)
    assert world.core.take_due() == "a:1"
    world.core.want(frozenset())
    world.core.want(frozenset({"a:1"}))
    assert world.core.take_due() is None
    world.core.failed("a:1", "refused")
    world.now = 1.0
    assert world.core.take_due() == "a:1"


def test_a_probe_is_sent_while_another_nsqd_has_a_message_in_work() -> None:
    world = World({"a:1": FakeNsqd(1), "b:1": FakeNsqd(3)}, 4)
    world.step()
    of_b = [one for one in world.held if one._answers is world.core.subscriptions["b:1"]]
    of_b[0].requeue(0, backoff=True)
    of_b[1].finish()
    world.step()
    assert world.core.backoff.flow is Flow.WAITING
    asked = set()
    for _ in range(20):
        world.now += 1.0
        world.step()
        asked |= {one.address for one in world.core.subscriptions.values() if one.rdy}
    assert asked == {"a:1", "b:1"}


def test_the_consumer_leaves_in_order() -> None:
    world = World({"a:1": FakeNsqd(5), "b:1": FakeNsqd(0)}, 4)
    world.step()
    world.core.leave()
    world.held.pop().requeue(0)
    world.held.pop().finish()
    (late,) = [one for one in world.core.subscriptions.values() if one.address == "a:1"]
    world.flush()
    world.arrive("a:1")
    assert world.nsqds["a:1"].commands[-3:] == [b"CLS", b"REQ", b"FIN"]
    world.nsqds["a:1"].in_flight.add(b"late" * 4)
    assert world.core.receive(late, delivered(b"late" * 4)) == []
    world.step()
    assert world.core.has_left
    assert not world.nsqds["a:1"].in_flight
    assert world.core.take_due() is None


# nsqds that nsqlookupd names


def found_world(**named: float) -> World:
    """Return a consumer of which nsqlookupd has named these nsqds, at these times."""
    world = World({f"{name}:1": FakeNsqd(1) for name in named}, 10)
    world.core.want(frozenset())
    world.core.found({f"{name}:1": at for name, at in named.items()})
    world.now = 1.0
    world.step()
    return world


def test_a_deleted_topic_does_not_come_back() -> None:
    world = found_world(a=0.5, b=0.5)
    world.nsqds["a:1"].commands.clear()
    world.fall("a:1")  # the topic is deleted there
    assert world.core.ask_at == 1.1
    for _ in range(20):
        world.now += 1.0
        world.step()
    world.core.found({"b:1": 20.5})  # nsqlookupd has the tombstone
    for _ in range(20):
        world.now += 1.0
        world.step()
    assert world.nsqds["a:1"].commands == []
    assert {*world.core.subscriptions} == {"b:1"}


def test_an_nsqd_that_cannot_be_dialed_is_asked_for_before_each_attempt() -> None:
    world = found_world(a=0.5)
    world.down.add("a:1")
    world.now = 3.0
    world.fall("a:1")
    asked = []
    for _ in range(4):
        asked.append(world.core.ask_at)
        world.now, world.core.ask_at = world.core.ask_at, inf
        world.core.found({"a:1": world.now})
        world.step()
    assert asked == pytest.approx([3.1, 3.3, 3.7, 4.5])


def test_a_given_address_is_dialed_again_whatever_nsqlookupd_says() -> None:
    world = found_world(a=0.5)
    world.core.want(frozenset({"a:1"}))
    world.fall("a:1")
    world.core.found({})
    world.now += 1.0
    world.step()
    assert {*world.core.subscriptions} == {"a:1"}
    assert world.core.ask_at == inf


def test_a_topic_that_is_deleted_while_its_nsqd_is_dialed_gets_no_subscription() -> None:
    world = World({"a:1": FakeNsqd(1)}, 1)
    world.core.want(frozenset())
    world.core.found({"a:1": 0.0})
    assert world.core.take_due() == "a:1"
    world.core.found({})
    subscription = world.core.connected("a:1")
    subscription.take_output()
    assert world.core.receive(subscription, features()) == []
    assert subscription.take_output() == b""
    assert subscription.is_lost


def test_a_message_that_came_late_is_handed_out_later_or_goes_back_at_the_end() -> None:
    late = delivered(b"%016d" % 1)
    for leaves in (False, True):
        world = World({"a:1": FakeNsqd(0), "b:1": FakeNsqd(0)}, 1)
        world.step()
        a, b = world.core.subscriptions.values()
        (first,) = world.core.receive(a, late)
        assert world.core.receive(b, late) == []
        if leaves:
            world.core.leave()
            assert b"REQ" in b.take_output()
            continue
        assert world.core.take_held() == []
        assert world.core.has_held
        first.finish()
        (second,) = world.core.take_held()
        assert not world.core.has_held
        second.finish()


EVENTS = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["arrive", "read", "fall", "down", "up"]), st.integers(0, 3)),
        st.tuples(st.sampled_from(["finish", "fail", "requeue"]), st.integers(0, 9)),
        st.tuples(st.sampled_from(["act", "step"]), st.just(0)),
        st.tuples(st.just("wait"), st.sampled_from([0, 1, 6]) | st.floats(0, 12)),
        st.tuples(st.just("want"), st.integers(0, 15)),
    ),
    max_size=150,
)


@given(EVENTS, st.integers(1, 5) | st.integers(1, 20), st.integers(1, 4), st.integers(0, 99))
@settings(max_examples=tries(100), deadline=None)
def test_any_history(events: list[tuple[str, float]], most: int, count: int, seed: int) -> None:
    names = [f"{name}:1" for name in "abcd"[:count]]
    world = World({name: FakeNsqd(7) for name in names}, most, seed=seed)
    for event, value in events:
        world.play(event, value)
    world.down.clear()
    world.core.want(frozenset(names))
    world.finish_all()

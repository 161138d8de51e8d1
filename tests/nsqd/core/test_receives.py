"""Receives: messages in flight by a receipt, their timeouts and failures, shards, ephemeral channels, limits and the end."""

from itertools import count
from random import Random
from typing import Any

import pytest

from nsqd.core.channel.channel import Channel
from nsqd.core.limits import Limits, TooMany
from nsqd.core.message.frame import message_id
from nsqd.core.receives import KEEP, MOST_BYTES, Receive
from nsqd.core.sequence.gate import Gate
from nsqd.core.sequence.mark import Mark
from tests.cases import each
from tests.effort import seeds
from tests.nsqd.core.node import MS, SECOND, Delivery, Node
from tests.nsqd.core.promoted import PromotedLog, promote

TIMEOUT = 60 * SECOND


class World:
    """A node with the channel `c` of the topic `t`, which clients consume by receives."""

    def __init__(self, channel: str = "c", **limits: Any) -> None:
        self.node = Node(Limits(**limits))
        self.receives = self.node.broker.receives
        self.channel: Channel = self.node.channel("t", channel)
        self.group: dict[Receive, None] = {}
        self.arrivals = 0
        self._count = 0

    def open(self, count: int = 1, timeout: int = TIMEOUT, channel: Channel | None = None) -> Receive:
        self._count += 1
        receive = self.receives.open(
            channel or self.channel, count, f"{self._count:024x}", timeout, self._arrived, self.group
        )
        self.node.turn()
        return receive

    def _arrived(self) -> None:
        self.arrivals += 1

    def answer(self, receive: Receive) -> list[tuple[bytes, str]]:
        """Return body and receipt of each message."""
        frames = self.receives.answer(receive)
        self.node.turn()
        assert frames is not None
        return [(Delivery(frame, 0).body, message_id(frame).decode() + receive.token) for frame in frames]

    def receive(self, count: int = 1, timeout: int = TIMEOUT) -> dict[bytes, str]:
        """Return the receipts of what is there, by body."""
        return dict(self.answer(self.open(count, timeout)))

    def act(self, command: str, *receipts: str, more: tuple[int, ...] = ()) -> list[str]:
        expired: list[str] = getattr(self.receives, command)(self.channel, list(receipts), *more)
        self.node.turn()
        return expired

    @property
    def state(self) -> tuple[int, int, int]:
        """Return the number of messages ready, of those in flight, and of consumers. All invariants hold."""
        self.node.broker.check()
        shards = self.channel.shards
        return sum(one.depth for one in shards), sum(one.in_flight_count for one in shards), len(self.channel.consumers)


def test_messages_are_in_flight_until_they_are_finished_by_their_receipts() -> None:
    world = World()
    world.node.publish("t", b"1", b"2", b"3")
    receipts = world.receive(2)
    assert list(receipts) == [b"1", b"2"]
    assert world.state == (1, 2, 1)
    assert world.act("finish", receipts[b"2"]) == []
    assert world.act("finish", receipts[b"2"], receipts[b"1"]) == [receipts[b"2"]]
    assert world.state == (1, 0, 0)
    assert world.act("finish", receipts[b"1"]) == [receipts[b"1"]]


def test_a_receive_waits_and_is_notified() -> None:
    world = World()
    receive = world.open(10)
    assert (world.state, world.arrivals, receive.open_window) == ((0, 0, 1), 0, 10)
    world.node.publish("t", b"1")
    world.node.publish("t", b"2")
    assert (world.arrivals, receive.open_window) == (2, 8)
    assert [body for body, _ in world.answer(receive)] == [b"1", b"2"]
    assert (world.state, receive.open_window) == ((0, 2, 1), 0)
    world.node.publish("t", b"3")
    assert world.state == (1, 2, 1)
    assert world.answer(world.open()) != []


def test_without_messages_nothing_is_left() -> None:
    world = World()
    assert world.receive(10) == {}
    assert world.state == (0, 0, 0)
    assert world.group == {}


def test_an_earlier_receipt_is_worthless_once_the_message_was_delivered_again() -> None:
    world = World()
    world.node.publish("t", b"1")
    first = world.receive(timeout=SECOND)[b"1"]
    world.node.advance(2 * SECOND)
    assert world.state == (1, 0, 0)
    (again,) = world.receive().values()
    assert again[:16] == first[:16]
    for command, more in (("finish", ()), ("requeue", (0,)), ("touch", (0, TIMEOUT))):
        assert world.act(command, first, more=more) == [first]
    assert world.act("finish", again) == []


@each("answered, failures", [([], 1), ([b"2"], 1), ([b"1"], 0)])
def test_of_what_times_out_the_message_in_hand_has_failed(answered: list[bytes], failures: int) -> None:
    world = World(max_attempts={"": 1})
    world.node.publish("t", b"1", b"2", b"3")
    receipts = world.receive(3, SECOND)
    assert world.act("finish", *[receipts[body] for body in answered]) == []
    world.node.advance(2 * SECOND)
    assert len(world.channel.buried) == 1
    assert world.state == (2 - len(answered), 0, 0)
    letter = next(iter(world.channel.buried.values()))
    assert letter.reason == "timed out"
    assert letter.ordinal == (0 if failures else 1)


def test_requeue_and_touch() -> None:
    world = World(max_attempts={"": 3})
    world.node.publish("t", b"1")
    for _ in range(2):
        (receipt,) = world.receive().values()
        assert world.act("requeue", receipt, more=(5 * SECOND,)) == []
        assert world.channel.deferred_count == 1
        assert world.receive() == {}
        world.node.advance(6 * SECOND)
    (receipt,) = world.receive(timeout=10 * SECOND).values()
    for _ in range(2):
        world.node.advance(8 * SECOND)
        assert world.act("touch", receipt, more=(0, 20 * SECOND)) == []
    world.node.advance(3 * SECOND)
    assert world.state == (0, 1, 1)
    world.node.advance(SECOND + MS)  # 20 s after the delivery
    assert (world.state, len(world.channel.buried)) == ((0, 0, 0), 1)
    assert world.act("touch", receipt, more=(0, 20 * SECOND)) == [receipt]


def test_a_client_that_is_gone_before_its_answer_has_failed_at_nothing() -> None:
    world = World(max_attempts={"": 1})
    world.node.publish("t", b"1", b"2")
    receive = world.open(5)
    world.receives.abandon(receive)
    world.node.turn()
    assert (world.state, len(world.channel.buried)) == ((2, 0, 0), 0)
    assert set(world.receive(5)) == {b"1", b"2"}
    assert world.channel.lost_consumers == 0


def test_receipts_of_another_channel_and_unknown_ones_have_expired() -> None:
    world = World()
    world.node.channel("t", "d")
    world.node.publish("t", b"1")
    (receipt,) = world.receive().values()
    other = world.node.channel("t", "d")
    assert world.receives.finish(other, [receipt]) == [receipt]
    strange = receipt[:16] + "f" * 24
    assert world.act("finish", strange, receipt[:15] + "f" + receipt[16:]) != []
    assert world.state == (0, 1, 1)


def test_messages_of_all_logs_are_received_and_finished() -> None:
    world = World()
    world.node.publish("t", b"own")
    log = promote(world.node, 8, "t", "c", b"a0", b"a1", b"a2")
    receipts = world.receive(10) | world.receive(10)
    assert set(receipts) == {b"own", b"a0", b"a1", b"a2"}
    assert world.state == (0, 4, len({receipt[16:] for receipt in receipts.values()}))
    assert world.act("finish", receipts[b"own"], receipts[b"a1"]) == []
    assert world.act("requeue", receipts[b"a0"], more=(0,)) == []
    assert world.act("touch", receipts[b"a2"], more=(0, TIMEOUT)) == []
    waiting = world.open(1)
    assert [body for body, _ in world.answer(waiting)] == [b"a0"]
    assert world.state[:2] == (0, 2)
    log.detach()
    assert world.state == (0, 0, 0)
    assert world.act("finish", receipts[b"a2"]) == [receipts[b"a2"]]


def test_receives_that_wait_get_what_a_promoted_log_has() -> None:
    world = World()
    receives = [world.open(2) for _ in range(3)]
    promote(world.node, 8, "t", "c", *[b"%d" % number for number in range(5)])
    world.node.publish("t", b"5", b"6", b"7")
    found = [len(world.answer(receive)) for receive in receives]
    assert (found, world.state) == ([2, 2, 2], (2, 6, 3))
    world.node.advance(TIMEOUT + SECOND)
    assert world.state == (8, 0, 0)


def test_a_paused_channel_delivers_nothing_and_takes_receipts() -> None:
    world = World()
    world.node.publish("t", b"1", b"2")
    (receipt,) = world.receive().values()
    world.node.broker.pause(world.channel, True)
    waiting = world.open()
    assert world.state == (1, 1, 2)
    assert world.act("finish", receipt) == []
    world.node.broker.pause(world.channel, False)
    world.node.turn()
    assert [body for body, _ in world.answer(waiting)] == [b"2"]


@each("delete", [
    lambda world: world.node.broker.directory.delete_channel(world.node.broker.topics["t"], "c"),
    lambda world: world.node.broker.delete_topic("t"),
])  # fmt: skip
def test_a_deleted_channel_ends_all_receives(delete: Any) -> None:
    world = World()
    world.node.publish("t", b"1")
    (receipt,) = world.receive().values()
    waiting = world.open()
    delete(world)
    world.node.turn()
    assert world.arrivals == 3
    assert world.receives.answer(waiting) is None
    world.receives.abandon(waiting)
    world.node.turn()
    assert (world.group, repr(world.receives)) == ({}, "<Receives: 0 wait, 0 open>")
    world.channel = world.node.channel("t", "c")
    assert world.act("finish", receipt) == [receipt]


def test_an_emptied_channel_ends_the_receives_with_messages() -> None:
    world = World()
    world.node.publish("t", b"1", b"2")
    world.receive(2)
    waiting = world.open()
    world.channel.empty()
    world.node.turn()
    assert world.state == (0, 0, 1)
    world.node.publish("t", b"3")
    assert [body for body, _ in world.answer(waiting)] == [b"3"]


def test_an_ephemeral_channel_is_kept_between_receives() -> None:
    world = World("c#ephemeral")
    topic = world.node.broker.topics["t"]
    assert world.receive() == {}
    world.node.publish("t", b"1")
    world.node.advance(KEEP - SECOND)
    (receipt,) = world.receive().values()
    world.node.advance(KEEP - SECOND)  # the first one kept it until now
    assert "c#ephemeral" in topic.channels
    assert world.act("finish", receipt) == []
    world.node.advance(SECOND + MS)
    assert topic.channels == {}
    world.channel = world.node.channel("t", "c#ephemeral")
    world.receive()
    topic.channel("other")
    world.node.broker.directory.delete_channel(topic, "c#ephemeral")
    world.node.advance(KEEP + SECOND)
    assert list(topic.channels) == ["other"]


def test_an_answer_has_a_limit_of_bytes() -> None:
    world = World()
    world.node.publish("t", *[bytes(MOST_BYTES // 3)] * 4)
    assert len(world.answer(world.open(10))) == 3  # one more than fits
    assert world.state == (1, 3, 1)


def test_receives_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    monkeypatch.setattr("nsqd.core.receives.MOST_WAITING", 2)
    monkeypatch.setattr("nsqd.core.receives.MOST_OPEN", 3)
    world.node.publish("t", b"1", b"2")
    world.receive()
    world.open()
    world.open()
    assert world.receives.counts() == {"waiting": 2, "in_flight": 1}
    with pytest.raises(TooMany, match="2 receives wait, and 3 are open"):
        world.open()
    assert world.node.broker.refused["receives"] == 1


def test_a_node_that_stops_lets_no_receive_wait() -> None:
    world = World()
    receive = world.open()
    world.receives.stop()
    assert world.arrivals == 1
    assert world.answer(receive) == []
    world.open()
    assert world.arrivals == 2


def test_an_answer_waits_for_copies_of_its_messages() -> None:
    world, promised = World(), list[tuple[Mark, ...]]()
    mark = Mark("copied")
    world.channel.offsets.gate = Gate(mark, promised.append, 10)
    world.node.publish("t", b"1")
    assert promised == []
    receive = world.open()
    assert promised == [(mark,)]  # of the turn in which it is put in flight
    world.answer(receive)
    assert promised == [(mark,)] * 2
    mark.position = 10
    world.receive()
    assert len(promised) == 2


@pytest.mark.parametrize("seed", seeds(10))
def test_any_history(seed: int) -> None:
    """Of the receipts of a message one at most is valid, and each message is finished once."""
    random, numbers = Random(seed), count()
    world = World(topology_aware=seed % 2 == 0, requeue_on_disconnect=seed % 3 == 0)
    client, inbox = world.node.subscribe("t", "c", 1, timeout=SECOND)
    unfinished = set[bytes]()
    receipts: dict[bytes, list[str]] = {}  # all that clients have got, by body
    waiting: list[Receive] = []
    logs: list[PromotedLog] = []

    def publish() -> None:
        bodies = [b"%d" % next(numbers) for _ in range(random.randint(1, 9))]
        unfinished.update(bodies)
        if len(logs) < 3 and random.random() < 0.2:
            logs.append(promote(world.node, 8 + len(logs), "t", "c", *bodies))
        else:
            world.node.publish("t", *bodies)

    def consume() -> None:
        """Finish what a consumer over TCP was given, unless it has timed out."""
        for delivery in inbox.take():
            if not client.finish(delivery.id):
                unfinished.remove(delivery.body)
        world.node.turn()

    def answer() -> None:
        if waiting:
            messages = world.answer(waiting.pop(random.randrange(len(waiting))))
            assert len(dict(messages)) == len(messages)
            for body, receipt in messages:
                receipts.setdefault(body, []).append(receipt)

    def act() -> None:
        command, more = random.choice(
            [("requeue", (0,)), ("requeue", (SECOND,)), ("touch", (0, 5 * SECOND)), ("finish", ())]
        )
        for body in random.sample(sorted(receipts), min(5, len(receipts))):
            in_flight, known = world.state[1], receipts[body]
            expired = world.act(command, *known, more=more)
            assert len(known) - len(expired) in ((0, 1) if body in unfinished else (0,))
            if len(expired) < len(known) and command == "finish":
                unfinished.remove(body)
                assert world.state[1] == in_flight - 1

    def pause() -> None:
        world.node.broker.pause(world.channel, random.random() < 0.5)
        world.node.turn()

    actions = [
        publish, answer, answer, act, act, pause, consume,
        lambda: waiting.append(world.open(random.randint(1, 5), random.randint(1, 4) * SECOND)),
        lambda: waiting and world.receives.abandon(waiting.pop()),
        lambda: world.node.advance(random.randint(0, 3) * SECOND),
    ]  # fmt: skip
    for _ in range(150):
        random.choice(actions)()
        deferred = sum(shard.deferred_count for shard in world.channel.shards)
        assert sum(world.state[:2]) + deferred == len(unfinished)
    client.leave(world.node.broker)
    world.node.broker.pause(world.channel, False)
    for receive in waiting:
        world.receives.abandon(receive)
    world.node.advance(10 * SECOND)
    assert world.state == (len(unfinished), 0, 0)
    while messages := world.receive(5):
        assert world.act("finish", *messages.values()) == []
        unfinished -= messages.keys()
    assert not unfinished

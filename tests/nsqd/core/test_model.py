"""A stateful model of a topic of the node's own broker and up to three promoted logs, with invariants checked after each step.

The model has a *part* for each channel of each log: its unfinished messages by body, in what state, with how many attempts, and
between which bounds their failures are: which of several that time out has failed depends on when the scan comes
(channel/test_failures.py has the exact rule). It knows nothing of runs, extents, cursors, heaps and windows, and counts by
itself what each consumer has in flight.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import count
from random import Random
from typing import Any

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from nsqd.core.channel import actions, commands, window
from nsqd.core.channel.channel import Channel
from nsqd.core.channel.consumer import ELSEWHERE, SAME_REGION, SAME_ZONE
from nsqd.core.channel.window import ShardedWindow, Shards
from nsqd.core.limits import Limits
from nsqd.core.topic import Topic
from nsqd.storage import stored_extent
from nsqd.storage.stored_extent import EXTENT_MESSAGES
from shared.topic_config import TopicConfig
from tests.effort import tries
from tests.nsqd.core.client import Client
from tests.nsqd.core.node import MS, SECOND, Delivery, Inbox, Node
from tests.nsqd.core.promoted import PromotedLog

EXAMPLES = 100
TIMEOUT = 2 * SECOND
GRACE = 30 * MS  # by which the scan may be late
HOME = 0  # the number of the node's own log
NAMES = "abc"


@dataclass
class Part:
    """The messages that one channel of one log should have, by body."""

    paused: bool = False
    ready: set[bytes] = field(default_factory=set)
    in_flight: dict[bytes, int] = field(default_factory=dict)  # -> deadline
    deferred: dict[bytes, int] = field(default_factory=dict)  # -> due
    buried: set[bytes] = field(default_factory=set)
    least: dict[bytes, int] = field(default_factory=dict)  # failures for sure: it was requeued
    most: dict[bytes, int] = field(default_factory=dict)  # failures at most: it came back
    kicked: set[bytes] = field(default_factory=set)  # ever: they are delivered for the first time again
    owner: dict[bytes, Client] = field(default_factory=dict)  # of those that were delivered
    attempts: dict[bytes, int] = field(default_factory=dict)
    late: set[bytes] = field(default_factory=set)  # published with a delay: they have no order
    last_first: int = -1  # the highest number of a message delivered for the first time

    def owed(self) -> set[bytes]:
        return self.ready | self.in_flight.keys() | self.deferred.keys() | self.buried

    def clear(self) -> None:
        for state in (self.ready, self.in_flight, self.deferred, self.buried):
            state.clear()

    def hand_back(self, body: bytes) -> None:
        """It was in flight, and no longer is: it is ready, or buried as will be seen."""
        self.most[body] = self.most.get(body, 0) + 1
        self.ready.add(body)


@dataclass
class Member:
    """A client of a channel."""

    name: str
    client: Client
    inbox: Inbox
    rdy: int


@dataclass
class ModelLog:
    """The topic in one log: its parts by channel, and what no channel was given."""

    parts: dict[str, Part] = field(default_factory=dict)
    backlog: list[tuple[bytes, int]] = field(default_factory=list)  # (body, due or 0)
    paused: bool = False
    is_going: bool = False  # it is being detached: what clients have of it may count no more
    is_shared: bool = False  # its channels were made for those of the local topic


class TopicMachine(RuleBasedStateMachine):
    """Any history of a local topic and promoted ones."""

    def __init__(self) -> None:
        super().__init__()
        stored_extent.EXTENT_MESSAGES = 7  # so that extents fill up
        self.node = Node(seed=3)
        self.node.after_turn = self.settle
        self.topic: Topic
        self.logs: dict[int, ModelLog] = {HOME: ModelLog()}
        self.promoted: dict[int, PromotedLog] = {}
        self.numbers = count()
        self.origins = count(1)
        self.members: list[Member] = []
        self.deliveries: list[tuple[Member, int, Delivery]] = []  # what may still be in flight, with the log
        self.bodies_of: dict[bytes, bytes] = {}  # of all that was delivered, by id
        self.finished = 0
        self.concurrency = 0

    def teardown(self) -> None:
        stored_extent.EXTENT_MESSAGES = EXTENT_MESSAGES

    @initialize(
        requeue_on_disconnect=st.booleans(), topology_aware=st.booleans(), mem_queue_size=st.sampled_from([0, 2, 1000]),
        max_attempts=st.sampled_from([0, 0, 1, 2]), percentiles=st.sampled_from([(), (0.5,)]),
        concurrency=st.sampled_from([0, 0, 1, 4]),
    )  # fmt: skip
    def limit(self, max_attempts: int, percentiles: tuple[float, ...], concurrency: int, **limits: Any) -> None:
        self.node.broker.limits = self.node.broker.context.limits = Limits(
            max_attempts={"": max_attempts}, latency_percentiles=percentiles, **limits
        )
        self.topic = self.node.broker.topic("t")
        self.concurrency = concurrency
        self.topic.configure(TopicConfig(concurrency=concurrency))

    # messages: a body is the number of its log, and its own, which ascends

    def bodies(self, log: int, many: int) -> list[bytes]:
        return [b"%d:%d" % (log, next(self.numbers)) for _ in range(many)]

    @rule(many=st.one_of(st.integers(1, 6), st.integers(7, 30)))
    def publish(self, many: int) -> None:
        bodies = self.bodies(HOME, many)
        self.topic.publish(bodies, sum(map(len, bodies)))
        self.logs[HOME].backlog += [(body, 0) for body in bodies]
        self.node.turn()

    @rule(delay=st.integers(1, 3000))
    def publish_deferred(self, delay: int) -> None:
        (body,) = self.bodies(HOME, 1)
        due = self.node.now + delay * MS
        self.topic.intake.publish_with([body], due=due)
        self.logs[HOME].backlog.append((body, due))
        self.node.turn()

    # logs

    @precondition(lambda self: len(self.promoted) < 3)
    @rule(
        names=st.sets(st.sampled_from(NAMES)),
        many=st.integers(0, 15),
        deferred=st.integers(0, 2),
        paused=st.booleans(),
        paused_channels=st.booleans(),
    )
    def promote(self, names: set[str], many: int, deferred: int, paused: bool, paused_channels: bool) -> None:
        """A log as its origin left it: with channels or without, and perhaps paused."""
        number = next(self.origins)
        promoted_log = PromotedLog(self.node, 7 + number)
        model = ModelLog(paused=paused)
        topic = promoted_log.broker.topic("t")
        for name in sorted(names):
            promoted_log.broker.pause(topic.channel(name), paused_channels)
            model.parts[name] = Part(paused=paused_channels)
        promoted_log.broker.pause(topic, paused)
        bodies = self.bodies(number, many)
        topic.publish(bodies, sum(map(len, bodies)))
        model.backlog += [(body, 0) for body in bodies]
        for body in self.bodies(number, deferred):
            due = self.node.now + 700 * MS
            topic.intake.publish_with([body], due=due)
            model.backlog.append((body, due))
        self.promoted[number] = promoted_log
        self.logs[number] = model
        promoted_log.broker.seal()
        self._promote_model(model)
        while promoted_log.attach(1) if not hasattr(promoted_log, "attachment") else promoted_log.attach_batch(1):
            pass

    def _promote_model(self, model: ModelLog) -> None:
        home = self.logs[HOME]
        for body, due in list(model.backlog) if model.parts and not model.paused else ():
            self._give(model, body, due)
        model.paused |= home.paused
        is_held = not home.parts  # then all channels are there before anything is distributed
        for name, part in sorted(model.parts.items()):
            if name in home.parts:
                part.paused |= home.parts[name].paused
                continue
            home.parts[name] = Part()
            if not is_held:
                self._channel_made(model)
        if is_held and model.parts:
            self._channel_made(model)
        self._share(model)

    def _channel_made(self, but: ModelLog | None = None) -> None:
        """A local channel was made: promoted logs that wait for one share what waits, at once."""
        for number in self.promoted:
            log = self.logs[number]
            if log is not but:
                self._share(log)
                for body, due in list(log.backlog) if log.parts and not log.paused else ():
                    self._give(log, body, due)

    def _share(self, model: ModelLog) -> None:
        """Messages that no channel was given go to the channels of the local topic, if the log had none."""
        model.is_shared |= not model.parts
        if model.is_shared and model.backlog:
            for name, part in self.logs[HOME].parts.items():
                model.parts.setdefault(name, Part(paused=part.paused))

    @precondition(lambda self: self.promoted)
    @rule(data=st.data(), limit=st.sampled_from([1, 100]))
    def detach(self, data: st.DataObject, limit: int) -> None:
        number = data.draw(st.sampled_from(sorted(self.promoted)))
        promoted_log = self.promoted.pop(number)
        self.logs[number].is_going = True
        while promoted_log.detach(limit):
            pass
        del self.logs[number]
        self.deliveries = [entry for entry in self.deliveries if entry[1] != number]

    # channels

    @rule(name=st.sampled_from(NAMES))
    def create_channel(self, name: str) -> None:
        self.topic.channel(name)
        if name not in self.logs[HOME].parts:
            self.logs[HOME].parts[name] = Part()
            self._channel_made()
        self.node.turn()

    @precondition(lambda self: self.logs[HOME].parts)
    @rule(data=st.data())
    def delete_channel(self, data: st.DataObject) -> None:
        name = self._draw_channel(data)
        self.node.broker.directory.delete_channel(self.topic, name)
        for log in self.logs.values():
            log.parts.pop(name, None)
        self.members = [member for member in self.members if member.name != name]
        self.deliveries = [entry for entry in self.deliveries if entry[0].name != name]
        self.node.turn()

    @precondition(lambda self: self.logs[HOME].parts)
    @rule(data=st.data())
    def empty_channel(self, data: st.DataObject) -> None:
        name = self._draw_channel(data)
        self.topic.channels[name].empty()
        for _, part in self.parts(name):
            part.clear()
        self.node.turn()

    @rule()
    def empty_topic(self) -> None:
        self.topic.empty()
        for log in self.logs.values():
            log.backlog.clear()
        self.node.turn()

    @precondition(lambda self: self.logs[HOME].parts)
    @rule(data=st.data())
    def pause_channel(self, data: st.DataObject) -> None:
        name = self._draw_channel(data)
        paused = not self.topic.channels[name].paused
        self.node.broker.pause(self.topic.channels[name], paused)
        for _, part in self.parts(name):
            part.paused = paused
        self.node.turn()

    @rule()
    def pause_topic(self) -> None:
        paused = not self.topic.paused
        self.node.broker.pause(self.topic, paused)
        for log in self.logs.values():
            log.paused = paused
        self.node.turn()

    def _draw_channel(self, data: st.DataObject) -> str:
        return str(data.draw(st.sampled_from(sorted(self.logs[HOME].parts))))

    # consumers

    @precondition(lambda self: self.logs[HOME].parts)
    @rule(data=st.data(), rdy=st.integers(0, 6), distance=st.sampled_from([SAME_ZONE, SAME_REGION, ELSEWHERE]))
    def subscribe(self, data: st.DataObject, rdy: int, distance: int) -> None:
        name, inbox = self._draw_channel(data), Inbox()
        client = Client(self.topic.channels[name], inbox, TIMEOUT, 0, distance)
        self.members.append(Member(name, client, inbox, rdy))
        client.set_ready(rdy)
        self.node.turn()

    @precondition(lambda self: self.members)
    @rule(data=st.data(), rdy=st.integers(0, 6))
    def rdy(self, data: st.DataObject, rdy: int) -> None:
        member = data.draw(st.sampled_from(self.members))
        member.rdy = rdy
        member.client.set_ready(rdy)
        self.node.turn()

    @precondition(lambda self: self.members)
    @rule(data=st.data())
    def block_or_clear(self, data: st.DataObject) -> None:
        """The client's connection is full, or has room again."""
        member = data.draw(st.sampled_from(self.members))
        member.inbox.space = 0 if member.inbox.space else 1 << 20
        member.client.refresh()
        self.node.turn()

    @precondition(lambda self: self.members)
    @rule(data=st.data())
    def disconnect(self, data: st.DataObject) -> None:
        member = data.draw(st.sampled_from(self.members))
        member.client.leave(self.node.broker)
        self.members.remove(member)
        self.deliveries = [entry for entry in self.deliveries if entry[0] is not member]
        for _, part in self.parts(member.name) if self.node.broker.context.limits.requeue_on_disconnect else ():
            for body in [body for body in part.in_flight if part.owner[body] is member.client]:
                del part.in_flight[body]
                part.hand_back(body)
        self._take_graves()
        self.node.turn()

    @precondition(lambda self: self.deliveries)
    @rule(data=st.data(), many=st.integers(1, 9))
    def finish(self, data: st.DataObject, many: int) -> None:
        for entry in self._drawn(data, many, lambda member, ids: member.client.finish(ids)):
            self.forget(entry)
            self.finished += 1
        self.node.turn()

    def _drawn(
        self, data: st.DataObject, many: int, act: Callable[[Member, bytes], list[tuple[bytes, str]]]
    ) -> list[tuple[Member, int, Delivery]]:
        """Act on some deliveries of one client, in any order. Returns those for which this succeeded."""
        at = data.draw(st.integers(0, len(self.deliveries) - 1))
        member = self.deliveries[at][0]
        latest = {(entry[1], entry[2].id): entry for entry in self.deliveries[at:] if entry[0] is member}
        chosen = data.draw(st.permutations(list(latest.values())[:many]))
        failed = {message_id for message_id, _ in act(member, b"".join(entry[2].id for entry in chosen))}
        for entry in chosen:
            assert (entry[2].id in failed) == (not self.owns(entry)) or self.overdue(entry), entry
            self.deliveries.remove(entry)
        return [entry for entry in chosen if entry[2].id not in failed]

    @precondition(lambda self: self.deliveries)
    @rule(data=st.data(), delay=st.sampled_from([0, 0, 100, 1500]), many=st.integers(1, 4))
    def requeue(self, data: st.DataObject, delay: int, many: int) -> None:
        def act(member: Member, ids: bytes) -> list[tuple[bytes, str]]:
            done = [(one, member.client.requeue(one, delay * MS, self.node.now)) for one in split(ids)]
            return [(one, why) for one, why in done if why]

        done = [(self.forget(entry), entry[2].body) for entry in self._drawn(data, many, act)]
        for part, body in done:
            part.least[body] = part.least.get(body, 0) + 1
            part.hand_back(body)
        self._take_graves()
        for part, body in done:
            if delay and body not in part.buried:
                part.ready.remove(body)
                part.deferred[body] = self.node.now + delay * MS
        self.node.turn()

    @precondition(lambda self: self.deliveries)
    @rule(data=st.data())
    def touch(self, data: st.DataObject) -> None:
        entry = data.draw(st.sampled_from(self.deliveries))
        done = entry[0].client.touch(entry[2].id, TIMEOUT, 100 * SECOND, self.node.now) == ""
        assert done == self.owns(entry) or self.overdue(entry)
        if done:
            self.part(entry).in_flight[entry[2].body] = self.node.now + TIMEOUT
        self.node.turn()

    @precondition(lambda self: self.graves())
    @rule(data=st.data(), many=st.integers(1, 4), kick=st.booleans())
    def dig_up(self, data: st.DataObject, many: int, kick: bool) -> None:
        """Kick some, or finish them; some are named twice, and some are not buried."""
        number, name, message_id = data.draw(st.sampled_from(self.graves()))
        channel, part = self.topic_of(number).channels[name], self.logs[number].parts[name]
        chosen = [message_id, *(found for found, _ in channel.buried.after(message_id, many - 1))]
        named = [b"0123456789abcdef", *chosen, chosen[0]]
        assert (actions.kick if kick else actions.finish_buried)(channel, named) == len(chosen)
        for body in map(self.bodies_of.__getitem__, chosen):
            part.buried.discard(body)
            part.in_flight.pop(body, None)  # it has timed out, and the model was about to see it
            if kick:
                part.ready.add(body)
                part.attempts[body] = part.least[body] = part.most[body] = 0
                part.kicked.add(body)
        self.node.turn()

    @rule(ms=st.integers(1, 2500))
    def wait(self, ms: int) -> None:
        self.node.advance(ms * MS)

    # the model's own invariants

    def topic_of(self, number: int) -> Topic:
        return self.topic if number == HOME else self.promoted[number].broker.topics["t"]

    def graves(self) -> list[tuple[int, str, bytes]]:
        """(log, channel, id) of all that is buried."""
        return [
            (number, name, found)
            for number, log in self.logs.items()
            for name in log.parts
            for found in self.topic_of(number).channels[name].buried.oldest(1000)
        ]

    def _take_graves(self) -> None:
        """Take over what the node has buried, if it may have, and see that it has buried what it must."""
        limit = self.node.broker.context.limits.attempts("t")
        for number, log in self.logs.items():
            for name, part in log.parts.items() if not log.is_going else ():
                if name not in self.topic_of(number).channels:
                    continue  # it is being attached
                channel = self.topic_of(number).channels[name]
                letters = {self.bodies_of[found]: one for found, one in channel.buried.items()}
                for body in letters.keys() - part.buried:
                    if part.in_flight.pop(body, None) is not None:  # the model was about to see its timeout
                        part.most[body] = part.most.get(body, 0) + 1
                    assert 0 < limit <= part.most[body]
                    assert (
                        part.least.get(body, 0) <= letters[body].failures <= part.most[body] <= letters[body].attempts
                    )
                    part.ready.discard(body)
                    part.buried.add(body)
                assert part.buried <= letters.keys()
                assert not any(0 < limit <= part.least.get(body, 0) for body in part.ready)

    def parts(self, name: str) -> Iterator[tuple[int, Part]]:
        """The parts of a channel in all logs."""
        return ((number, log.parts[name]) for number, log in self.logs.items() if name in log.parts)

    def part(self, entry: tuple[Member, int, Delivery]) -> Part:
        return self.logs[entry[1]].parts[entry[0].name]

    def forget(self, entry: tuple[Member, int, Delivery]) -> Part:
        part = self.part(entry)
        del part.in_flight[entry[2].body]
        return part

    def owns(self, entry: tuple[Member, int, Delivery]) -> bool:
        """True if that message is in flight at that client."""
        part, body = self.part(entry), entry[2].body
        return part.owner.get(body) is entry[0].client and body in part.in_flight

    def overdue(self, entry: tuple[Member, int, Delivery]) -> bool:
        """True if its timeout has passed, but the scan may not have seen it: both answers are right."""
        deadline = self.part(entry).in_flight.get(entry[2].body)
        return deadline is not None and deadline <= self.node.now

    def settle(self) -> None:
        """The node has done what it can: move the model accordingly."""
        for log in self.logs.values():
            if log.parts and not log.paused:
                for body, due in list(log.backlog):
                    self._give(log, body, due)
        came = [(member, delivery) for member in self.members for delivery in member.inbox.take()]
        for member, delivery in sorted(came, key=lambda entry: entry[1].number):
            self._delivered(member, delivery)
        self._expire()

    def _give(self, log: ModelLog, body: bytes, due: int) -> None:
        log.backlog.remove((body, due))
        for part in log.parts.values():
            if due:
                part.deferred[body] = max(due, self.node.now)
                part.late.add(body)
            else:
                part.ready.add(body)

    def _delivered(self, member: Member, delivery: Delivery) -> None:
        body, now = delivery.body, self.node.now
        log, number = map(int, body.split(b":"))
        part = self.logs[log].parts[member.name]
        was_deferred = part.deferred.pop(body, None)
        assert was_deferred is None or was_deferred <= now, "never early"
        deadline = part.in_flight.get(body)
        assert deadline is None or deadline <= now, "never to two at once"
        assert was_deferred is not None or deadline is not None or body in part.ready, "never again"
        if deadline is not None:  # it came back, and is delivered again
            part.most[body] = part.most.get(body, 0) + 1
        self.bodies_of[delivery.id] = body
        part.ready.discard(body)
        attempts = part.attempts[body] = part.attempts.get(body, 0) + 1
        assert delivery.attempts == attempts
        if attempts == 1 and body not in part.late | part.kicked:
            assert number > part.last_first, "each log in its order"
            part.last_first = number
        part.in_flight[body], part.owner[body] = now + TIMEOUT, member.client
        assert self.in_flight_at(member) <= member.rdy, "never more than RDY"
        self.deliveries.append((member, log, delivery))

    def in_flight_at(self, member: Member) -> int:
        """Messages that this client has, in all logs, whose timeout has not come."""
        return sum(
            part.owner[body] is member.client and deadline > self.node.now
            for number, part in self.parts(member.name)
            if not self.logs[number].is_going
            for body, deadline in part.in_flight.items()
        )

    def _expire(self) -> None:
        """Messages that are overdue beyond the grace are ready again; the invariant sees to the numbers."""
        now = self.node.now
        for part in (part for log in self.logs.values() for part in log.parts.values()):
            for waiting, comes in ((part.deferred, part.ready.add), (part.in_flight, part.hand_back)):
                for body in [body for body, due in waiting.items() if due + GRACE <= now]:
                    del waiting[body]
                    comes(body)
        self._take_graves()

    @invariant()
    def agrees(self) -> None:
        broker, now = self.node.broker, self.node.now
        broker.check()
        for number, log in self.logs.items():
            topic = self.topic_of(number)
            assert topic.depth == len(log.backlog)
            assert (number, set(topic.channels)) == (number, set(log.parts))
            assert bool(topic.paused) == log.paused
            for name, part in log.parts.items():
                channel = topic.channels[name]
                assert sum(channel.counts()) == len(part.owed())
                if not any(now - GRACE < deadline <= now for deadline in part.in_flight.values()):
                    assert channel.in_flight_count == len(part.in_flight)
                    assert {self.bodies_of[found] for found in channel.buried.oldest(1000)} == part.buried
                assert bool(channel.paused) == part.paused
                assert channel in self.topic.channels[name].shards
                assert not self.could_deliver(channel, name), "nothing waits while a client has room"
        for name, channel in self.topic.channels.items():
            assert len(channel.shards) == len(list(self.parts(name)))
            assert not self.concurrency or self.in_flight_in(channel) <= self.concurrency
        for member in self.members:
            client, is_ready = member.client, member.client.consumer in member.client.channel.dispatch.ready
            assert (
                len(client.channel.shards) > 1
                or not member.inbox.room()
                or is_ready == (client.ready > client.in_flight)
            )
        home = self.logs[HOME]
        owed = {body for body, _ in home.backlog}.union(*(part.owed() for part in home.parts.values()))
        assert self.node.held() == len(owed)
        assert broker.context.latencies.count == (self.finished if broker.context.limits.latency_percentiles else 0)

    def could_deliver(self, channel: Channel, name: str) -> bool:
        is_free = any(
            member.name == name
            and member.inbox.space
            and self.in_flight_at(member) < member.rdy
            and not self.late(member)
            for member in self.members
        )
        local = self.topic.channels[name]
        is_full = 0 < self.concurrency <= self.in_flight_in(local)
        return channel.depth > 0 and not channel.paused and is_free and not is_full

    def in_flight_in(self, channel: Channel) -> int:
        return sum(shard.in_flight_count for shard in channel.shards)

    def late(self, member: Member) -> bool:
        """True if the scan may still have to time out something that this client has."""
        flights = (part for _, part in self.parts(member.name))
        return any(
            part.owner[body] is member.client and deadline <= self.node.now
            for part in flights
            for body, deadline in part.in_flight.items()
        )


def split(ids: bytes) -> list[bytes]:
    return [ids[at : at + 16] for at in range(0, len(ids), 16)]


TestTopic = TopicMachine.TestCase
TestTopic.settings = settings(max_examples=tries(EXAMPLES, in_short=14), stateful_step_count=40, deadline=None)


# nothing starves


def starving(seed: int) -> str:
    """Run clients with endless backlogs in each log. Returns which log was left out, or ""."""
    random = Random(seed)
    node = Node(seed=seed)
    logs = random.randint(1, 4)
    topic = node.broker.topic("t")
    topic.channel("c")
    for log in range(1, logs):
        PromotedLog(node, 7 + log).attach()  # empty ones are in the way, too
        promoted = PromotedLog(node, 20 + log)
        promoted.channels("t", "c")
        promoted.publish("t", *[b"%d" % log] * 2000)
        promoted.attach()
    node.publish("t", *[b"0"] * 2000)
    clients = []
    for _ in range(random.randint(1, 4)):
        inbox = Inbox()
        client = Client(topic.channels["c"], inbox, 60 * SECOND)
        client.set_ready(random.choice([1, 1, 2, 5]))
        clients.append((client, inbox, list[Delivery]()))
    left_out = [0] * logs
    for _ in range(60):
        node.turn()
        came = set()
        for client, inbox, has in clients:
            has += inbox.take()
            came |= {one.body for one in has}
            random.shuffle(has)
            chosen = random.randint(0, len(has))
            client.finish(b"".join(one.id for one in has[:chosen]))
            del has[:chosen]
        for log in range(logs):
            left_out[log] = 0 if b"%d" % log in came else left_out[log] + 1
            if left_out[log] > 3 * logs + 12:
                return f"seed {seed}: log {log} of {logs}"
    return ""


def test_no_log_starves() -> None:
    assert [found for found in map(starving, range(tries(20))) if found] == []


# planted bugs are found


def found_by_the_model() -> bool:
    effort = settings(
        max_examples=2000,  # the first that finds the bug is the last; which one that is depends on what else is imported
        stateful_step_count=40,
        deadline=None,
        derandomize=True,
        database=None,
        phases=[Phase.generate],
    )
    try:
        run_state_machine_as_test(TopicMachine, settings=effort)
    except (AssertionError, KeyError, StopIteration):
        return True
    return False


FINISH = commands.finish


@pytest.mark.campaign  # 3 to 12 s each
@pytest.mark.parametrize(
    ("owner", "name", "bug"),
    [
        (ShardedWindow, "count", lambda self, member: self.rdy - member.in_flight),  # counts only its own channel
        (Shards, "wake_next", lambda self: self.local.wake()),  # a window that opens wakes only the local channel
        (window, "SOME_CONSUMER", {}),  # a message does not wake a channel that had none
        (Shards, "wake_active", lambda self: None),  # a channel that was served does not wake the others
        (
            commands,
            "finish",
            lambda channel, consumer, ids: FINISH(channel, consumer, ids, True),
        ),  # in the local channel only
    ],
)
def test_a_planted_bug_is_found(monkeypatch: pytest.MonkeyPatch, owner: object, name: str, bug: object) -> None:
    monkeypatch.setattr(owner, name, bug)
    assert found_by_the_model()


def test_it_is_found_if_the_channels_do_not_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Shards, "note_turn", lambda self, channel, count, now: None)
    assert any(map(starving, range(100)))

"""A stateful model of one topic and its channels beside the real thing, the invariants checked after every step.

The model knows messages by their bodies and says for each channel which are ready, in flight, deferred or buried, with how
many attempts, and between which bounds their failures are: which of several that time out has failed depends on when the scan
comes (channel/test_failures.py has the exact rule). It knows nothing of runs, extents, cursors or heaps.
"""

from dataclasses import dataclass, field
from itertools import count

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from nsqd.core.channel import actions
from nsqd.core.channel.consumer import ELSEWHERE, SAME_REGION, SAME_ZONE
from nsqd.core.limits import Limits
from nsqd.core.topic import Topic
from nsqd.storage import stored_extent
from nsqd.storage.stored_extent import EXTENT_MESSAGES
from tests.effort import tries
from tests.nsqd.core.client import Client
from tests.nsqd.core.node import MS, SECOND, Delivery, Inbox, Node

EXAMPLES = 60
TIMEOUT = 2 * SECOND
GRACE = 30 * MS  # by which the scan may be late


@dataclass
class ModelChannel:
    """What a channel should hold, by body."""

    ready: set[bytes] = field(default_factory=set)
    in_flight: dict[bytes, int] = field(default_factory=dict)  # -> deadline
    deferred: dict[bytes, int] = field(default_factory=dict)  # -> due
    buried: set[bytes] = field(default_factory=set)
    attempts: dict[bytes, int] = field(default_factory=dict)
    least: dict[bytes, int] = field(default_factory=dict)  # failures for sure: it was requeued
    most: dict[bytes, int] = field(default_factory=dict)  # failures at most: it came back
    owner: dict[bytes, Client] = field(default_factory=dict)  # of the latest delivery
    kicked: set[bytes] = field(default_factory=set)  # ever: they are delivered for the first time anew
    paused: bool = False
    last_first: int = -1  # number of the message that was delivered first last: FIFO

    def owed(self) -> set[bytes]:
        return self.ready | set(self.in_flight) | set(self.deferred) | self.buried


class TopicMachine(RuleBasedStateMachine):
    """Hypothesis gives commands in any order to the topic and to its model."""

    def __init__(self) -> None:
        super().__init__()
        stored_extent.EXTENT_MESSAGES = 3  # so that extents come and go all the time
        self.node = Node()
        self.topic: Topic
        self.numbers = count()
        self.model: dict[str, ModelChannel] = {}
        self.backlog: list[tuple[bytes, int]] = []  # (body, due or 0) that no channel was given
        self.consumers: list[tuple[str, Client, Inbox]] = []
        self.deliveries: list[tuple[str, Client, Delivery]] = []  # what may still be in flight
        self.bodies: dict[bytes, bytes] = {}  # of all that was delivered, by id
        self.finished = 0
        self.node.after_turn = self.settle

    def teardown(self) -> None:
        stored_extent.EXTENT_MESSAGES = EXTENT_MESSAGES

    # commands

    @initialize(
        mem_queue_size=st.sampled_from([0, 2, 5, 1000]),
        max_attempts=st.sampled_from([0, 1, 1, 2]),
        requeue_on_disconnect=st.booleans(),
        topology_aware=st.booleans(),
        percentiles=st.sampled_from([(), (0.5,)]),
    )
    def limit(
        self,
        mem_queue_size: int,
        max_attempts: int,
        requeue_on_disconnect: bool,
        topology_aware: bool,
        percentiles: tuple[float, ...],
    ) -> None:
        self.node.broker.context.limits = Limits(
            mem_queue_size=mem_queue_size,
            max_attempts={"": max_attempts},
            requeue_on_disconnect=requeue_on_disconnect,
            topology_aware=topology_aware,
            latency_percentiles=percentiles,
        )
        self.topic = self.node.broker.topic("t")

    @rule(count=st.integers(7, 40))
    def publish_many(self, count: int) -> None:
        bodies = [b"%d." % next(self.numbers) for _ in range(count)]
        self.topic.publish(bodies, sum(map(len, bodies)))
        self.backlog += [(body, 0) for body in bodies]
        self.node.turn()

    @rule(sizes=st.lists(st.integers(1, 3), min_size=1, max_size=6))
    def publish(self, sizes: list[int]) -> None:
        bodies = [b"%d" % next(self.numbers) + b"." * size for size in sizes]
        self.topic.publish(bodies, sum(map(len, bodies)))
        self.backlog += [(body, 0) for body in bodies]
        self.node.turn()

    @rule(delay=st.integers(1, 3000))
    def publish_deferred(self, delay: int) -> None:
        body = b"%d" % next(self.numbers)
        self.topic.publish_deferred(body, self.node.now + delay * MS)
        self.backlog.append((body, self.node.now + delay * MS))
        self.node.turn()

    @rule(name=st.sampled_from("abc"))
    def create_channel(self, name: str) -> None:
        self.topic.channel(name)
        self.model.setdefault(name, ModelChannel())
        self.node.turn()

    @precondition(lambda self: self.model)
    @rule(data=st.data(), ready=st.integers(0, 8), distance=st.sampled_from([SAME_ZONE, SAME_REGION, ELSEWHERE]))
    def subscribe(self, data: st.DataObject, ready: int, distance: int) -> None:
        name = data.draw(st.sampled_from(sorted(self.model)))
        inbox = Inbox()
        consumer = Client(self.topic.channels[name], inbox, TIMEOUT, 0, distance)
        self.consumers.append((name, consumer, inbox))
        consumer.set_ready(ready)
        self.node.turn()

    @precondition(lambda self: self.consumers)
    @rule(data=st.data(), ready=st.integers(0, 8))
    def rdy(self, data: st.DataObject, ready: int) -> None:
        _, consumer, _ = data.draw(st.sampled_from(self.consumers))
        consumer.set_ready(ready)
        self.node.turn()

    @precondition(lambda self: self.consumers)
    @rule(data=st.data())
    def disconnect(self, data: st.DataObject) -> None:
        name, consumer, _ = entry = data.draw(st.sampled_from(self.consumers))
        consumer.leave(self.node.broker)
        self.consumers.remove(entry)
        channel = self.model[name]
        if self.node.broker.context.limits.requeue_on_disconnect:
            for body in [body for body in channel.in_flight if channel.owner[body] is consumer]:
                del channel.in_flight[body]
                self._handed_back(channel, body)
            self._take_graves()
        self.node.turn()

    @precondition(lambda self: self.deliveries)
    @rule(data=st.data(), many=st.integers(1, 6))
    def finish(self, data: st.DataObject, many: int) -> None:
        at = data.draw(st.integers(0, len(self.deliveries) - 1))
        name, consumer, _ = self.deliveries[at]
        mine = {entry[2].id: entry for entry in reversed(self.deliveries[at:]) if entry[1] is consumer}
        chosen = list(mine.values())[-many:][::-1]  # each message once, however often it was delivered
        failed = {message_id for message_id, _ in consumer.finish(b"".join(entry[2].id for entry in chosen))}
        for entry in chosen:
            body = entry[2].body
            assert (entry[2].id in failed) == (not self.owns(entry)) or self.overdue(entry)
            if entry[2].id not in failed:
                del self.model[name].in_flight[body]
                self.finished += 1
            self.deliveries.remove(entry)
        self.node.turn()

    @precondition(lambda self: self.deliveries)
    @rule(data=st.data(), delay=st.sampled_from([0, 0, 100, 1500]), many=st.integers(1, 4))
    def requeue(self, data: st.DataObject, delay: int, many: int) -> None:
        at = data.draw(st.integers(0, len(self.deliveries) - 1))
        consumer = self.deliveries[at][1]
        for entry in [entry for entry in self.deliveries[at:] if entry[1] is consumer][:many]:
            self._requeue(entry, delay)
        self.node.turn()

    def _requeue(self, entry: tuple[str, Client, Delivery], delay: int) -> None:
        name, consumer, delivery = entry
        done = consumer.requeue(delivery.id, delay * MS, self.node.now) == ""
        assert done == self.owns(entry) or self.overdue(entry)
        if done:
            channel = self.model[name]
            del channel.in_flight[delivery.body]
            channel.least[delivery.body] = channel.least.get(delivery.body, 0) + 1
            self._handed_back(channel, delivery.body)
            self._take_graves()
            if delay and delivery.body not in channel.buried:
                channel.ready.remove(delivery.body)
                channel.deferred[delivery.body] = self.node.now + delay * MS
        self.deliveries.remove(entry)

    @precondition(lambda self: self.connected_deliveries())
    @rule(data=st.data())
    def touch(self, data: st.DataObject) -> None:
        entry = data.draw(st.sampled_from(self.connected_deliveries()))
        name, consumer, delivery = entry
        done = consumer.touch(delivery.id, TIMEOUT, 100 * SECOND, self.node.now) == ""
        assert done == self.owns(entry) or self.overdue(entry)
        if done:
            self.model[name].in_flight[delivery.body] = self.node.now + TIMEOUT
        self.node.turn()

    @precondition(lambda self: self.graves())
    @rule(data=st.data(), many=st.integers(1, 4), kick=st.booleans())
    def dig_up(self, data: st.DataObject, many: int, kick: bool) -> None:
        """Kick some, or finish them; some are named twice, and some are not buried."""
        name, message_id = data.draw(st.sampled_from(self.graves()))
        channel, model = self.topic.channels[name], self.model[name]
        chosen = [message_id, *(found for found, _ in channel.buried.after(message_id, many - 1))]
        named = [b"0123456789abcdef", *chosen, chosen[0]]
        assert (actions.kick if kick else actions.finish_buried)(channel, named) == len(chosen)
        for body in map(self.bodies.__getitem__, chosen):
            model.buried.discard(body)
            model.in_flight.pop(body, None)  # it has timed out, and the model was about to see it
            if kick:
                model.ready.add(body)
                model.attempts[body] = model.least[body] = model.most[body] = 0
                model.kicked.add(body)
        self.node.turn()

    @rule(ms=st.integers(1, 2500))
    def wait(self, ms: int) -> None:
        self.node.advance(ms * MS)

    @precondition(lambda self: self.model)
    @rule(data=st.data())
    def pause_channel(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.model)))
        channel = self.model[name]
        channel.paused = not channel.paused
        self.node.broker.pause(self.topic.channels[name], channel.paused)
        self.node.turn()

    @rule()
    def pause_topic(self) -> None:
        self.node.broker.pause(self.topic, not self.topic.paused)
        self.node.turn()

    @precondition(lambda self: self.model)
    @rule(data=st.data())
    def empty_channel(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.model)))
        self.topic.channels[name].empty()
        channel = self.model[name]
        channel.ready.clear()
        channel.in_flight.clear()
        channel.deferred.clear()
        channel.buried.clear()
        self.node.turn()

    @rule()
    def empty_topic(self) -> None:
        self.topic.empty()
        self.backlog.clear()
        self.node.turn()

    @precondition(lambda self: self.model)
    @rule(data=st.data())
    def delete_channel(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.model)))
        self.topic.delete_channel(name)
        del self.model[name]
        self.consumers = [entry for entry in self.consumers if entry[0] != name]
        self.deliveries = [entry for entry in self.deliveries if entry[0] != name]
        self.node.turn()

    # the model's own laws

    def connected_deliveries(self) -> list[tuple[str, Client, Delivery]]:
        """Those whose consumer is still there: nobody else can touch them."""
        present = {id(consumer) for _, consumer, _ in self.consumers}
        return [entry for entry in self.deliveries if id(entry[1]) in present]

    def graves(self) -> list[tuple[str, bytes]]:
        """(channel, id) of all that is buried."""
        return [(name, found) for name in self.model for found in self.topic.channels[name].buried.oldest(1000)]

    def owns(self, entry: tuple[str, Client, Delivery]) -> bool:
        """True if that very delivery is still in flight."""
        name, consumer, delivery = entry
        channel = self.model[name]
        latest = [e for e in self.deliveries if e[0] == name and e[2].body == delivery.body][-1]
        mine = latest[1] is consumer  # the id is the same for all attempts: only the owner counts
        return mine and delivery.body in channel.in_flight

    def overdue(self, entry: tuple[str, Client, Delivery]) -> bool:
        """True if its time-out has passed, but the scan may not have seen it: both answers are right."""
        deadline = self.model[entry[0]].in_flight.get(entry[2].body)
        return deadline is not None and deadline <= self.node.now

    def _handed_back(self, channel: ModelChannel, body: bytes) -> None:
        """It was in flight, and is not any more: it is ready, or `_take_graves` finds it."""
        channel.most[body] = channel.most.get(body, 0) + 1
        channel.ready.add(body)

    def _take_graves(self) -> None:
        """Take over what the node has buried, if it may have, and see that it has buried what it must."""
        limit = self.node.broker.context.limits.attempts("t")
        for name, model in self.model.items():
            letters = {self.bodies[found]: one for found, one in self.topic.channels[name].buried.items()}
            for body in letters.keys() - model.buried:
                if model.in_flight.pop(body, None) is not None:  # the model was about to see its time-out
                    model.most[body] = model.most.get(body, 0) + 1
                assert 0 < limit <= model.most[body]
                assert model.least.get(body, 0) <= letters[body].failures <= model.most[body] <= letters[body].attempts
                model.ready.discard(body)
                model.buried.add(body)
            assert model.buried <= letters.keys()
            assert not any(0 < limit <= model.least.get(body, 0) for body in model.ready)

    def settle(self) -> None:
        """The node has done what it can: move the model accordingly."""
        self._distribute()
        came = [(name, consumer, item) for name, consumer, inbox in self.consumers for item in inbox.take()]
        for name, consumer, delivery in sorted(came, key=lambda entry: entry[2].number):
            self._delivered(name, consumer, delivery)
        self._expire()

    def _distribute(self) -> None:
        if self.model and not self.topic.paused:
            for body, due in self.backlog:
                for channel in self.model.values():
                    if due > self.node.now:
                        channel.deferred[body] = due
                    elif due:
                        channel.deferred[body] = self.node.now
                    else:
                        channel.ready.add(body)
            self.backlog.clear()

    def _delivered(self, name: str, consumer: Client, delivery: Delivery) -> None:
        channel, body, now = self.model[name], delivery.body, self.node.now
        assert not channel.paused or body in channel.ready | set(channel.in_flight) | set(channel.deferred)
        was_deferred = channel.deferred.pop(body, None)
        assert was_deferred is None or was_deferred <= now  # never early
        deadline = channel.in_flight.get(body)
        assert deadline is None or deadline <= now  # never twice at once
        assert was_deferred is not None or deadline is not None or body in channel.ready
        if deadline is not None:  # it came back, and is delivered again
            channel.most[body] = channel.most.get(body, 0) + 1
        self.bodies[delivery.id] = body
        channel.owner[body] = consumer
        channel.ready.discard(body)
        attempts = channel.attempts.get(body, 0) + 1
        assert delivery.attempts == attempts
        channel.attempts[body] = attempts
        number = int(body.rstrip(b"."))
        if attempts == 1 and body.endswith(b".") and body not in channel.kicked:  # published without a delay: in order
            assert number > channel.last_first
            channel.last_first = number
        channel.in_flight[body] = now + TIMEOUT
        self.deliveries.append((name, consumer, delivery))

    def _expire(self) -> None:
        """What is overdue beyond the grace is ready again; the invariant sees to the numbers."""
        now = self.node.now
        for channel in self.model.values():
            for body in [body for body, due in channel.deferred.items() if due + GRACE <= now]:
                del channel.deferred[body]
                channel.ready.add(body)
            for body in [body for body, due in channel.in_flight.items() if due + GRACE <= now]:
                del channel.in_flight[body]
                self._handed_back(channel, body)
        self._take_graves()

    @invariant()
    def agrees(self) -> None:
        self.node.broker.check()
        owed: set[bytes] = {body for body, _ in self.backlog}
        for name, model in self.model.items():
            channel = self.topic.channels[name]
            total = channel.depth + channel.in_flight_count + channel.deferred_count + len(channel.buried)
            assert total == len(model.owed())
            if all(due > self.node.now or due + GRACE <= self.node.now for due in model.in_flight.values()):
                assert channel.in_flight_count == len(model.in_flight)
                assert {self.bodies[found] for found in channel.buried.oldest(1000)} == model.buried
            owed |= model.owed()
        for _, consumer, inbox in self.consumers:
            is_ready = consumer.consumer in consumer.channel.dispatch.ready
            assert (consumer.ready > consumer.in_flight and inbox.room() > 0) == is_ready
        assert self.topic.depth == len(self.backlog)
        assert self.node.held() == len(owed)
        assert self.node.broker.context.latencies.count == (
            self.finished if self.node.broker.context.limits.latency_percentiles else 0
        )


TestTopic = TopicMachine.TestCase
TestTopic.settings = settings(max_examples=tries(EXAMPLES, in_short=8), stateful_step_count=40, deadline=None)

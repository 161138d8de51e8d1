"""Priorities: which message comes next, and random lives of a node against a model of all that is ready."""

import pytest

from nsqd.core.channel import actions, priorities
from nsqd.core.channel.priorities import AHEAD_AT_DELIVERY, SHARE, PriorityBacklog
from nsqd.core.limits import Limits
from nsqd.core.message.attributes import Attributes
from nsqd.core.observation.backlog_age import oldest_of_channel
from penstock.protocol.headers import USUAL_PRIORITY
from shared.retry import Retry
from shared.topic_config import OnExpire, Ordering, Overflow, TopicConfig
from tests.cases import each
from tests.effort import seeds
from tests.nsqd.core.channel.life import TIMEOUT, Life
from tests.nsqd.core.node import MS, SECOND, Node, bodies, ids
from tests.nsqd.core.promoted import PromotedLog
from tests.nsqd.storage.sim_node import SimNode, run_seeds

BY_PRIORITY = TopicConfig(ordering=Ordering.PRIORITY)


def of_priority(priority: str) -> Attributes:
    return Attributes(headers=(("priority", priority),) if priority else ())


def publish(node: Node | SimNode, *messages: str) -> None:
    """Publish messages such as "0a", of the priority before the letter; "a" has no header."""
    for message in messages:
        attributes = of_priority(message.rstrip("abcdefghij"))
        node.broker.topics["t"].intake.publish_with([message.encode()], attributes)
        node.turn()


def filled(*messages: str, config: TopicConfig = BY_PRIORITY) -> Node:
    node = Node()
    topic = node.broker.topic("t")
    topic.configure(config)
    topic.channel("c")
    publish(node, *messages)
    return node


def drain(node: Node, window: int = 1) -> list[str]:
    """Deliver and finish everything, `window` messages at a time."""
    client, inbox = node.subscribe("t", "c", window)
    found: list[str] = []
    while came := inbox.take():
        found += [one.body.decode() for one in came]
        client.finish(ids(came))
        node.turn()
    node.broker.check()
    assert (client.channel.counts(), node.held()) == ((0, 0, 0, 0), 0)
    client.leave(node.broker)
    return found


@each("messages, order", [
    ("a b 9a 0a c 9b 0b 1a", "0a 0b 1a a b c 9a 9b"),
    ("a 5a 4a 6a b", "4a a 5a b 6a"),
    ("-1a 10b xc 00d 0.5e a", "-1a 10b xc 00d 0.5e a"),  # no priorities
    ("9a 8a 9b 8b", "8a 8b 9a 9b"),
])  # fmt: skip
def test_the_most_urgent_message_comes_first_and_equal_ones_as_published(messages: str, order: str) -> None:
    for window in (1, 3, 100):
        assert drain(filled(*messages.split()), window) == order.split()


@pytest.mark.parametrize("back", ["requeue", "time out", "leave", "kick", "retry", "release"])
def test_a_message_that_comes_back_keeps_its_priority(back: str) -> None:
    config = TopicConfig(
        ordering=Ordering.PRIORITY,
        retry=Retry(SECOND, SECOND) if back == "retry" else None,
        max_attempts=1 if back == "kick" else None,
    )
    node = filled("0a", "0b", "a", "9a", config=config)
    client, inbox = node.subscribe("t", "c", 1, TIMEOUT)
    (first,) = inbox.take()
    client.set_ready(0)
    if back == "leave":
        client.leave(node.broker)
        node.advance(TIMEOUT + 50 * MS)
    elif back == "time out":
        node.advance(TIMEOUT + 50 * MS)
    else:
        client.requeue(first.id, SECOND if back == "release" else 0, node.now)
        node.advance(SECOND + 50 * MS)
    if back == "kick":
        actions.kick(client.channel, client.channel.buried.oldest(1))
    node.turn()
    assert drain(node) == ["0b", "0a", "a", "9a"]


def test_one_delivery_in_sixteen_is_that_of_the_message_that_has_been_ready_longest() -> None:
    node = filled("9a", "a", "b", *["0a"] * 50, "8b")
    order = drain(node)
    assert [order.index(late) for late in ("9a", "a", "b")] == [15, 31, 47]
    assert order[-1] == "8b"


def test_an_urgent_message_that_is_requeued_forever_does_not_starve_the_others() -> None:
    node = filled("0a", "a", "9a", "b")
    client, inbox = node.subscribe("t", "c", 1)
    found: list[bytes] = []
    for _ in range(4 * SHARE):
        (one,) = inbox.take()
        found.append(one.body)
        if one.body == b"0a":
            client.requeue(one.id, 0, node.now)
        else:
            client.finish(one.id)
        node.turn()
    assert [body for body in found if body != b"0a"] == [b"a", b"9a", b"b"]


def test_queued_messages_can_be_listed_finished_moved_emptied_and_delivered_without_order() -> None:
    node = filled("9a", "a", "0a", "0b", "0c", "8a")
    client, _ = node.subscribe("t", "c", 0)
    channel, topic = client.channel, node.broker.topics["t"]
    assert [message.ordinal for message in channel.backlog.returned()] == [2, 3, 4]
    chosen = [actions.ChosenMessage(ordinal, topic.frame(ordinal)[18:34]) for ordinal in (0, 2, 3)]
    assert actions.finish(topic.distribution, channel, chosen[1:2]) == 1
    assert actions.requeue(topic.distribution, channel, chosen[::2], 0, node.now) == 2
    assert channel.counts() == (5, 0, 0, 0)
    client.leave(node.broker)
    assert drain(node) == ["0c", "0b", "a", "8a", "9a"]
    publish(node, "9a", "a", "0a")
    topic.configure(TopicConfig())
    publish(node, "0b")
    assert drain(node) == ["0a", "9a", "a", "0b"]
    topic.configure(BY_PRIORITY)
    publish(node, "9a", "a", "0a")
    channel.empty()
    node.turn()
    assert drain(node) == []


def test_messages_that_were_there_before_the_setting_are_ordered_too() -> None:
    node = filled("9a", "a", "0a", config=TopicConfig())
    client, inbox = node.subscribe("t", "c", 1)
    client.requeue(ids(inbox.take()), 0, node.now)
    client.leave(node.broker)
    node.broker.topics["t"].configure(BY_PRIORITY)
    assert drain(node) == ["0a", "a", "9a"]


def test_many_messages_that_came_back_are_sorted_bit_by_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(priorities, "SORTED_AT_ONCE", 2)
    node = filled("7a", "a", "0a", "6a", "1a")
    client, inbox = node.subscribe("t", "c", 5)
    taken = inbox.take()
    client.set_ready(0)
    for one in taken:
        client.requeue(one.id, 0, node.now)
    client.set_ready(1)
    backlog = client.channel.backlog
    assert isinstance(backlog, PriorityBacklog)
    left = []
    for _ in range(3):
        node.broker.serve()
        left.append(len(backlog._unsorted))
    assert (left, bodies(inbox.take())) == ([3, 1, 0], [b"0a"])
    client.set_ready(5)
    node.turn()
    assert bodies(inbox.take()) == [b"1a", b"a", b"6a", b"7a"]
    node.broker.check()


@each("most", [1, 2, 5])
def test_beyond_the_bounds_messages_stay_in_the_sequence_and_keep_their_order(most: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(priorities, "MOST_URGENT", most)
        patch.setattr(priorities, "MOST_LATE", most)
        letters = "abcdefghij"
        node = filled(*(f"{priority}{letter}" for letter in letters for priority in ("9", "", "0")))
        backlog = node.broker.topics["t"].channels["c"].backlog
        assert isinstance(backlog, PriorityBacklog)
        assert backlog.queued_count == most
        order = drain(node)
        for priority in ("9", "", "0"):
            assert [one for one in order if one.rstrip(letters) == priority] == [f"{priority}{one}" for one in letters]
        assert order[0] == "0a"


@each("config, left", [
    (TopicConfig(ordering=Ordering.PRIORITY, max_length=3, overflow=Overflow.DROP_OLDEST), ["0b", "0c", "0d"]),
    (TopicConfig(ordering=Ordering.PRIORITY, ttl=5 * SECOND), []),
    (TopicConfig(ordering=Ordering.PRIORITY, ttl=5 * SECOND, on_expire=OnExpire.BURY), []),
])  # fmt: skip
def test_messages_are_dropped_from_the_queues_too(config: TopicConfig, left: list[str]) -> None:
    node = filled("9a", "a", "0a", "0b", "0c", "0d", config=config)
    if config.ttl:
        node.advance(8 * SECOND)
        ready = 6 if config.on_expire is OnExpire.BURY else 0
        assert node.broker.topics["t"].channels["c"].counts()[0] == ready
    client, inbox = node.subscribe("t", "c", 10)
    assert [one.body.decode() for one in inbox.take()] == left
    node.turn()
    assert client.channel.counts()[0] == 0
    node.broker.check()


@each("headers", ["none", "others", "urgent last", "urgent far apart"])
def test_a_backlog_from_before_the_setting_is_searched_while_it_is_delivered(headers: str) -> None:
    node = filled(config=TopicConfig())
    topic = node.broker.topics["t"]
    other = Attributes(headers=(("other", "x"),))
    for number in range(20):
        batch = [b"%d" % (number * 300 + place) for place in range(300)]
        topic.intake.publish_with(batch, other if headers != "none" else Attributes())
        node.turn()
        if headers == "urgent far apart" and number % 4 == 3:
            publish(node, "0a")
    if headers == "urgent last":
        publish(node, "0b")
    topic.configure(BY_PRIORITY)
    order = drain(node)
    urgent = [place for place, body in enumerate(order) if body in ("0a", "0b")]
    assert len(urgent) == {"urgent last": 1, "urgent far apart": 5}.get(headers, 0)
    assert max(urgent, default=0) <= 6000 // AHEAD_AT_DELIVERY
    assert [body for body in order if body not in ("0a", "0b")] == [str(number) for number in range(6000)]


def test_the_age_of_the_backlog_is_that_of_the_oldest_message_also_if_urgent_ones_pass_it() -> None:
    node = filled("9a", "a")
    client, inbox = node.subscribe("t", "c", 1)
    inbox.take()
    node.now += SECOND
    publish(node, "0a")
    channel = client.channel
    assert oldest_of_channel(channel) == channel.backlog.extents.published(0)


def test_a_bounded_channel_drops_the_newest_and_one_that_a_publish_leaves_out_never_gets_it() -> None:
    node = Node(Limits(mem_queue_size=3))
    topic = node.broker.topic("t")
    topic.configure(BY_PRIORITY)
    channel, other = topic.channel("c#ephemeral"), topic.channel("c")
    publish(node, "9a", "0a", "b")
    topic.publish_to(other, [b"0c"], of_priority("0"))
    publish(node, "0d", "1e")
    assert (channel.counts(), channel.dropped_count) == ((3, 0, 0, 0), 2)
    client, inbox = node.subscribe("t", "c#ephemeral", 10)
    assert bodies(inbox.take()) == [b"0a", b"b", b"9a"]
    node.broker.check()
    client.leave(node.broker)
    assert drain(node) == ["0a", "0c", "0d", "1e", "b", "9a"]


def test_a_shard_delivers_by_priority_too() -> None:
    node = filled()
    log = PromotedLog(node, 2)
    log.channels("t", "c")
    log.broker.topics["t"].configure(BY_PRIORITY)
    for priority in ("9", "", "0"):
        log.broker.topics["t"].intake.publish_with([f"{priority}a".encode()], of_priority(priority))
        log.publish("t", b"-")
    log.attach()
    assert [body for body in drain(node) if body != "-"] == ["0a", "a", "9a"]


class PriorityLife(Life):
    """Random publishes, and one consumer: nothing may pass a more urgent message.

    `ready` are the messages that certainly are: never delivered, requeued without a delay, or unfinished before a kill.
    """

    most_clients = 1

    def __init__(self, seed: int) -> None:
        self.published: dict[bytes, int] = {}  # -> priority
        self.fresh: set[bytes] = set()  # never delivered
        self.since = SHARE  # deliveries since one that passed a more urgent message
        super().__init__(seed)

    def choose_config(self) -> TopicConfig:
        choice = self.random.choice
        return TopicConfig(
            ordering=Ordering.PRIORITY, retry=choice((None, Retry(SECOND, SECOND))), concurrency=choice((None, 3)),
            max_attempts=choice((None, 2)),
        )  # fmt: skip

    def start(self) -> None:
        super().start()
        self.ready = self.published.keys() - self.ended

    def run(self) -> None:
        usual = *[self.publish] * 2, self.subscribe, *[self.answer] * 2, self.wait, self.kill, self.kick
        self.live(150, *usual)
        self.end(self.kick)

    def all(self) -> dict[bytes, int]:
        return self.published

    def publish(self) -> None:
        priority, count = self.random.choice(("0", "4", "", "", "", "7", "9")), self.random.choice((1, 1, 3, 20))
        new = [b"%d" % (len(self.published) + number) for number in range(count)]
        self.published |= dict.fromkeys(new, int(priority or USUAL_PRIORITY))
        self.fresh.update(new)
        self.ready.update(new)
        self.node.broker.topics["t"].intake.publish_with(new, of_priority(priority))
        self.node.turn()

    def answer(self) -> None:
        if self.taken:
            client, one = self.taken.pop(self.random.randrange(len(self.taken)))
            delay = self.random.choice((0, 0, SECOND))
            if self.random.random() < 0.6:
                self.finish(client, one)
            else:
                client.requeue(one.id, delay, self.clock.now)
            self.node.turn()

    def kick(self) -> None:
        channel = self.node.broker.topics["t"].channels["c"]
        actions.kick(channel, channel.buried.oldest(5))
        self.node.turn()

    def restart(self) -> None:
        channel = self.node.broker.topics["t"].channels["c"]
        has_unready = channel.deferred_count > 0 or bool(channel.buried)
        super().restart()
        if has_unready:
            self.ready &= self.fresh

    def look(self) -> None:
        self.node.advance(0)
        for client, one in [(client, one) for client, inbox in self.clients for one in inbox.take()]:
            priority, number = self.published[one.body], int(one.body)
            self.ready.discard(one.body)
            assert one.body not in self.ended
            passed = [other for other in self.ready if self.published[other] < priority]
            if passed:
                assert self.since >= SHARE - 1, f"{one.body!r} passes {passed[:9]}"
            self.since = 0 if passed else self.since + 1
            if one.body in self.fresh:
                earlier = [other for other in self.fresh if self.published[other] == priority and int(other) < number]
                assert not earlier, f"{one.body!r} passes {earlier[:9]} of its priority"
            self.fresh.discard(one.body)
            self.taken.append((client, one))


def test_messages_come_by_priority_over_kills_and_timeouts() -> None:
    for _ in run_seeds(PriorityLife, seeds(300, in_short=25)):
        pass

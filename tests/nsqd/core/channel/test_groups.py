"""Ordered groups: which message may be delivered, and random lives of a node against a model of each group."""

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsqd.core.channel import actions, groups
from nsqd.core.channel.backlog import Backlog
from nsqd.core.channel.groups import GroupedBacklog
from nsqd.core.channel.listing import MessageState
from nsqd.core.limits import Limits
from nsqd.core.message.attributes import Attributes
from nsqd.core.sequence.extent import Extent
from nsqd.storage import stored_extent
from shared.retry import Retry
from shared.topic_config import OnBury, Ordering, TopicConfig
from tests.cases import each
from tests.effort import seeds
from tests.nsqd.core.channel.life import TIMEOUT, Life
from tests.nsqd.core.client import Client
from tests.nsqd.core.listed import listed
from tests.nsqd.core.node import MS, SECOND, Delivery, Node, bodies, ids
from tests.nsqd.core.promoted import PromotedLog
from tests.nsqd.storage.sim_node import SimNode, run_seeds

ORDERED = TopicConfig(ordering=Ordering.GROUP)


def of_group(group: str) -> Attributes:
    return Attributes(headers=(("group", group),) if group else (("other", "x"),))


def filled(*messages: str, config: TopicConfig = ORDERED, limits: Limits | None = None) -> Node:
    """Messages such as "a1", of the group before their number."""
    node = Node(limits)
    topic = node.broker.topic("t")
    topic.configure(config)
    topic.channel("c")
    for message in messages:
        topic.intake.publish_with([message.encode()], of_group(message.rstrip("0123456789")))
    node.turn()
    return node


def backlog_of(node: Node | SimNode) -> GroupedBacklog:
    backlog = node.broker.topics["t"].channels["c"].backlog
    assert isinstance(backlog, GroupedBacklog)
    return backlog


def test_groups_pass_each_other_and_one_message_of_each_is_out() -> None:
    node = filled("a1", "a2", "b1", "1", "2", "a3", "b2")
    client, inbox = node.subscribe("t", "c", 10)
    first = inbox.take()
    assert bodies(first) == [b"a1", b"b1", b"1", b"2"]
    channel = client.channel
    assert (channel.counts(), backlog_of(node).held_count) == ((3, 4, 0, 0), 3)
    found, _ = listed(channel, MessageState.IN_FLIGHT, "2", 9)
    assert [one.ordinal for one in found] == [3, 4] == [ordinal for ordinal, _ in channel.in_flight.spans()][2:]
    delays = node.broker.topics["t"].distribution
    assert actions.finish(delays, channel, [actions.ChosenMessage(4, first[3].id)]) == 1
    client.finish(first[0].id)
    node.turn()
    (second,) = inbox.take()
    assert second.body == b"a2"
    client.finish(second.id + first[1].id)
    node.turn()
    assert sorted(bodies(inbox.take())) == [b"a3", b"b2"]
    node.broker.check()


@each("limits", [Limits(), Limits(latency_percentiles=(0.5,))])
@each("touched", range(4))
@each("extent_messages", [2, 1024])
def test_messages_of_many_groups_are_delivered_and_finished_together(
    limits: Limits, touched: int, extent_messages: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stored_extent, "EXTENT_MESSAGES", extent_messages)
    node = filled("a1", "b1", "a2", "1", "b2", "c1", "a3", "b3", "c2", limits=limits)
    client, inbox = node.subscribe("t", "c")
    client.consumer.takes_headers = True
    client.set_ready(10)
    for came in ({b"a1", b"b1", b"1", b"c1"}, {b"a2", b"b2", b"c2"}, {b"a3", b"b3"}):
        node.turn()
        frames, inbox.frames = inbox.frames, []
        starts = [38 + int.from_bytes(frame[34:38], "big") for frame in frames]
        assert {frame[start:] for frame, start in zip(frames, starts, strict=True)} == came
        names = [frame[18:34] for frame in frames]
        names.append(names.pop(touched % len(names)))
        client.touch(names[-1], TIMEOUT, 9 * TIMEOUT, node.now)
        node.broker.check()
        assert client.finish(b"".join(names)) == []
    node.turn()
    assert client.channel.counts() == (0, 0, 0, 0)
    node.broker.check()


@each("way", ["requeue", "later", "retry", "time out", "leave"])
def test_a_message_that_comes_back_keeps_its_group_waiting(way: str) -> None:
    config = TopicConfig(ordering=Ordering.GROUP, retry=Retry(SECOND, SECOND) if way == "retry" else None)
    node = filled("a1", "a2", "b1", config=config)
    client, inbox = node.subscribe("t", "c", 10, TIMEOUT)
    first, _ = inbox.take()
    if way in ("requeue", "retry", "later"):
        client.requeue(first.id, SECOND if way == "later" else 0, node.now)
    elif way == "leave":
        client.leave(node.broker)
        client, inbox = node.subscribe("t", "c", 10, TIMEOUT)
    node.turn()
    came = bodies(inbox.take())
    if way != "requeue":
        assert came == []
        node.advance(TIMEOUT + 50 * MS)
        came = [body for body in bodies(inbox.take()) if body != b"b1"]
    assert came == [b"a1"]


@each("on_bury, next_one", [(OnBury.SKIP, [b"a2"]), (OnBury.HOLD, [])])
def test_a_burial_lets_the_group_go_on_or_holds_it_until_an_operator_acts(
    on_bury: OnBury, next_one: list[bytes]
) -> None:
    config = TopicConfig(ordering=Ordering.GROUP, on_bury=on_bury, max_attempts=1)
    node = filled("a1", "a2", config=config)
    client, inbox = node.subscribe("t", "c", 10)
    client.requeue(ids(inbox.take()), 0, node.now)
    node.turn()
    came = inbox.take()
    assert bodies(came) == next_one
    client.finish(ids(came))
    actions.finish_buried(client.channel, client.channel.buried.oldest(1))
    node.turn()
    assert bodies(inbox.take()) == ([] if next_one else [b"a2"])


def test_a_group_that_is_held_goes_on_when_the_setting_says_skip_and_when_the_message_is_kicked() -> None:
    config = TopicConfig(ordering=Ordering.GROUP, on_bury=OnBury.HOLD, max_attempts=1)
    for kick in (True, False):
        node = filled("a1", "a2", config=config)
        client, inbox = node.subscribe("t", "c", 10)
        client.requeue(ids(inbox.take()), 0, node.now)
        if kick:
            actions.kick(client.channel, client.channel.buried.oldest(1))
        else:
            node.broker.topics["t"].configure(ORDERED)
        node.turn()
        assert bodies(inbox.take()) == [b"a1" if kick else b"a2"]


def test_a_group_with_a_buried_message_waits_when_the_setting_says_hold() -> None:
    config = TopicConfig(ordering=Ordering.GROUP, max_attempts=1)
    node = filled("a1", "a2", "a3", "b1", config=config)
    client, inbox = node.subscribe("t", "c", 1)
    client.requeue(ids(inbox.take()), 0, node.now)
    node.turn()
    a2 = inbox.take()
    node.broker.topics["t"].configure(replace(config, on_bury=OnBury.HOLD))
    client.finish(ids(a2))
    node.turn()
    b1 = inbox.take()
    assert bodies([*a2, *b1]) == [b"a2", b"b1"]
    client.finish(ids(b1))
    actions.finish_buried(client.channel, client.channel.buried.oldest(1))
    node.turn()
    assert bodies(inbox.take()) == [b"a3"]
    node.broker.check()


def test_what_is_held_back_can_be_listed_finished_emptied_and_delivered_without_order() -> None:
    node = filled("a1", "a2", "a3", "a4", "b1")
    client, inbox = node.subscribe("t", "c", 10)
    inbox.take()
    channel, topic = client.channel, node.broker.topics["t"]
    assert [message.ordinal for message in channel.backlog.returned()] == [1, 2, 3]
    chosen = [actions.ChosenMessage(2, topic.frame(2)[18:34])]
    assert actions.finish(topic.distribution, channel, chosen) == 1
    assert channel.counts() == (2, 2, 0, 0)
    topic.configure(TopicConfig())
    node.turn()
    assert bodies(inbox.take()) == [b"a2", b"a4"]
    topic.configure(ORDERED)
    for number in range(3):
        topic.intake.publish_with([b"%d" % number], of_group("a"))
    node.turn()
    assert inbox.take() == []  # a1, a2 and a4 were out before
    channel.empty()
    node.turn()
    assert (channel.counts(), node.held()) == ((0, 0, 0, 0), 0)
    node.broker.check()


def test_a_group_waits_for_all_that_was_in_flight_and_what_came_back_is_in_order_when_the_setting_is_turned_on() -> (
    None
):
    node = filled("a1", "a2", "a3", "a4", "a5", config=TopicConfig())
    client, inbox = node.subscribe("t", "c", 4)
    a1, a2, a3, a4 = inbox.take()
    client.set_ready(0)
    for one in (a4, a3):
        client.requeue(one.id, 0, node.now)
    node.broker.topics["t"].configure(ORDERED)
    client.set_ready(9)
    node.turn()
    client.finish(a1.id)
    node.turn()
    assert inbox.take() == []  # a2 is in flight
    client.finish(a2.id)
    for number in (3, 4, 5):
        node.turn()
        (taken,) = inbox.take()
        assert taken.body == b"a%d" % number
        client.finish(taken.id)
    node.broker.check()


def test_a_message_that_ends_before_its_group_is_read_holds_nothing_back() -> None:
    node = filled("a1", "a2", "a3", config=TopicConfig())
    client, inbox = node.subscribe("t", "c", 1)
    (taken,) = inbox.take()
    client.set_ready(0)
    node.broker.topics["t"].configure(ORDERED)
    client.finish(taken.id)
    client.set_ready(1)
    node.turn()
    assert bodies(inbox.take()) == [b"a2"]


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 3), st.sampled_from(("", "a", "b" * 40))), max_size=6))
def test_the_groups_of_many_messages_are_read_as_of_each_message(stretches: list[tuple[int, int, str]]) -> None:
    extent, end = Extent(5, False), 5
    for gap, count, group in stretches:
        extent.keep_headers(end + gap, end + gap + count, of_group(group).pack(end + gap))
        end += gap + count
    for first in range(5, end + 2):
        each_one = [extent.group_of(ordinal) for ordinal in range(first, end + 2)]
        for count in range(1, len(each_one) + 1):
            assert extent.groups(first, first + count) == each_one[:count]


class Unread(dict[int, None]):
    """Ordinals that can be found, but not gone through."""

    __iter__ = None  # type: ignore[assignment]


def test_the_groups_of_what_is_in_flight_are_read_bit_by_bit_and_what_ends_costs_no_look_at_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(groups, "HEADS_AT_ONCE", 2)
    node = filled(*(f"{group}1" for group in "abcdefg"), "a2", "h1", config=TopicConfig())
    client, inbox = node.subscribe("t", "c", 7)
    taken = inbox.take()
    node.broker.topics["t"].configure(ORDERED)
    backlog = backlog_of(node)
    backlog._unknown = Unread(backlog._unknown)
    client.finish(taken[6].id)
    left = [len(backlog._unknown)]
    while backlog._unknown:
        node.broker.serve()
        left.append(len(backlog._unknown))
    node.turn()
    assert (left, bodies(inbox.take())) == ([6, 4, 2, 0], [b"h1"])
    node.broker.check()


def test_no_more_are_held_back_than_the_limit_and_the_rest_stays_in_the_sequence(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(groups, "MOST_HELD", 150)
    node = filled(*(f"a{number}" for number in range(400)), "b1")
    asked, is_full = Counter[Backlog](), groups.is_full
    monkeypatch.setattr(groups, "is_full", lambda backlog: (asked.update([backlog]), is_full(backlog))[1])
    client, inbox = node.subscribe("t", "c", 10)
    assert backlog_of(node).held_count == 150
    assert asked.total() < groups.LOOKED_AT_ONCE, "the rest is not looked at again and again"
    for number in range(400):
        (taken,) = [one for one in inbox.take() if one.body != b"b1"]
        assert taken.body == b"a%d" % number
        client.finish(taken.id)
        node.turn()
    assert client.channel.counts() == (0, 1, 0, 0)


def test_groups_of_a_promoted_log_are_in_order_too() -> None:
    node = filled("a1")
    promoted = PromotedLog(node, 9)
    promoted.channels("t", "c")
    promoted.broker.topics["t"].configure(ORDERED)
    for message in ("b1", "b2", "b3", "c1"):
        promoted.publish("t", message.encode(), attributes=of_group(message[0]))
    promoted.attach()
    client, inbox = node.subscribe("t", "c", 10)
    came: list[bytes] = []
    while taken := inbox.take():
        came += bodies(taken)
        assert client.finish(ids(taken)) == []
        node.turn()
    assert (sorted(came[:3]), came[3:]) == ([b"a1", b"b1", b"c1"], [b"b2", b"b3"])


class GroupLife(Life):
    """Random clients, and a model: the messages of each group that are out or done."""

    def __init__(self, seed: int) -> None:
        self.published: dict[str, list[bytes]] = {}
        super().__init__(seed)

    def choose_config(self) -> TopicConfig:
        return TopicConfig(
            ordering=Ordering.GROUP,
            retry=self.random.choice((None, Retry(SECOND, SECOND))),
            concurrency=self.random.choice((None, 3)),
            group_rate=self.random.choice((None, 100)),
            on_bury=self.random.choice((None, *OnBury)),
        )

    def start(self) -> None:
        super().start()
        self.out: set[bytes] = set()

    def run(self) -> None:
        acts = self.subscribe, self.answer_together, self.wait, self.kill, self.leave, self.change
        self.live(120, *[self.publish] * 2, *[self.answer] * 2, *acts)
        self.end()

    def change(self) -> None:
        """Change settings that keep the order."""
        self.config = self.choose_config()
        self.node.broker.topics["t"].configure(self.config)
        self.node.turn()

    def leave(self) -> None:
        super().leave()
        self.out &= {one.body for _, one in self.taken}

    def all(self) -> set[bytes]:
        return {body for group in self.published.values() for body in group}

    def publish(self) -> None:
        groups = self.random.choice(("a", "b", "c", "defghijklmnop"))
        count = self.random.choice((1, 1, 3, 20)) if len(groups) == 1 else 1
        for group in groups:
            self.publish_to(group, count)
        self.node.turn()

    def publish_to(self, group: str, count: int) -> None:
        known = self.published.setdefault(group, [])
        new = [b"%s%d" % (group.encode(), len(known) + number) for number in range(count)]
        known += new
        self.node.broker.topics["t"].intake.publish_with(new, of_group(group))

    def answer_together(self) -> None:
        """Finish the first messages of a client that are not answered, with one command."""
        client = self.taken[0][0] if self.taken else None
        batch = [one for other, one in self.taken if other is client][: self.random.choice((2, 9, 99))]
        self.taken = [(other, one) for other, one in self.taken if one not in batch]
        finished = Counter(one.id for one in batch)  # some may have been delivered twice to the client
        failed = client.finish(ids(batch)) if client is not None else []
        finished -= Counter(message_id for message_id, _ in failed)
        self.ended |= {one.body for one in batch if finished[one.id]}
        self.out -= self.ended
        self.node.turn()

    def answer(self) -> None:
        if not self.taken:
            return
        client, one = self.taken.pop(self.random.randrange(len(self.taken)))
        if self.random.random() < 0.6:
            self.finish(client, one)
        elif not client.requeue(one.id, self.random.choice((0, SECOND)), self.clock.now):
            self.out.discard(one.body)
        self.node.turn()

    def finish(self, client: Client, one: Delivery) -> None:
        super().finish(client, one)
        if one.body in self.ended:
            self.out.discard(one.body)

    def look(self) -> None:
        self.node.advance(0)
        for client, inbox in self.clients:
            for one in inbox.take():
                group = one.body[:1].decode()
                before = self.published[group][: self.published[group].index(one.body)]
                assert self.ended.issuperset(before), f"{one.body!r} before an earlier one of its group"
                assert one.body not in self.ended
                others = [other for other in self.out if other[:1] == one.body[:1] and other != one.body]
                assert not others, f"{one.body!r} while {others} are out"
                self.out.add(one.body)
                self.taken.append((client, one))


def test_each_group_is_delivered_as_it_was_published_over_kills_and_timeouts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stored_extent, "EXTENT_MESSAGES", 7)  # so that a delivery has messages of several
    for _ in run_seeds(GroupLife, seeds(300, in_short=25)):
        pass

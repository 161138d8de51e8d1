"""Pages of what a channel has: together they are all of it, in each state, and looking changes nothing."""

from collections.abc import Callable
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsqd.core.channel import listing
from nsqd.core.channel.channel import Channel
from nsqd.core.channel.listing import MessageState, Page, Steps, list_messages
from nsqd.core.limits import Limits
from nsqd.core.timing import deferred as deferring
from nsqd.core.timing import duequeue
from nsqd.core.timing.deferred import MINUTE, Deferred, Message
from tests.cases import each
from tests.nsqd.core.listed import listed, result_of
from tests.nsqd.core.node import SECOND, Node

HOUR = 3600 * SECOND


def pages(channel: Channel, state: MessageState, limit: int) -> list[tuple[int, int]]:
    """(ordinal, attempts) of all, a page at a time."""
    found, after = [], ""
    while True:
        page, after = listed(channel, state, after, limit)
        assert len(page) <= limit
        found += [(one.ordinal, one.attempts) for one in page]
        if not after:
            return found
        assert len(page) == limit


def busy() -> tuple[Node, Channel]:
    """20 messages of which some were given out, handed back or published with a delay."""
    node = Node(Limits(max_attempts={"t": 2}))
    channel = node.channel("t", "c")
    for number in range(20):
        if number % 5 == 3:
            node.publish_deferred("t", b"%d" % number, (number % 2 + 1) * 50 * SECOND)
        else:
            node.publish("t", b"%d" % number)
    consumer, inbox = node.subscribe("t", "c", 8)
    taken = inbox.take()
    consumer.finish(taken[0].id)
    consumer.requeue(taken[1].id, 0, node.now)
    consumer.requeue(taken[2].id, 30 * SECOND, node.now)
    consumer.requeue(taken[3].id, 3000 * SECOND, node.now)
    consumer.set_ready(0)
    node.turn()
    return node, channel


@pytest.fixture
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (deferring, duequeue, listing):
        monkeypatch.setattr(module, "WALKED_AT_ONCE", 2)


@pytest.mark.usefixtures("small_steps")
@each("limit", [1, 2, 3, 7, 100])
def test_pages_are_all_there_is_in_each_state(limit: int) -> None:
    _, channel = busy()
    ready = pages(channel, MessageState.READY, limit)
    in_flight = pages(channel, MessageState.IN_FLIGHT, limit)
    deferred = pages(channel, MessageState.DEFERRED, limit)
    assert len(ready) == channel.depth
    assert len(in_flight) == channel.in_flight_count
    assert len(deferred) == channel.deferred_count == 6
    assert sorted(ordinal for ordinal, _ in ready + in_flight + deferred) == list(range(1, 20))
    assert in_flight == sorted(in_flight)


def test_looking_changes_nothing_and_shows_owners_and_reasons() -> None:
    node, channel = busy()
    (first,) = channel.consumers.values()
    other, inbox = node.subscribe("t", "c", 2)
    inbox.take()
    owners = [one.owner for one in listed(channel, MessageState.IN_FLIGHT, "", 100)[0]]
    assert owners.count(first) == first.in_flight > 0
    assert owners.count(other.consumer) == 2
    assert {one.owner for one in listed(channel, MessageState.READY, "", 100)[0]} == {None}
    before = [pages(channel, state, 100) for state in MessageState]
    for _ in range(100):
        for state in MessageState:
            listed(channel, state, "", 5)
    assert [pages(channel, state, 100) for state in MessageState] == before
    node.broker.check()
    node = Node(Limits(max_attempts={"t": 1}))
    channel = node.channel("t", "c")
    node.publish("t", *(b"%d" % number for number in range(5)))
    consumer, inbox = node.subscribe("t", "c", 5)
    for one in inbox.take():
        consumer.requeue(one.id, 0, node.now)
    page, after = listed(channel, MessageState.BURIED, "", 3)
    assert [(one.ordinal, one.attempts, one.reason) for one in page] == [(n, 1, "requeued") for n in range(3)]
    assert [one.ordinal for one in listed(channel, MessageState.BURIED, after, 3)[0]] == [3, 4]


@each("state", [MessageState.READY, MessageState.IN_FLIGHT, MessageState.DEFERRED])
def test_what_is_no_place_is_refused_or_leads_nowhere(state: MessageState) -> None:
    _, channel = busy()
    for after in ("x", "rx", "r-1", "c:", "c:n1", "c:n1.2.3", "t:q1.2", "9" * 5000, "\u0661x", "<b>"):
        try:
            listed(channel, state, after, 5)
        except ValueError:
            continue
        assert after in ("c:",), f"{state} takes {after[:10]}"


@given(
    dues=st.lists(st.integers(0, 5 * MINUTE), max_size=60),
    limit=st.integers(1, 9),
    first=st.integers(0, 20),
    seed=st.integers(),
)
def test_pages_of_what_is_deferred(dues: list[int], limit: int, first: int, seed: int) -> None:
    deferred = Deferred(Random(seed).randrange(1000))
    for ordinal, due in enumerate(dues):
        deferred.push(due, Message(ordinal, ordinal % 3), 0)
    found, after = [], ""
    while True:
        page, after = result_of(deferred.page(after, limit, first, 50))
        found += page
        if not after:
            break
    assert sorted(found) == [(n, due, n % 3) for n, due in enumerate(dues) if first <= n < 50]
    near = [due for _, due, _ in found if due <= MINUTE]
    assert near == sorted(near)


def walk(steps: Steps[Page], meanwhile: list[Callable[[], object]]) -> Page:
    """Return a page; each of `meanwhile` is done after a step of its own."""
    for deed in meanwhile:
        next(steps)
        deed()
    return result_of(steps)


@pytest.mark.usefixtures("small_steps")
def test_messages_that_end_while_a_page_is_looked_for_are_left_out_and_the_next_page_is_as_before() -> None:
    node = Node()
    consumer, inbox = node.subscribe("t", "c", 20)
    for number in range(20):
        node.publish("t", b"%d" % number)
    taken = inbox.take()
    consumer.finish(taken[19].id)  # the runs fall apart
    steps = list_messages(consumer.channel, MessageState.IN_FLIGHT, "2", 4)
    nothing: list[Callable[[], object]] = [lambda: None] * 8
    page, after = walk(steps, [*nothing, lambda: consumer.finish(taken[4].id), lambda: consumer.finish(taken[6].id)])
    assert ([one.ordinal for one in page], after) == ([3, 5], "6")
    for number in range(8, 16):
        consumer.requeue(taken[number].id, 30 * SECOND + number, node.now)
    _, place = listed(consumer.channel, MessageState.DEFERRED, "", 1)
    steps = list_messages(consumer.channel, MessageState.DEFERRED, place, 3)
    page, after = walk(steps, [*nothing[:2], lambda: consumer.channel.deferred.remove_ordinals({10})])
    assert [one.ordinal for one in page] == [9, 11]
    page, after = listed(consumer.channel, MessageState.DEFERRED, after, 9)
    assert ([one.ordinal for one in page], after) == ([12, 13, 14, 15], "")


@pytest.mark.usefixtures("small_steps")
@each("state", [MessageState.IN_FLIGHT, MessageState.DEFERRED])
@each("end", [Channel.empty, Channel.delete])
def test_a_page_of_a_channel_that_is_emptied_or_deleted_meanwhile_is_empty(
    state: MessageState, end: Callable[[Channel], None]
) -> None:
    node = Node()
    consumer, inbox = node.subscribe("t", "c", 200)
    for number in range(200):
        node.publish("t", b"%d" % number)
    for one in inbox.take()[100:]:
        consumer.requeue(one.id, 30 * SECOND, node.now)
    channel = consumer.channel
    after = listed(channel, state, "", 1)[1]
    assert len(listed(channel, state, after, 4)[0]) == 4
    assert walk(list_messages(channel, state, after, 4), [lambda: end(channel)])[0] == []


@pytest.mark.usefixtures("small_steps")
def test_each_step_of_a_page_looks_at_a_bounded_number_of_messages() -> None:
    node = Node()
    consumer, inbox = node.subscribe("t", "c", 20)
    node.publish("t", *(b"%d" % number for number in range(20)))
    taken = inbox.take()
    consumer.finish(taken[19].id)
    assert len(list(list_messages(consumer.channel, MessageState.IN_FLIGHT, "", 3))) == 1, "all are in one run"
    for one in taken[:18]:
        consumer.requeue(one.id, 30 * SECOND, node.now)
    assert len(list(list_messages(consumer.channel, MessageState.DEFERRED, "c:n0.0", 3))) == 8
    for ordinal in range(9):
        consumer.channel.offsets.delay_queue.waiting.push(node.now + HOUR, Message(ordinal + 100, 0), node.now)
    assert list(list_messages(consumer.channel, MessageState.DEFERRED, "t:", 3))

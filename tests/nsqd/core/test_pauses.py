"""Who paused what, when, and until when: what forgets it, what ends it, and what a restart makes of it."""

import itertools

import pytest
import trio
import trio.testing
from hypothesis import given
from hypothesis import strategies as st

from nsqd.core.pauses import Key, Pauses
from nsqd.core.timing.pause import Pause
from nsqd.tasks.pause_expiry import AT_ONCE, end_pauses
from tests.nsqd.core.client import Client
from tests.nsqd.core.node import SECOND, Inbox, Node

T0 = 1_800_000_000  # s: where the nodes' wall clocks begin
TOPIC, CHANNEL = ("t", ""), ("t", "c")


@pytest.fixture
def node() -> Node:
    node = Node()
    node.channel("t", "c")
    return node


def pause(node: Node, key: Key, by: str = "", until: int = 0) -> None:
    item = node.broker.topic(key[0]).channel(key[1]) if key[1] else node.broker.topic(key[0])
    node.broker.pause(item, True, by, until)


def resume(node: Node, key: Key) -> None:
    node.broker.pause(node.broker.paused_item(key), False)


def test_it_is_known_who_paused_what_and_when_until_it_ends_or_is_paused_again(node: Node) -> None:
    details = node.broker.registry.pauses.details
    pause(node, TOPIC, "ann", T0 + 60)
    pause(node, CHANNEL)
    assert details == {TOPIC: Pause("ann", T0, T0 + 60), CHANNEL: Pause("", T0, 0)}
    node.broker.check()
    for key in (TOPIC, CHANNEL):
        pause(node, key, "ann", T0 + 60)
        resume(node, key)
    assert details == {}
    assert node.broker.end_pauses(T0 + 99, 9) == []
    pause(node, TOPIC, "ann", T0 + 60)
    node.advance(3 * SECOND)
    pause(node, TOPIC)
    assert details == {TOPIC: Pause("", node.broker.wall // SECOND, 0)}
    assert node.broker.end_pauses(T0 + 99, 9) == []
    assert node.broker.topics["t"].paused
    node.broker.check()


def test_deleting_forgets_it_for_the_next_of_that_name_and_an_ephemeral_channel_takes_it_with_it(node: Node) -> None:
    details = node.broker.registry.pauses.details
    pause(node, CHANNEL, "ann", T0 + 60)
    node.broker.directory.delete_channel(node.broker.topics["t"], "c")
    assert details == {}
    consumer = Client(node.channel("t", "e#ephemeral"), Inbox(), SECOND, 0)
    pause(node, ("t", "e#ephemeral"), "ann", T0 + 60)
    consumer.leave(node.broker)
    assert details == {}
    pause(node, TOPIC, "ann", T0 + 60)
    pause(node, CHANNEL, "ann", T0 + 60)
    node.broker.delete_topic("t")
    assert details == {}
    pause(node, CHANNEL)
    assert node.broker.end_pauses(T0 + 60, 9) == []
    node.broker.check()


@given(
    st.lists(
        st.tuples(st.sampled_from("abc"), st.one_of(st.none(), st.just(0), st.integers(1, 9)), st.integers(0, 3)),
        max_size=60,
    )
)
def test_any_order_of_pausing_unpausing_and_time(moves: list[tuple[str, int | None, int]]) -> None:
    pauses, wanted, now = Pauses(), dict[Key, Pause](), 0
    for name, until, passes in moves:
        now += passes
        key = (name, "")
        if until is None:
            pauses.forget(key)
            wanted.pop(key, None)
        else:
            wanted[key] = Pause("x", now, now + until if until else 0)
            pauses.remember(key, wanted[key])
        due = {key for key, pause in wanted.items() if 0 < pause.until <= now}
        assert set(pauses.take_due(now, 9)) == due
        wanted = {key: pause for key, pause in wanted.items() if key not in due}
        assert pauses.details == wanted
        pauses.check()


# the task


async def test_the_task_ends_them_within_a_second(node: Node, autojump_clock: trio.testing.MockClock) -> None:
    began, turns = trio.current_time(), itertools.count()
    for number in range(3 * AT_ONCE):
        pause(node, (f"t{number}", ""), until=T0 + 5)
    pause(node, CHANNEL, until=T0 + 9)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(
            end_pauses, node.broker, lambda: next(turns), lambda: T0 + 0.25 + trio.current_time() - began
        )
        await trio.sleep(4.5)
        assert len(node.broker.registry.pauses.details) == 3 * AT_ONCE + 1
        await trio.sleep(0.5)
        assert list(node.broker.registry.pauses.details) == [CHANNEL]
        assert next(turns) == 3
        await trio.sleep(4)
        assert not node.channel("t", "c").paused
        nursery.cancel_scope.cancel()
    node.broker.check()

"""What topics did lately: rings of a day and of an hour, whoever looks when."""

import pytest
import trio
import trio.testing
from hypothesis import given
from hypothesis import strategies as st

from nsqd.core.observation import series as rings
from nsqd.core.observation.series import COARSE, FINE, FINE_SLOTS, MOST_FINE, Ring, Series
from nsqd.series_task import note_series
from tests.nsqd.core.node import Node, ids

T0 = 1_800_000_000  # s; a multiple of both steps


@given(st.lists(st.tuples(st.integers(1, 4), st.integers(0, 9)), max_size=40))
def test_a_ring_has_the_latest_steps(moves: list[tuple[int, int]]) -> None:
    ring, at, total, wanted = Ring(10, 8), T0, 0, dict[int, int | None]()
    for step, (steps, came) in enumerate(moves):
        at += steps * 10
        total += came
        ring.put(at, (total, total // 2), total, step)
        wanted[at // 10 - 1] = came if step and steps == 1 else None
    told = ring.columns()
    assert len(told["published"]) <= 8
    first = ring.first // 10
    for place, value in enumerate(told["published"]):
        assert value == wanted.get(first + place)
    if moves:
        assert told["depth"][-1] == total
        assert first + len(told["depth"]) == at // 10


def test_a_clock_that_goes_back_and_a_node_that_counts_anew() -> None:
    ring = Ring(10, 8)
    ring.put(T0 + 10, (5, 5), 1, 0)
    ring.put(T0, (9, 9), 2, 0)
    ring.put(T0 + 20, (3, 3), 3, 0)
    assert ring.columns()["published"][-1] == 0
    assert ring.columns()["depth"][-2:] == [1, 3]


def test_only_what_is_looked_at_has_an_hour() -> None:
    node, series = Node(), Series()
    topics = [node.broker.topic(f"t{number}") for number in range(MOST_FINE + 1)]
    for topic in topics:
        series.rings_of(topic.number, T0)
    assert len(series.topics_in_use(T0)) == MOST_FINE
    assert topics[0].number not in series.topics_in_use(T0)
    series.rings_of(topics[5].number, T0 + 400)
    assert series.topics_in_use(T0 + 700) == [topics[5].number]
    series.begin(set())
    assert series.topics_in_use(T0 + 700) == []


def test_a_day_has_room_for_so_many_topics(monkeypatch: pytest.MonkeyPatch) -> None:
    node, series = Node(), Series()
    monkeypatch.setattr(rings, "MOST_COARSE", 3)
    series.begin(set())
    for number in range(5):
        series.put_coarse(node.broker.topic(f"t{number}"), T0)
    assert series.left_out == 2


async def test_messages_that_come_and_go(autojump_clock: trio.testing.MockClock) -> None:
    node, series = Node(), Series()
    consumer, inbox = node.subscribe("t", "c", 2)
    node.publish("t", *[b"x"] * 5)
    node.turn()
    topic = node.broker.topics["t"]
    began = trio.current_time()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(note_series, node.broker, series, lambda: T0 + 1 + trio.current_time() - began)
        assert series.rings_of(topic.number, T0)[1].last == -1
        await trio.sleep(FINE + 1)
        node.publish("t", *[b"y"] * 3)
        node.turn()
        assert consumer.finish(ids(inbox.take())) == []
        node.turn()
        await trio.sleep(FINE)
        _, fine = series.rings_of(topic.number, T0 + 20)
        assert fine.columns() == {
            "published": [None, 3], "finished": [None, 2], "depth": [3, 4], "in_flight": [2, 2],
        }  # fmt: skip
        assert fine.first == T0
        await trio.sleep(2 * COARSE)
        coarse, _ = series.rings_of(topic.number, T0 + 2 * COARSE)
        assert coarse is not None
        assert coarse.columns()["depth"] == [4, 4]
        assert coarse.columns()["published"] == [None, 0]
        nursery.cancel_scope.cancel()


def test_an_hour_is_an_hour() -> None:
    ring = Ring(FINE, FINE_SLOTS)
    for number in range(1000):
        ring.put(T0 + number * FINE, (number, 0), 0, 0)
    told = ring.columns()["published"]
    assert (len(told), set(told)) == (FINE_SLOTS, {1})

"""The recent activity of topics and channels, of an hour and a day, read or not."""

import pytest

from nsqd.core.observation import series as module
from nsqd.core.observation.series import COUNTERS, FINE, NAMES, Columns, Series, Steps
from nsqd.core.observation.series_block import SIZE
from nsqd.core.timing.deferred import Message
from tests.nsqd.core.node import MS, SECOND, Node

T0 = 1_800_000_000  # s; a multiple of both steps


def note(series: Series, node: Node, at: int) -> None:
    for _ in series.record(list(node.broker.topics.values()), at):
        pass


def columns(steps: Steps | None) -> Columns:
    return steps.columns()


def last(steps: Steps | None) -> dict[str, int | None]:
    return {name: values[-1] for name, values in columns(steps).items()}


def test_all_that_happens_in_a_channel_and_its_topic() -> None:
    node, series = Node(), Series()
    consumer, inbox = node.subscribe("t", "c", 4, timeout=20 * MS)
    node.channel("t", "other")
    note(series, node, T0 + 10)
    node.publish("t", *[b"x"] * 10)
    delivered = inbox.take()
    consumer.set_ready(0)
    consumer.finish(delivered[0].id)
    consumer.requeue(delivered[1].id, 5 * SECOND, node.now)
    node.turn()
    node.advance(30 * MS)
    consumer.channel.bury(b"0" * 16, Message(99, 1), "")
    note(series, node, T0 + 20)
    topic = node.broker.topics["t"]
    of_channel = {
        "published": 10, "finished": 0, "requeued": 1, "timed_out": 2, "buried": 1, "depth": 8, "in_flight": 0, "deferred": 1,
    }  # fmt: skip
    assert last(series.hour_of(consumer.channel)) == of_channel
    assert last(series.hour_of(topic)) == of_channel | {"depth": 18}
    node.publish("lonely", b"1", b"2")
    note(series, node, T0 + 30)
    assert last(series.hour_of(node.broker.topics["lonely"])) == dict.fromkeys(NAMES, 0) | {"depth": 2} | dict.fromkeys(
        NAMES[:COUNTERS]
    )


def test_an_emptied_and_a_deleted_channel() -> None:
    node, series = Node(), Series()
    channel, odd = node.channel("t", "c"), node.broker.topic("a b")
    assert repr(series) == "<Series of 0 topics and channels, 0 B>"
    node.publish("t", b"x", b"y")
    note(series, node, T0 + 10)
    assert series.hour_of(odd) is None, "its name is none of NSQ"
    channel.empty()
    node.turn()
    note(series, node, T0 + 20)
    assert last(series.hour_of(channel))["finished"] == 2
    node.broker.topics["t"].delete_channel("c")
    node.turn()
    note(series, node, T0 + 30)
    assert series.hour_of(channel) is None
    assert last(series.hour_of(node.broker.topics["t"]))["finished"] == 0
    again = node.channel("t", "c")
    note(series, node, T0 + 40)
    assert columns(series.hour_of(again))["depth"] == [0]
    assert sorted(series._places.values()) == [0, 1], "the place of the deleted one is not used again"


def test_subjects_without_a_change_for_longest_make_room(monkeypatch: pytest.MonkeyPatch) -> None:
    node, series = Node(), Series()
    monkeypatch.setattr(module, "MOST", 4)
    monkeypatch.setattr(module, "IDLE", 2)
    busy, idle = node.channel("busy", "c"), node.channel("idle", "c")
    note(series, node, T0 + 10)
    node.publish("busy", b"x")
    note(series, node, T0 + 20)
    fresh = node.channel("fresh", "c")
    node.publish("busy", b"x")
    note(series, node, T0 + 30)
    assert columns(series.hour_of(busy))["published"] == [None, 1, 1]
    assert columns(series.hour_of(fresh))["depth"] == [0]
    assert series.hour_of(idle) is None  # it did nothing for two steps
    node.publish("busy", b"x")
    note(series, node, T0 + 40)
    assert columns(series.hour_of(fresh))["depth"] == [0, 0]
    assert series.hour_of(idle) is None  # and it does not get its place back as long as the others may have done more


def test_the_oldest_steps_are_forgotten_when_they_take_too_much(monkeypatch: pytest.MonkeyPatch) -> None:
    node, series = Node(), Series()
    channels = [node.channel(f"t{number}", "c") for number in range(SIZE)]
    monkeypatch.setattr(module, "MOST_BYTES", 6000)
    for step in range(50):
        for topic in node.broker.topics.values():
            topic.publish([b"x"], 1)
        node.turn()
        note(series, node, T0 + step * FINE)
        assert series.stored_bytes < 6500
    shown = columns(series.hour_of(channels[0]))
    assert 10 < len(shown["published"]) < 45
    assert set(shown["published"][1:]) == {1}
    assert shown["depth"][-1] == 50

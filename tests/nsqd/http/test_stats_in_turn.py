"""The statistics of a topic that the reactor answers in the turn are those that the HTTP thread would answer, byte for byte."""

import asyncio
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsqd.core.limits import Limits
from nsqd.core.timing.pause import NOT_KNOWN
from nsqd.http.stats import MOST_CHANNELS, MOST_CLIENTS, Stats, StatsArguments
from tests.nsqd.core.node import SECOND, Node
from tests.nsqd.http.asking import http_node
from tests.nsqd.protocols.nsq.wire import Wire


def slow(stats: Stats, *wanted: Any) -> bytes:
    return bytes(asyncio.run(stats._answer(StatsArguments(*wanted), True)).body)


STEPS = ("publish", "publish deferred", "channel", "finish", "requeue", "time out", "pause topic", "pause channel")


@given(
    steps=st.lists(st.sampled_from(STEPS), max_size=20), ready=st.integers(0, 3),
    channel=st.sampled_from(["", "c", "d"]), clients=st.booleans(), memory=st.booleans(),
)  # fmt: skip
def test_both_threads_report_the_same(steps: list[str], ready: int, channel: str, clients: bool, memory: bool) -> None:
    node = Node()
    consumer, inbox = node.subscribe("t", "c", ready)
    topic, taken = node.broker.topic("t"), []
    for step in steps:
        taken += inbox.take()
        if step == "publish":
            node.publish("t", b"x", b"yy")
        elif step == "publish deferred":
            node.publish_deferred("t", b"z", 9 * SECOND)
        elif step == "channel":
            node.channel("t", "d")
        elif step == "time out":
            node.advance(61 * SECOND)
        elif step == "pause topic":
            topic.pause(NOT_KNOWN)
        elif step == "pause channel":
            node.channel("t", "c").pause(NOT_KNOWN)
        elif taken and step == "finish":
            consumer.finish(taken.pop().id)
        elif taken:
            consumer.requeue(taken.pop().id, 5 * SECOND, node.now)
        node.turn()
    stats = Stats(http_node(node.broker))
    assert stats.answer_in_turn("t", channel, clients, memory) == slow(stats, "t", channel, clients, memory)


def test_a_topic_that_takes_long_is_left_to_the_other_thread() -> None:
    node = Node(Limits(latency_percentiles=(0.5,), latency_window=SECOND))
    stats = Stats(http_node(node.broker))
    assert stats.answer_in_turn("t", "", True, True) is None  # there is no such topic: an exception
    node.broker.topic("t")
    assert stats.answer_in_turn("t", "", True, True) is not None
    node.channel("t", "c")  # percentiles
    assert stats.answer_in_turn("t", "", True, True) is None
    other = Node()
    for number in range(MOST_CHANNELS + 1):
        other.channel("t", f"c{number}")
    assert Stats(http_node(other.broker)).answer_in_turn("t", "", True, True) is None


@pytest.mark.parametrize(("count", "is_shown"), [(MOST_CLIENTS, True), (MOST_CLIENTS + 1, False)])
def test_many_clients_are_left_to_the_other_thread(count: int, is_shown: bool) -> None:
    node = Node()
    for _ in range(count):
        node.subscribe("t", "c")
    stats = Stats(http_node(node.broker))
    assert (stats.answer_in_turn("t", "", True, True) is not None) == is_shown
    assert stats.answer_in_turn("t", "", False, True) is not None


@pytest.mark.parametrize("extended", [False, True])
def test_errors_of_a_client_are_shown_with_the_extension_header(extended: bool) -> None:
    wire = Wire()
    wire.send(b"SUB t c\nFIN 0123456789abcdef\nFIN 0123456789abcdef\n")
    stats = Stats(http_node(wire.node.broker, peers=lambda: [wire.peer]))
    (shown,) = json.loads(slow(stats, "t", "", True, False, extended))["topics"][0]["channels"][0]["clients"]
    assert shown.get("error_count") == (2 if extended else None)

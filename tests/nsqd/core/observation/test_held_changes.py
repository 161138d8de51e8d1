"""How a backlog changed over the last five minutes, whatever happened in the last seconds."""

from nsqd.core.observation.held_changes import EVERY, SPAN, HeldChanges
from nsqd.core.observation.series import FINE, Series
from tests.nsqd.core.node import Node, ids
from tests.nsqd.core.observation.test_series import T0, note
from tests.nsqd.core.promoted import promote


def test_a_change_is_that_of_five_minutes() -> None:
    held = HeldChanges()
    held.enter(0, 100)
    assert held.change(0) is None
    for number in range(100):
        held.set(0, 100 + number)
        held.end_look(T0 + number * FINE)
        if number == 0:
            assert held.change(0) is None
        elif number == 2:
            assert held.change(0) == (2, 2 * FINE)
    change = held.change(0)
    messages, seconds = change
    assert SPAN - EVERY <= seconds <= SPAN
    assert messages == seconds // FINE
    assert repr(held) == "<HeldChanges of 1 places, 11 looks before>"


def test_the_changes_of_channels_and_of_what_no_channel_was_given() -> None:
    node, series = Node(), Series()
    consumer, inbox = node.subscribe("t", "c", ready=2)
    node.publish("t", *[b"x"] * 10)
    node.publish("alone", b"x")
    note(series, node, T0)
    topics, channel = node.broker.topics, consumer.channel
    assert series.held_change(channel) is None
    consumer.set_ready(0)
    consumer.finish(ids(inbox.take()))
    promote(node, 8, "t", "c", *[b"theirs"] * 30)
    node.publish("alone", b"x", b"x")
    note(series, node, T0 + FINE)
    assert series.held_change(channel) == (-2, FINE)
    assert (series.held_change(topics["alone"]), series.held_change(topics["t"])) == ((2, FINE), (0, FINE))
    assert series.held_change(node.channel("t", "new")) is None

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
    assert change is not None
    messages, seconds = change
    assert SPAN - EVERY <= seconds <= SPAN
    assert messages == seconds // FINE
    assert repr(held) == "<HeldChanges of 1 places, 11 looks before>"


def test_who_is_new_at_a_place_has_no_past() -> None:
    held = HeldChanges()
    held.enter(0, 5)
    held.end_look(T0)
    held.enter(2, 7)
    held.end_look(T0 + EVERY)
    assert (held.change(0), held.change(2)) == ((0, EVERY), None)
    held.enter(0, 9)
    held.end_look(T0 + 2 * EVERY)
    held.set(0, 8)
    held.end_look(T0 + 3 * EVERY)
    assert (held.change(0), held.change(2)) == ((-1, EVERY), (0, 2 * EVERY))


def test_a_clock_that_goes_back_begins_anew_and_messages_that_come_or_go_with_a_log_are_no_change() -> None:
    held = HeldChanges()
    held.enter(0, 5)
    held.end_look(T0)
    held.set(0, 6)
    held.end_look(T0 - 1000)
    assert held.change(0) is None
    held.end_look(T0 - 1000 + EVERY)
    assert held.change(0) == (0, EVERY)
    for messages in (40, -40):
        held = HeldChanges()
        held.enter(0, 50)
        held.end_look(T0)
        held.shift(0, messages)
        held.set(0, 50 + messages + 3)
        held.end_look(T0 + EVERY)
        assert held.change(0) == (3, EVERY)


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

"""A command that creates a topic waits until nsqlookupd knows the topic, and no other command does."""

from tests.cases import each
from tests.nsqd.core.node import Node
from tests.nsqd.protocols.nsq.wire import Wire, body, mpub

X = body(b"x")


def a_wire(node: Node | None = None) -> Wire:
    """A client of a node that has an nsqlookupd."""
    wire = Wire(node)
    wire.node.broker.directory.ask_for_channels = True
    return wire


def resume(wire: Wire) -> Wire:
    """nsqlookupd knows the topics that were created, or the time is over."""
    wire.unregistered.clear()
    wire.register()
    wire.node.turn()
    return wire


@each("command", [b"PUB t\n" + X, b"DPUB t 5\n" + X, b"DPUB t 0\n" + X, mpub(b"t", b"x"), b"SUB t c\n"])
def test_the_first_command_about_a_topic_waits_and_happens_once(command: bytes) -> None:
    wire, gone, count = a_wire().send(command), a_wire().send(command), int(b"SUB" not in command)
    assert wire.peer.waiting
    assert (wire.unregistered, wire.replies()) == (["t"], [])
    assert wire.node.broker.topics["t"].intake.message_count == 0
    assert resume(wire).replies() == [b"OK"]
    assert wire.unregistered == []
    assert wire.node.broker.topics["t"].intake.message_count == count
    assert not count or wire.send(command).replies() == [b"OK"]
    gone.peer.disconnected()
    gone.node.turn()
    assert gone.node.broker.topics["t"].intake.message_count == 0
    at_once = Wire().send(command)  # its node has no nsqlookupd
    assert (at_once.unregistered, at_once.replies()) == ([], [b"OK"])


def test_what_follows_on_the_connection_waits_behind_it_and_others_do_not() -> None:
    wire = a_wire().send(b"PUB t\n" + X + b"PUB u\n" + X).send(b"PUB t\n" + X)
    assert (wire.unregistered, wire.replies()) == (["t"], [])
    assert resume(wire).replies() == [b"OK"]
    assert wire.unregistered == ["u"]
    assert resume(wire).replies() == [b"OK", b"OK"]
    first = a_wire().send(b"PUB t\n" + X)
    other = a_wire(first.node)
    assert other.send(b"PUB t\n" + X).replies() == [b"OK"]
    assert other.unregistered == []
    assert first.replies() == []
    assert resume(first).replies() == [b"OK"]


def test_a_topic_deleted_meanwhile_is_created_again_and_the_last_part_of_an_mpub_does_not_wait_for_it() -> None:
    wire = a_wire().send(b"PUB t\n" + X)
    wire.node.broker.delete_topic("t")
    assert resume(wire).replies() == []
    assert wire.unregistered == ["t"]
    assert resume(wire).replies() == [b"OK"]
    command = mpub(b"t", b"x", b"y")
    wire.send(command[:-1])
    wire.node.broker.delete_topic("t")
    assert wire.send(command[-1:]).replies() == [b"OK"]
    assert wire.node.broker.topics["t"].intake.message_count == 2

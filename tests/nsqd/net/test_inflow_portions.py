"""Half-received commands that come in odd pieces, in portions, or behind one that waits: what they reserve, and until when."""

import struct
from collections.abc import Callable

import pytest

from nsqd.core.message.frame import OK
from nsqd.net.connection import Connection
from nsqd.net.inflow import BODY_TIMEOUT
from nsqd.protocols.nsq.batch import PORTION
from nsqd.protocols.transport import NEVER
from shared.budget import FREE
from tests.nsqd.core.node import SECOND
from tests.nsqd.net.test_inflow import LIMIT, Port, frames
from tests.nsqd.protocols.nsq.wire import body, mpub

pytestmark = pytest.mark.process

SMALL = {"nsq": (b"PUB t\n\0\0\0\5hel", b"lo"), "beanstalk": (b"put 0 0 60 5\r\n", b"hello\r\n")}


def only(port: Port) -> Connection:
    (connection,) = port.reactor.connections.values()
    return connection


@pytest.mark.parametrize("protocol", SMALL)
def test_a_small_command_in_two_pieces_leaves_no_deadline(protocol: str) -> None:
    port = Port(protocol)
    client = port.client()
    for piece in SMALL[protocol]:
        port.say(client, piece)
        port.turn(2)
    assert (port.published, only(port).body_due) == (1, NEVER)
    port.advance(BODY_TIMEOUT + SECOND)
    assert port.open == 1
    port.close()


def test_a_piece_that_ends_between_two_messages_leaves_nothing_reserved() -> None:
    port = Port("nsq")
    client = port.client()
    command = mpub(b"t", *[bytes(30_000)] * 4)
    cut = len(command) - 2 * 30_004
    port.say(client, command[:cut])
    assert port.used
    port.say(client, command[cut:])
    assert (port.published, port.used) == (4, 0)
    port.advance(BODY_TIMEOUT + SECOND)
    assert port.open == 1
    port.close()


def test_a_large_mpub_that_stops_behind_a_portion_is_counted_and_given_up() -> None:
    port = Port("nsq", limit=1000 * LIMIT)
    count = 100 * PORTION
    head = b"MPUB t\n" + struct.pack(">ii", 4 + 5 * count, count)
    port.say(port.client(), head + (struct.pack(">i", 1) + b"x") * PORTION)
    port.turn(4)
    assert port.used > 5 * count
    port.advance(BODY_TIMEOUT)
    assert (port.open, port.used) == (0, 0)
    port.close()


def test_inner_sizes_beyond_the_outer_one_are_counted() -> None:
    port = Port("nsq")
    client = port.client()
    port.say(client, b"MPUB t\n" + struct.pack(">ii", 4, 5) + (struct.pack(">i", 100_000) + bytes(100_000)) * 2)
    port.turn(2)
    assert port.used >= 200_000
    port.close()


def test_mpubs_that_end_a_turn_count_as_commands() -> None:
    port = Port("nsq")
    client = port.connect(b"  V2")  # it says nothing else, as a shell script might
    command = mpub(b"t", *[b"x"] * PORTION)
    for _ in range(20):
        port.say(client, command)
        port.turn(4)
        port.advance(SECOND)
    assert (port.open, port.published) == (1, 20 * PORTION)
    port.close()


def test_what_waits_behind_a_new_topic_is_counted_when_its_turn_comes() -> None:
    port, calls = Port("nsq"), list[Callable[[], None]]()
    port.context.until_registered = lambda topic, then: calls.append(then)
    port.node.broker.directory.ask_for_channels = True
    client = port.client()
    port.say(client, b"PUB new\n" + body(b"x") + b"PUB t\n" + struct.pack(">i", 10 * FREE) + bytes(2 * FREE))
    assert only(port).peer.waiting
    calls.pop()()
    port.turn(2)
    assert port.used >= 10 * FREE
    port.advance(BODY_TIMEOUT)
    assert (port.open, port.used) == (0, 0)
    port.close()


def test_the_end_of_input_in_the_middle_of_a_large_mpub_is_told() -> None:
    port = Port("nsq")
    client = port.client()
    port.say(client, b"MPUB t\n" + struct.pack(">ii", 4 + 5 * 2 * PORTION, 2 * PORTION) + b"\0\0\0\1x" * PORTION)
    port.turn(4)
    client.shutdown(1)
    port.turn(4)
    assert frames(client)[-1].startswith(b"E_BAD_MESSAGE MPUB failed to read message(%d) body size" % PORTION)
    assert OK not in frames(client)
    port.close()

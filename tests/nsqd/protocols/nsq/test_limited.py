"""Consumers whose identity has limits: of messages in flight over all connections, and of output."""

from collections import Counter

from tests.cases import each
from tests.nsqd.core.promoted import promote
from tests.nsqd.protocols.nsq.wire import Wire
from tests.nsqd.protocols.rights.limited_clients import Nsq


def finish(wire: Wire, messages: list[tuple[int, bytes, bytes]]) -> None:
    wire.send(b"".join(b"FIN %s\n" % message_id for _, message_id, _ in messages))


@each("is_finished", [True, False])
def test_nsq_a_message_that_is_finished_or_times_out_lets_another_channel_go_on(is_finished: bool) -> None:
    nsq = Nsq(in_flight=1)
    first, second = nsq.consumer(5), nsq.consumer(5, "orders2")
    nsq.node.publish("orders", b"1")
    nsq.node.publish("orders2", b"2")
    (one,) = first.advance(300).messages()
    if not is_finished:
        first.send(b"RDY 0\n")
    assert second.advance(300).messages() == []
    if is_finished:
        finish(first, [one])
    for wire in (first, second):
        wire.peer.introduction.liveness.last_activity = nsq.node.now
    assert [data for _, _, data in second.advance(300 if is_finished else 60_000).messages()] == [b"2"]
    nsq.check()
    first.peer.disconnected()
    second.peer.disconnected()
    nsq.check()
    assert not nsq.accounts.account("orders").blocked


def test_nsq_a_consumer_that_goes_makes_room() -> None:
    nsq = Nsq(in_flight=2)
    first, second = nsq.consumer(5), nsq.consumer(5)
    nsq.node.publish("orders", b"1", b"2")
    assert len(first.advance(300).messages()) + len(second.advance(300).messages()) == 2
    nsq.node.publish("orders", b"3")
    holder, other = (first, second) if first.peer.in_flight() else (second, first)
    holder.peer.disconnected()
    other.advance(300)
    assert nsq.in_flight == other.peer.in_flight() <= 2
    assert other.messages()
    nsq.check()


def test_nsq_limits_change_while_a_consumer_is_there() -> None:
    nsq = Nsq()
    wire = nsq.consumer(100)
    nsq.node.publish("orders", *[b"x"] * 20)
    first = wire.advance(300).messages()
    assert len(first) == 20
    nsq.proofs.set("orders", in_flight=5)
    wire.peer.rights_changed()
    nsq.node.publish("orders", *[b"x"] * 20)
    finish(wire, first[:15])
    assert wire.advance(300).messages() == []  # five are left
    finish(wire, first[15:18])
    second = wire.advance(300).messages()
    assert len(second) == 3
    nsq.check()
    nsq.proofs.set("orders")
    wire.peer.rights_changed()
    assert len(wire.advance(300).messages()) == 17
    nsq.check()


def test_nsq_rdy_still_says_how_many_at_most() -> None:
    nsq = Nsq(in_flight=10)
    wire = nsq.consumer(3)
    nsq.node.publish("orders", *[b"x"] * 20)
    got = wire.advance(300).messages()
    assert len(got) == 3
    wire.send(b"RDY 8\n")
    assert len(wire.advance(300).messages()) == 5
    wire.send(b"RDY 0\n")
    finish(wire, got)
    assert wire.advance(300).messages() == []
    wire.send(b"RDY 100\n")
    assert len(wire.advance(300).messages()) == 5
    wire.send(b"CLS\n")
    nsq.check()


def test_nsq_an_account_with_too_much_output_gets_no_more_where_it_does_not_read() -> None:
    nsq = Nsq(output=1000)
    slow, quick = nsq.consumer(100), nsq.consumer(100, "orders2")
    slow.pending = 2000
    nsq.node.publish("orders", b"1")
    nsq.node.publish("orders2", b"2")
    slow.advance(300)
    assert slow.peer.in_flight() == 0
    assert [data for _, _, data in quick.advance(300).messages()] == [b"2"]  # it has read all of its own
    slow.pending = 0
    slow.wants_output = True
    slow.advance(300)
    assert [data for _, _, data in slow.messages()] == [b"1"]
    nsq.check()


@each("consumers, has_log", [(1, False), (3, False), (2, True)])
def test_what_is_in_flight_is_bounded_over_all_connections_and_logs(consumers: int, has_log: bool) -> None:
    nsq = Nsq(in_flight=5)
    wires = [nsq.consumer(100) for _ in range(consumers)]
    nsq.node.publish("orders", *[b"own"] * 20)
    if has_log:
        promote(nsq.node, 8, "orders", "api", *[b"theirs"] * 20)
    done: Counter[bytes] = Counter()
    for _ in range(60):
        for wire in wires:
            wire.advance(30)
            got = wire.messages()
            done.update(body for _, _, body in got)
            assert nsq.in_flight <= 5
            finish(wire, got)
            assert nsq.in_flight <= 5
        nsq.check()
    assert done == Counter({b"own": 20, b"theirs": 20 * has_log})
    assert nsq.node.held() == 0

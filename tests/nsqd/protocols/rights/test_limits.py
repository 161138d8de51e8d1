"""Clients whose identity has limits: of connections, of what is in flight, and of output. No sockets, in virtual time.

What their rate does to a connection is in tests/nsqd/net/test_throttling.py.
"""

from __future__ import annotations

import json

import pytest

from nsqd.protocols.account import Accounts
from nsqd.protocols.beanstalk.client import BeanstalkContext
from nsqd.protocols.nsq.settings import Settings
from shared.tls_info import TlsInfo
from tests.nsqd.core.node import Node
from tests.nsqd.protocols.beanstalk.wire import Wire as BeanstalkWire
from tests.nsqd.protocols.beanstalk.wire import put
from tests.nsqd.protocols.disque.wire import Wire as DisqueWire
from tests.nsqd.protocols.disque.wire import context_of, request
from tests.nsqd.protocols.nsq.wire import Wire, body, mpub
from tests.nsqd.protocols.rights.proofs import Proofs, token

FULL = b"E_AUTH_FAILED AUTH too many connections"
AUTH = b"AUTH\n" + body(token("orders"))


class Nsq:
    """A node with clients of NSQ, who all are `orders`."""

    def __init__(self, **limits: int) -> None:
        self.node, self.proofs, self.accounts = Node(), Proofs("orders", "worker", **limits), Accounts()

    def client(self, name: str = "orders", *commands: bytes) -> Wire:
        """A client that has shown its token, and is asked nothing."""
        wire = Wire(self.node, Settings(auth_required=True), proofs=self.proofs, asks=False, accounts=self.accounts)
        for command in (b"AUTH\n" + body(token(name)), *commands):
            wire.send(command)
        return wire

    def consumer(self, ready: int, topic: str = "orders") -> Wire:
        """A consumer of the channel `api`."""
        name = "worker" if topic == "work" else "orders"
        wire = self.client(name, b"SUB %s api\nRDY %d\n" % (topic.encode(), ready))
        wire.frames()
        return wire

    @property
    def in_flight(self) -> int:
        return self.accounts.of("orders").in_flight()

    def check(self) -> None:
        self.node.broker.check()
        account = self.accounts.of("orders")
        assert all(not blocked.usage.limits.in_flight or blocked.usage in account.usages for blocked in account.blocked)  # type: ignore[attr-defined]


def finish(wire: Wire, messages: list[tuple[int, bytes, bytes]]) -> None:
    wire.send(b"".join(b"FIN %s\n" % message_id for _, message_id, _ in messages))


# connections


def test_nsq_too_many_connections_fail_their_authorization() -> None:
    nsq = Nsq(connections=2)
    first, _ = nsq.client(), nsq.client()
    third = nsq.client()
    assert third.replies() == [FULL]
    assert third.peer.closing
    assert nsq.client("worker").replies() != [FULL]
    first.peer.disconnected()
    first.peer.disconnected()
    assert json.loads(nsq.client().replies()[0])["identity"] == "orders"
    assert nsq.accounts.of("orders").figures().refused == 1


def test_nsq_a_certificate_of_too_many_connections_is_none() -> None:
    nsq = Nsq()
    entry = '[[certificate]]\nname = "billing"\nsubject = "CN=billing"\nroles = ["producer"]\nlimits = { connections = 1 }\n'
    nsq.proofs.file.certificates = Proofs.parsed(entry).certificates
    pub = b"PUB orders\n" + body(b"x")
    for wanted in (b"OK", FULL):
        wire = Wire(nsq.node, Settings(auth_required=True), proofs=nsq.proofs, asks=False, accounts=nsq.accounts)
        wire.peer.upgraded(TlsInfo("TLS1.3", "", "", True, "billing", subject="CN=billing"))
        assert wire.send(pub).replies()[1:] == [wanted]


def test_the_token_again_is_no_other_connection() -> None:
    nsq = Nsq(connections=1)
    wire = nsq.client()
    assert json.loads(wire.send(AUTH).replies()[1])["identity"] == "orders"
    assert nsq.accounts.of("orders").figures().connections == 1
    wire.send(b"AUTH\n" + body(token("worker")))
    assert [one.connections for one in nsq.accounts.figures()] == [0, 1]


def test_beanstalk_too_many_connections_are_strangers() -> None:
    context = BeanstalkContext(proofs=Proofs("worker", connections=1), accounts=Accounts())
    node = Node()
    first, second = BeanstalkWire(node, context), BeanstalkWire(node, context)
    auth = b"auth " + token("worker") + b"\r\n"
    assert first.ask(auth) == b"AUTHORIZED\r\n"
    assert second.ask(auth + b"use work\r\n") == b"UNAUTHORIZED\r\nUNAUTHORIZED\r\n"
    first.leave()
    assert second.ask(auth + b"use work\r\n") == b"AUTHORIZED\r\nUSING work\r\n"


def test_disque_too_many_connections_are_told_so() -> None:
    first = disque(connections=1)
    second = DisqueWire(first.node, first.context)
    assert second.do("AUTH", token("worker")) == "-ERR too many connections"
    assert second.do("HELLO", 2, "AUTH", "x", token("worker")) == "-ERR too many connections"
    assert second.do("PING") == "-NOAUTH Authentication required."
    first.leave()
    assert second.do("AUTH", token("worker")) == "OK"


# what is published


def test_what_is_published_is_counted_by_name() -> None:
    nsq = Nsq()
    wire = nsq.client()
    pub = b"PUB orders\n" + body(b"12345")
    wire.send(pub).send(pub).send(pub + pub)  # read exactly, repeated, and in a row
    wire.send(mpub(b"orders", b"1", b"23") + b"DPUB orders 10\n" + body(b"1234"))
    wire.send(mpub(b"orders", *[b"x"] * 20_000))  # in portions
    one = nsq.accounts.of("orders").figures()
    assert (one.messages, one.bytes) == (4 + 3 + 20_000, 4 * 5 + 3 + 4 + 20_000)
    wire.peer.disconnected()
    assert nsq.accounts.of("orders").figures().messages == 4 + 3 + 20_000
    context = BeanstalkContext(proofs=nsq.proofs, accounts=nsq.accounts)
    jobs = BeanstalkWire(nsq.node, context)
    jobs.ask(b"auth " + token("worker") + b"\r\nuse work\r\n" + put(b"12") + put(b"34") + put(b"5", priority=3))
    queue = context_of(nsq.node)
    queue.proofs, queue.accounts = nsq.proofs, nsq.accounts
    client = DisqueWire(nsq.node, queue)
    client.do("AUTH", token("worker"))
    for _ in range(3):
        client.add("work", "abc")
    one = nsq.accounts.of("worker").figures()
    assert (one.messages, one.bytes, one.connections) == (6, 14, 2)


def test_the_connection_is_metered_only_if_there_is_something_to_meter() -> None:
    nsq = Nsq()
    wire = nsq.client()
    assert wire.usage is None
    nsq.proofs.set("orders", messages=5)
    wire.peer.rights_changed()
    assert wire.usage is not None
    assert wire.usage.limits.messages == 5
    nsq.proofs.set("orders")
    wire.peer.rights_changed()
    assert not wire.usage.limits.has_rates


def test_nsq_a_client_that_is_not_read_is_not_given_up() -> None:
    nsq = Nsq(messages=1)
    wire = nsq.client("orders", b"PUB orders\n" + body(b"x"), b"PUB orders\n" + body(b"x"))
    assert wire.usage is not None
    wire.frames()
    until = wire.usage.charge(nsq.node.now)
    assert until > nsq.node.now
    wire.advance(200_000)  # more than two heartbeat intervals
    assert not wire.peer.closing
    assert {data for _, data in wire.frames()} == {b"_heartbeat_"}
    wire.usage.end_pause(nsq.node.now)
    wire.advance(59_000)
    assert not wire.peer.closing
    wire.advance(2_000)
    assert wire.peer.closing


# in flight


@pytest.mark.parametrize("consumers", [1, 3])
def test_nsq_what_is_in_flight_is_bounded_over_all_connections(consumers: int) -> None:
    nsq = Nsq(in_flight=10)
    wires = [nsq.consumer(100) for _ in range(consumers)]
    nsq.node.publish("orders", *[b"x"] * 50)
    done = 0
    for _ in range(100):
        assert nsq.in_flight <= 10
        for wire in wires:
            wire.advance(30)
            got = wire.messages()
            done += len(got)
            finish(wire, got)
            assert nsq.in_flight <= 10
        nsq.check()
    assert done == 50
    assert nsq.node.held() == 0


def test_nsq_consumers_take_turns_when_there_is_no_room() -> None:
    nsq = Nsq(in_flight=4)
    wires = [nsq.consumer(4) for _ in range(3)]
    nsq.node.publish("orders", *[b"x"] * 400)
    got = [0, 0, 0]
    for _ in range(60):
        for place, wire in enumerate(wires):
            wire.advance(1)
            messages = wire.messages()
            got[place] += len(messages)
            finish(wire, messages)
    assert min(got) > 0.5 * max(got)
    nsq.check()


def test_nsq_a_message_that_is_finished_lets_another_channel_go_on() -> None:
    nsq = Nsq(in_flight=1)
    first, second = nsq.consumer(5), nsq.consumer(5, "orders2")
    nsq.node.publish("orders", b"1")
    nsq.node.publish("orders2", b"2")
    (one,) = first.advance(300).messages()
    assert second.advance(300).messages() == []
    finish(first, [one])
    assert [data for _, _, data in second.advance(300).messages()] == [b"2"]
    first.peer.disconnected()
    second.peer.disconnected()
    nsq.check()
    assert not nsq.accounts.of("orders").blocked


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


def test_nsq_messages_that_time_out_make_room() -> None:
    nsq = Nsq(in_flight=1)
    first, second = nsq.consumer(5), nsq.consumer(5, "orders2")
    nsq.node.publish("orders", b"1")
    nsq.node.publish("orders2", b"2")
    assert first.advance(300).messages()
    first.send(b"RDY 0\n")
    assert second.advance(300).messages() == []
    for wire in (first, second):
        wire.peer.introduction.liveness.last_activity = nsq.node.now
    assert second.advance(60_000).messages()
    nsq.check()


def worker(wire: BeanstalkWire) -> BeanstalkWire:
    said = wire.ask(b"auth " + token("worker") + b"\r\nuse work\r\nwatch work\r\nignore default\r\n")
    assert said.endswith(b"WATCHING 1\r\n")
    return wire


def workers(count: int, **limits: int) -> list[BeanstalkWire]:
    """Workers of one node that watch `work`, and are all the same identity."""
    node, context = Node(), BeanstalkContext(proofs=Proofs("worker", **limits), accounts=Accounts())
    return [worker(BeanstalkWire(node, context)) for _ in range(count)]


def test_beanstalk_a_reserve_waits_for_room() -> None:
    first, second = workers(2, in_flight=2)
    first.ask(put(b"1") + put(b"2") + put(b"3") + put(b"4"))
    assert first.ask(b"reserve\r\nreserve\r\n").count(b"RESERVED") == 2
    assert second.ask(b"reserve\r\n") == b""
    assert second.advance(100).said() == b""
    assert first.ask(b"reserve-with-timeout 0\r\n") == b"TIMED_OUT\r\n"
    assert first.ask(b"delete 1\r\n") == b"DELETED\r\n"
    assert second.advance(100).said() == b"RESERVED 3 1\r\n3\r\n"
    assert second.ask(b"reserve-job 4\r\n") == b"OUT_OF_MEMORY\r\n"
    first.node.broker.check()


def test_beanstalk_a_worker_that_waits_gets_no_job_beyond_the_limit() -> None:
    first, second, third = workers(3, in_flight=1)
    assert first.ask(b"reserve\r\n") == second.ask(b"reserve\r\n") == b""
    third.ask(put(b"1") + put(b"2"))
    said = [first.advance(50).said(), second.advance(50).said()]
    assert sorted(map(len, said)) == [0, len(b"RESERVED 1 1\r\n1\r\n")]
    holder, other = (first, second) if said[0] else (second, first)
    holder.ask(b"release 1 0 0\r\n")
    assert other.advance(50).said() == b"RESERVED 1 1\r\n1\r\n"
    first.node.broker.check()


def test_beanstalk_a_reserve_that_waits_for_room_times_out() -> None:
    first, second = workers(2, in_flight=1)
    first.ask(put(b"1") + put(b"2") + b"reserve\r\n")
    assert second.ask(b"reserve-with-timeout 1\r\n") == b""
    assert second.advance(999).said() == b""
    assert second.advance(2).said() == b"TIMED_OUT\r\n"
    assert second.ask(b"reserve\r\n") == b""
    assert second.eof().said() == b"TIMED_OUT\r\n"
    assert first.ask(b"touch 1\r\nreserve\r\n") == b"TOUCHED\r\n"
    assert first.advance(58_900).said() == b""
    assert first.advance(200).said() == b"DEADLINE_SOON\r\n"


def test_beanstalk_a_batch_has_as_many_jobs_as_there_is_room() -> None:
    first, second = workers(2, in_flight=3)
    first.ask(b"".join(put(b"%d" % number) for number in range(5)))
    assert first.ask(b"reserve-batch 2 0\r\n").startswith(b"RESERVED_BATCH 2\r\n")
    assert second.ask(b"reserve-batch 5 0\r\n").startswith(b"RESERVED_BATCH 1\r\n")
    assert second.ask(b"reserve-batch 5 0\r\n") == b"TIMED_OUT\r\n"


def test_beanstalk_a_worker_that_waits_for_room_is_told_when_its_right_ends() -> None:
    first, second = workers(2, in_flight=1)
    first.ask(put(b"1") + b"reserve\r\n")
    assert second.ask(b"reserve\r\n") == b""
    proofs = second.peer.credential._proofs
    proofs.set("orders")
    second.peer.rights_changed()
    assert second.said() == b"UNAUTHORIZED\r\n"
    assert second.peer.outbox.closing


def disque(**limits: int) -> DisqueWire:
    """A client that is `worker`."""
    node = Node()
    context = context_of(node)
    context.proofs, context.accounts = Proofs("worker", **limits), Accounts()
    return another(DisqueWire(node, context))


def another(wire: DisqueWire) -> DisqueWire:
    wire = DisqueWire(wire.node, wire.context)
    assert wire.do("AUTH", token("worker")) == "OK"
    return wire


def test_disque_jobs_stay_counted_when_their_client_goes() -> None:
    first = disque(in_flight=2)
    ids = [first.add("work", str(number)) for number in range(4)]
    assert len(first.get("work", count=10)) == 2
    first.leave()
    second = another(first)
    assert second.get("work") == []
    assert second.replies(request("GETJOB", "FROM", "work")) == []
    assert second.advance(100).replies() == []
    third = another(first)
    assert third.do("ACKJOB", ids[0]) == 1
    ((found,),) = second.advance(100).replies()
    assert found[2] == b"2"
    assert second.replies(request("GETJOB", "TIMEOUT", 50, "FROM", "work")) == []
    assert second.advance(100).replies() == [None]
    second.node.broker.check()


def test_disque_a_client_that_waits_gets_no_job_beyond_the_limit() -> None:
    first = disque(in_flight=1)
    second, producer = another(first), another(first)
    for wire in (first, second):
        assert wire.replies(request("GETJOB", "FROM", "work")) == []
    ids = [producer.add("work", str(number)) for number in range(2)]
    got = [wire.advance(50).replies() for wire in (first, second)]
    assert sorted(map(len, got)) == [0, 1]
    assert producer.do("ACKJOB", ids[0]) == 1
    other = second if got[0] else first
    ((found,),) = other.advance(50).replies()
    assert found[1].decode() == ids[1]
    first.node.broker.check()


# output


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

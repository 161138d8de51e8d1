"""Clients whose identity has limits: too many connections, and what is counted. No sockets, in virtual time.

Rates of connections are in tests/nsqd/net/test_throttling.py.
"""

import json

from nsqd.protocols.account import Accounts
from nsqd.protocols.beanstalk.client import BeanstalkContext
from nsqd.protocols.nsq.settings import Settings
from shared.tls.info import TlsInfo
from tests.nsqd.core.node import Node
from tests.nsqd.protocols.beanstalk.wire import Wire as BeanstalkWire
from tests.nsqd.protocols.beanstalk.wire import put
from tests.nsqd.protocols.disque.wire import Wire as DisqueWire
from tests.nsqd.protocols.disque.wire import context_of
from tests.nsqd.protocols.nsq.wire import Wire, body, mpub
from tests.nsqd.protocols.rights.limited_clients import Nsq, disque
from tests.nsqd.protocols.rights.proofs import Proofs, token

FULL = b"E_AUTH_FAILED AUTH too many connections"
AUTH = b"AUTH\n" + body(token("orders"))


# connections


def test_nsq_too_many_connections_fail_their_authorization_also_by_certificate() -> None:
    nsq = Nsq(connections=2)
    first, second = nsq.client(), nsq.client()
    third = nsq.client()
    assert third.replies() == [FULL]
    assert third.peer.closing
    assert nsq.client("worker").replies() != [FULL]
    assert json.loads(second.send(AUTH).replies()[1])["identity"] == "orders", "the same token again"
    assert nsq.accounts.account("orders").figures().connections == 2
    first.peer.disconnected()
    first.peer.disconnected()
    assert json.loads(nsq.client().replies()[0])["identity"] == "orders"
    assert nsq.accounts.account("orders").figures().refused == 1
    second.send(b"AUTH\n" + body(token("worker")))
    assert {one.name: one.connections for one in nsq.accounts.figures()} == {"orders": 1, "worker": 2}
    nsq = Nsq()
    entry = '[[certificate]]\nname = "billing"\nsubject = "CN=billing"\nroles = ["producer"]\nlimits = { connections = 1 }\n'
    nsq.proofs.file.certificates = Proofs.parsed(entry).certificates
    pub = b"PUB orders\n" + body(b"x")
    for wanted in (b"OK", FULL):
        wire = Wire(nsq.node, Settings(auth_required=True), proofs=nsq.proofs, asks=False, accounts=nsq.accounts)
        wire.peer.upgraded(TlsInfo("TLS1.3", "", "", True, "billing", subject="CN=billing"))
        assert wire.send(pub).replies()[1:] == [wanted]


def test_too_many_connections_of_beanstalkd_and_disque_are_strangers() -> None:
    context = BeanstalkContext(proofs=Proofs("worker", connections=1), accounts=Accounts())
    node = Node()
    first, second = BeanstalkWire(node, context), BeanstalkWire(node, context)
    auth = b"auth " + token("worker") + b"\r\n"
    assert first.ask(auth) == b"AUTHORIZED\r\n"
    assert second.ask(auth + b"use work\r\n") == b"UNAUTHORIZED\r\nUNAUTHORIZED\r\n"
    first.leave()
    assert second.ask(auth + b"use work\r\n") == b"AUTHORIZED\r\nUSING work\r\n"
    first = disque(connections=1)
    second = DisqueWire(first.node, first.context)
    assert second.do("AUTH", token("worker")) == "-ERR too many connections"
    assert second.do("HELLO", 2, "AUTH", "x", token("worker")) == "-ERR too many connections"
    assert second.do("PING") == "-NOAUTH Authentication required."
    first.leave()
    assert second.do("AUTH", token("worker")) == "OK"


# publishing


def test_what_is_published_is_counted_by_name() -> None:
    nsq = Nsq()
    wire = nsq.client()
    pub = b"PUB orders\n" + body(b"12345")
    wire.send(pub).send(pub).send(pub + pub)  # read exactly, repeated, and in a row
    wire.send(mpub(b"orders", b"1", b"23") + b"DPUB orders 10\n" + body(b"1234"))
    wire.send(mpub(b"orders", *[b"x"] * 20_000))  # in slices
    one = nsq.accounts.account("orders").figures()
    assert (one.messages, one.bytes) == (4 + 3 + 20_000, 4 * 5 + 3 + 4 + 20_000)
    wire.peer.disconnected()
    assert nsq.accounts.account("orders").figures().messages == 4 + 3 + 20_000
    context = BeanstalkContext(proofs=nsq.proofs, accounts=nsq.accounts)
    jobs = BeanstalkWire(nsq.node, context)
    jobs.ask(b"auth " + token("worker") + b"\r\nuse work\r\n" + put(b"12") + put(b"34") + put(b"5", priority=3))
    queue = context_of(nsq.node)
    queue.proofs, queue.accounts = nsq.proofs, nsq.accounts
    client = DisqueWire(nsq.node, queue)
    client.do("AUTH", token("worker"))
    for _ in range(3):
        client.add("work", "abc")
    one = nsq.accounts.account("worker").figures()
    assert (one.messages, one.bytes, one.connections) == (6, 14, 2)


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

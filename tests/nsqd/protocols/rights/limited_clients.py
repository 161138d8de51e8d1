"""Clients for tests of limits: all of one identity, with its token shown."""

from dataclasses import replace
from typing import Any

from nsqd.protocols.account import Accounts
from nsqd.protocols.beanstalk.client import BeanstalkContext
from nsqd.protocols.nsq.limited import LimitedSink
from nsqd.protocols.nsq.settings import Settings
from shared.process.unix_sockets import NOBODY
from tests.nsqd.core.node import Node
from tests.nsqd.protocols.beanstalk.wire import Wire as BeanstalkWire
from tests.nsqd.protocols.disque.wire import Wire as DisqueWire
from tests.nsqd.protocols.disque.wire import context_of
from tests.nsqd.protocols.nsq.wire import Wire, body
from tests.nsqd.protocols.rights.proofs import Proofs, token


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
        return self.accounts.account("orders").in_flight()

    def check(self) -> None:
        self.node.broker.check()
        account = self.accounts.account("orders")
        for blocked in account.blocked:
            assert isinstance(blocked, LimitedSink)
            assert blocked.usage in account.usages


def beanstalk_client(proofs: Proofs | None, user: int = NOBODY, **more: Any) -> BeanstalkWire:
    """A client of a node of its own. `more`: of the context."""
    return BeanstalkWire(None, BeanstalkContext(proofs=proofs, **more), user)


def disque_client(proofs: Proofs | None, user: int = NOBODY, **more: Any) -> DisqueWire:
    node = Node()
    return DisqueWire(node, replace(context_of(node), proofs=proofs, **more), user)


def worker(wire: BeanstalkWire) -> BeanstalkWire:
    said = wire.ask(b"auth " + token("worker") + b"\r\nuse work\r\nwatch work\r\nignore default\r\n")
    assert said.endswith(b"WATCHING 1\r\n")
    return wire


def workers(count: int, **limits: int) -> list[BeanstalkWire]:
    """Workers of one node that watch `work`, and are anyway identity."""
    node, context = Node(), BeanstalkContext(proofs=Proofs("worker", **limits), accounts=Accounts())
    return [worker(BeanstalkWire(node, context)) for _ in range(count)]


def disque(**limits: int) -> DisqueWire:
    """A client that is `worker`."""
    return another(disque_client(Proofs("worker", **limits), accounts=Accounts()))


def another(wire: DisqueWire) -> DisqueWire:
    wire = DisqueWire(wire.node, wire.context)
    assert wire.do("AUTH", token("worker")) == "OK"
    return wire

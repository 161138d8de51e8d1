"""The first job of a new tube or queue, where nsqlookupd is asked for the topic's channels: what follows finds the job."""

from collections.abc import Callable

from nsqd.core.limits import Limits
from nsqd.protocols.beanstalk.client import BeanstalkContext
from tests.cases import each
from tests.nsqd.core.node import Node
from tests.nsqd.protocols.beanstalk.wire import Wire as BeanstalkWire
from tests.nsqd.protocols.beanstalk.wire import put
from tests.nsqd.protocols.disque.wire import Wire as DisqueWire
from tests.nsqd.protocols.disque.wire import context_of, request


class World:
    """A node with an nsqlookupd that has not answered yet."""

    def __init__(self) -> None:
        self.node = Node(Limits())
        self.node.broker.directory.ask_for_channels = True
        self.asked: list[tuple[str, Callable[[], None]]] = []

    def until_registered(self, topic: str, then: Callable[[], None]) -> None:
        self.asked.append((topic, then))

    def answer(self, wire: BeanstalkWire) -> None:
        """Let nsqlookupd answer about the topic that was asked for first."""
        name, then = self.asked.pop(0)
        self.node.broker.topics[name].start()
        then()
        assert wire.is_over
        wire.peer.resume(self.node.now)
        while wire.peer.has_more:
            wire.peer.receive(b"", self.node.now)
        self.node.turn()

    def beanstalk(self) -> BeanstalkWire:
        return BeanstalkWire(self.node, BeanstalkContext(until_registered=self.until_registered))

    def disque(self) -> DisqueWire:
        context = context_of(self.node)
        context.until_registered = self.until_registered
        return DisqueWire(self.node, context)


@each("first", [put(b"x"), b"put-unique key 0 0 1 1\r\nx\r\n"])
def test_what_a_client_of_beanstalkd_sends_after_the_first_put_finds_the_job(first: bytes) -> None:
    world = World()
    wire, line = world.beanstalk(), b"use new\r\n" + first + b"delete 1\r\n"
    assert wire.ask(line) == b"USING new\r\nINSERTED 1\r\n"  # at once; the next command waits
    assert [topic for topic, _ in world.asked] == ["new"]
    assert wire.ask(b"peek 1\r\n") == b""
    assert world.beanstalk().ask(b"list-tube-used\r\n") == b"USING default\r\n"
    world.answer(wire)
    assert wire.said() == b"DELETED\r\nNOT_FOUND\r\n"
    assert BeanstalkWire().ask(line).endswith(b"DELETED\r\n"), "without an nsqlookupd no command waits"


def test_puts_that_come_together_wait_once_and_a_client_that_hangs_up_leaves_its_job() -> None:
    world = World()
    wire = world.beanstalk()
    said = wire.ask(b"use new\r\n" + put(b"x") * 5 + b"stats-tube new\r\n")
    assert said.count(b"INSERTED") in (1, 5)
    while world.asked:
        world.answer(wire)
    assert b"current-jobs-ready: 5\n" in said + wire.said()
    world = World()
    wire = world.beanstalk()
    wire.ask(b"use new\r\n" + put(b"x"))
    wire.peer.receive_eof()
    assert not wire.peer.outbox.closing
    world.answer(wire)
    assert wire.peer.outbox.closing
    assert b"current-jobs-ready: 1\n" in world.beanstalk().ask(b"stats-tube new\r\n")


def test_what_a_client_of_disque_sends_after_the_first_addjob_finds_the_job() -> None:
    world = World()
    wire = world.disque()
    (job,) = wire.replies(request("ADDJOB", "new", "x", 0))
    wire.peer.receive(request("QLEN", "new") + request("ACKJOB", str(job)), world.node.now)
    world.node.turn()
    assert wire.replies() == []
    world.answer(wire)
    assert wire.replies() == [1, 1]

"""No turn is long because many clients ask for much at once: what may take long waits, and others do not."""

from typing import Any

import pytest

from nsqd.core.limits import Limits
from nsqd.core.sequence.put_batch import JobOptions
from nsqd.core.work_queue.waiters import MOST_NAMES
from nsqd.net.reactor import DUE_AT_ONCE
from tests.nsqd.core.node import MS, Node
from tests.nsqd.net.bench import Bench
from tests.nsqd.protocols.disque.wire import Wire, context_of, request

pytestmark = pytest.mark.process

COUNT, QUEUES = 20, 1000


class SlowBench(Bench):
    """A reactor for which each reading of the clock takes a millisecond, once `step` is set."""

    def __init__(self) -> None:
        super().__init__(Node(Limits(whole_job_ids=True)))
        self.step = 0
        self.speak_of_jobs(context_of(self.node))
        self.reactor.clock = self.reactor._unread._clock = self.look

    def look(self) -> tuple[int, int]:
        self.node.now += self.step
        return self.node.now, 1

    @property
    def waiting(self) -> int:
        return self.node.broker.tubes.waiters.count

    def wait_for_input(self, count: int) -> list[tuple[int, int]]:
        while True:
            events = self.reactor._epoll.poll(5)
            if len(events) >= count:
                return events


def many(number: int, timeout: int = 0) -> bytes:
    return request("GETJOB", "TIMEOUT", timeout, "FROM", *[f"q{number}-{one}" for one in range(QUEUES)])


def test_what_may_take_long_waits_behind_what_does_not() -> None:
    bench = SlowBench()
    clients = [bench.connect(b"") for _ in range(COUNT + 1)]
    for number, client in enumerate(clients[:-1]):
        client.sendall(many(number))
    clients[-1].sendall(request("PING"))
    bench.step = MS
    bench.reactor.turn(bench.wait_for_input(COUNT + 1))
    assert clients[-1].recv(100) == b"+PONG\r\n"
    assert 0 < bench.waiting < COUNT
    while bench.waiting < COUNT:
        bench.turn(1)


def test_many_that_give_up_at_once_do_so_in_several_turns() -> None:
    bench = SlowBench()
    clients = [bench.connect(b"") for _ in range(3 * DUE_AT_ONCE)]
    for client in clients:
        client.sendall(request("GETJOB", "TIMEOUT", 1000, "FROM", "q"))
    while bench.waiting < len(clients):
        bench.turn(1)
    bench.step = 3 * MS
    bench.node.now += 1000 * MS
    bench.reactor.turn([])
    assert 0 < bench.waiting < len(clients)
    while bench.waiting:
        bench.turn(1)
    assert all(client.recv(100) == b"*-1\r\n" for client in clients)


def waiting_wires(wire: Wire) -> list[Any]:
    wires = [wire.another() for _ in range(COUNT)]
    for number, one in enumerate(wires):
        assert one.replies(many(number)) == []
    return wires


def test_jobs_for_many_who_watch_many_queues_take_several_turns() -> None:
    wire = Wire(Node(Limits(whole_job_ids=True)))
    wires, broker = waiting_wires(wire), wire.node.broker
    for number in range(COUNT):
        broker.tubes.put_into(f"q{number}-5", [b"x"], JobOptions(was_put=True))
    broker.seal()
    broker.serve()
    given = COUNT - broker.tubes.waiters.count
    assert 0 < given <= MOST_NAMES // QUEUES + 1 < COUNT
    wire.node.turn()
    assert all(len(one.replies()) == 1 for one in wires)
    broker.check()


def test_who_watched_many_queues_is_forgotten_in_later_turns() -> None:
    wire = Wire(Node(Limits(whole_job_ids=True)))
    wires, waiters = waiting_wires(wire), wire.node.broker.tubes.waiters
    for one in wires:
        one.peer.disconnected()
    assert (waiters.count, waiters.count_at("q0-5")) == (0, 0)
    assert waiters.awaited_count == COUNT * QUEUES
    job = wire.add("q0-5")
    wire.node.turn()
    assert waiters.awaited_count == 0
    assert wire.get("q0-5")[0][1] == job
    wire.node.broker.check()

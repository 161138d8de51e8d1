"""ADDJOB while fewer nodes can have a copy than it asks for: it waits as long as its timeout says."""

import pytest

from nsqd.core.limits import Limits
from nsqd.core.sequence.mark import Mark
from nsqd.storage.memory import MemoryTopic
from tests.nsqd.core.node import Node
from tests.nsqd.protocols.disque.test_jobs import TOO_FEW, Grown
from tests.nsqd.protocols.disque.wire import Wire, context_of, request


@pytest.fixture
def wire(monkeypatch: pytest.MonkeyPatch) -> Wire:
    """A client of a node whose cluster has three nodes, of which no other one can have a copy."""

    def ask(journal: MemoryTopic, count: int, has_limit: bool = False) -> tuple[Mark, ...]:
        return ()

    monkeypatch.setattr(MemoryTopic, "ask_for_copies", ask)
    node = Node(Limits(whole_job_ids=True))
    context = context_of(node)
    cluster = Grown(7, 7711)
    cluster.nodes_ = 3
    context.cluster = cluster
    wire = Wire(node, context)
    context.clients = lambda: [wire.peer]
    return wire


def test_an_addjob_waits_until_enough_nodes_are_there(wire: Wire) -> None:
    assert wire.replies(request("ADDJOB", "q", "x", 30_000, "REPLICATE", 3)) == []
    assert wire.advance(1000).replies() == []
    wire.node.broker.set_copies(2)
    assert wire.replies() == []
    other = wire.another()
    assert other.do("QLEN", "q") == 0, "what waits is in no queue"
    assert b"blocked_clients:1\r\n" in other.do("INFO", "clients")
    assert b" flags=b " in other.do("CLIENT", "LIST")
    wire.node.broker.set_copies(3)
    (job_id,) = wire.replies()
    assert wire.get("q") == [(b"q", job_id, b"x")]
    assert b"blocked_clients:0\r\n" in other.do("INFO", "clients")
    assert not wire.node.broker.put_waiters
    wire.node.broker.check()


def test_it_is_refused_when_its_timeout_or_the_jobs_life_is_over_and_nothing_is_kept(wire: Wire) -> None:
    for copies in (4, 65_535):
        assert wire.do("ADDJOB", "q", "x", 30_000, "REPLICATE", copies) == TOO_FEW, "the cluster has three nodes"
    for timeout, ms in ((200, 200), (0, 100_000)):
        assert wire.replies(request("ADDJOB", "q", "x", timeout, "TTL", 100)) == []
        assert wire.advance(ms - 1).replies() == []
        assert wire.advance(1).replies() == [TOO_FEW]
    wire.node.broker.set_copies(3)
    assert wire.advance(100_000).replies() == []
    assert wire.do("QLEN", "q") == 0
    assert wire.do("QSCAN") == [b"0", []], "a job that is refused makes no queue"


def test_the_time_that_it_has_waited_counts(wire: Wire) -> None:
    wire.replies(request("ADDJOB", "q", "x", 1000))
    for _ in range(9):
        wire.advance(100).node.broker.set_copies(1)
        wire.node.broker.set_copies(2)
        assert wire.replies() == []
    assert wire.advance(100).replies() == [TOO_FEW]


def test_later_commands_wait_for_it(wire: Wire) -> None:
    one = request("ADDJOB", "q", "x", 1000)
    assert wire.replies(one * 3 + request("PING")) == []
    wire.node.broker.set_copies(3)
    *ids, pong = wire.replies()
    assert (len(set(ids)), pong) == (3, "PONG")
    assert wire.context.counts[b"addjob"] == 3, "each counts once"


def test_what_asks_for_no_copies_does_not_wait(wire: Wire) -> None:
    wire.add("q", "x", "ASYNC")
    wire.add("q", "x", "REPLICATE", 1)
    assert wire.do("QLEN", "q") == 2


def test_a_client_that_is_gone_adds_nothing(wire: Wire) -> None:
    wire.replies(request("ADDJOB", "q", "x", 30_000))
    other = wire.another()
    wire.leave()
    wire.node.broker.set_copies(3)
    assert other.do("QLEN", "q") == 0
    assert not wire.node.broker.put_waiters


def test_a_client_that_sends_no_more_waits_for_a_second(wire: Wire) -> None:
    wire.replies(request("ADDJOB", "q", "x", 30_000))
    assert wire.eof().advance(999).replies() == []
    assert wire.advance(1).replies() == [TOO_FEW]
    assert wire.peer.outbox.closing

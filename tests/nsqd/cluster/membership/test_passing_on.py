"""ADDJOB and GETJOB at a node that leaves its cluster or drains: other nodes do what it cannot do itself. No socket."""

import pytest

from nsqd.cluster.remote_jobs.lending import ANSWER_WITHIN
from nsqd.cluster.wire.frames import FrameKind
from nsqd.core.sequence.mark import Mark
from nsqd.protocols.disque.client import COPIES_TOO_LATE, TOO_FEW_NODES
from nsqd.protocols.disque.context import NodeFacts, Priority
from nsqd.protocols.disque.jobs import CANNOT_HOLD, LEAVING
from nsqd.storage.memory import MemoryTopic
from tests.cases import each
from tests.nsqd.cluster.stations import Cluster, Station, ask, nodes
from tests.nsqd.core.node import MS
from tests.nsqd.protocols.disque.test_jobs import Grown
from tests.nsqd.protocols.disque.wire import Wire, request

REFUSED = "-" + (TOO_FEW_NODES + CANNOT_HOLD).decode()
LARGE = b"x" * 1_000_000


def leader_of(job_id: str, *stations: Station) -> list[int]:
    return [one.number for one in stations if one.client().context.queues.find(one.context.ids.decode(job_id.encode()))]


def leaving(station: Station) -> Wire:
    client = station.client()
    assert client.do("CLUSTER", "LEAVING", "yes") == "OK"
    return client


@each("body", [b"small", LARGE, b""])
def test_a_job_that_is_added_at_a_leaving_node_is_placed_on_another_one(body: bytes) -> None:
    cluster, a, b, c = nodes(3)
    client = leaving(a)
    found = []
    for _ in range(4):
        job_id = ask(cluster, client, "ADDJOB", "q", body, 5000, "RETRY", 77)
        found += leader_of(job_id, a, b, c)
    assert found == [2, 3, 2, 3], "the others take turns"
    shown = c.client().show(job_id)
    assert (shown["retry"], shown["body"]) == (77, body)
    assert a.client().do("QLEN", "q") == 0
    assert ask(cluster, client, "ACKJOB", job_id) == 1


def test_what_is_wrong_with_an_addjob_is_said_as_ever() -> None:
    cluster = Cluster(2)
    client = leaving(cluster.stations[0])
    assert client.do("ADDJOB", "q", "x", 0, "TTL", 0) == "-ERR TTL must be a number > 0"
    assert client.do("ADDJOB", "a b", "x", 0).startswith("-ERR Invalid queue name")
    cluster.stations[1].client().do("PAUSE", "q", "in")
    assert ask(cluster, client, "ADDJOB", "q", "x", 0) == "-PAUSED Queue paused in input, try later"
    assert ask(cluster, client, "ADDJOB", "q", "x", 0, "REPLICATE", 3) == "-" + TOO_FEW_NODES.decode()


def test_a_node_that_takes_no_jobs_either_is_passed_over() -> None:
    cluster, a, b, c = nodes(3)
    client = leaving(a)
    b.node.broker.drain(True)
    assert [leader_of(ask(cluster, client, "ADDJOB", "q", "x", 0), a, b, c) for _ in range(3)] == [[3]] * 3
    c.node.broker.drain(True)
    assert ask(cluster, client, "ADDJOB", "q", "x", 0) == REFUSED


def test_without_another_node_the_error_says_why() -> None:
    cluster, a, b = nodes(2)
    client = leaving(a)
    cluster.cut(a, b)
    assert client.do("ADDJOB", "q", "x", 0) == REFUSED
    cluster.connect(a, b)
    a.cluster.membership.is_awaited = lambda number: False
    assert client.do("ADDJOB", "q", "x", 0) == REFUSED
    a.cluster.membership.is_awaited = lambda number: True
    assert client.do("ADDJOB", "q", LARGE + b"x" * 48_500, 0) == REFUSED, "it does not fit into one frame"
    assert ask(cluster, client, "ADDJOB", "q", "x", 0).startswith("D-")
    client.do("CLUSTER", "LEAVING", "no")
    assert leader_of(ask(cluster, client, "ADDJOB", "q", "x", 0), a, b) == [1]


def test_a_node_that_does_not_answer_may_have_added_the_job() -> None:
    cluster = Cluster(2)
    client = leaving(cluster.stations[0])
    cluster.holds = lambda source, target, kind: kind is FrameKind.SAID
    assert client.replies(request("ADDJOB", "q", "x", 500) + request("PING")) == []
    cluster.advance(ANSWER_WITHIN // MS + 499)
    assert client.replies() == []
    cluster.advance(2)
    assert client.replies() == ["-" + COPIES_TOO_LATE.decode(), "PONG"]


def test_the_other_node_waits_for_copies_as_long_as_the_client_said(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[bool] = []

    def ask_for(journal: MemoryTopic, count: int, has_limit: bool = False) -> tuple[Mark, ...]:
        asked.append(has_limit)
        return ()

    monkeypatch.setattr(MemoryTopic, "ask_for_copies", ask_for)
    cluster, a, b = nodes(2)
    grown = Grown(2, 0)
    grown.nodes_ = 3
    b.context.cluster = b.jobs._for_others.cluster = grown
    client = leaving(a)
    assert client.replies(request("ADDJOB", "q", "x", 3000)) == []
    cluster.settle()
    cluster.advance(2999)
    assert client.replies() == []
    cluster.advance(1)
    assert client.replies() == ["-" + TOO_FEW_NODES.decode()]
    assert client.replies(request("ADDJOB", "q", "x", 3000)) == []
    cluster.settle()
    b.node.broker.set_copies(3)
    cluster.settle()
    cluster.settle()
    assert client.replies()[0].startswith("D-")
    assert asked == [False], "a reply that waits for copies without end would hold up all others to that node"


def test_a_job_whose_copies_do_not_come_is_not_acknowledged() -> None:
    cluster, a, b = nodes(2)
    client = leaving(a)
    b.held = []
    assert client.replies(request("ADDJOB", "q", "x", 0)) == []
    cluster.settle()
    (replies,) = b.held
    replies.give_up()
    cluster.settle()
    assert client.replies() == ["-" + COPIES_TOO_LATE.decode()]


def test_a_drained_node_passes_jobs_on_too() -> None:
    cluster, a, b = nodes(2)
    a.node.broker.drain(True)
    assert leader_of(ask(cluster, a.client(), "ADDJOB", "q", "x", 0), a, b) == [2]


def test_a_getjob_at_a_leaving_node_waits_for_jobs_that_were_queued_there() -> None:
    cluster, others = Cluster(2), Priority.GOOD
    a, b = cluster.stations
    client = a.client()
    facts = a.context.cluster.nodes
    a.context.cluster.nodes = lambda: [*facts(), NodeFacts(2, "", 0, others)]
    job_id = client.add("q", b"x")
    client.do("CLUSTER", "LEAVING", "yes")
    a.node.broker.agenda.is_held = True  # as the node does when it hands its log over
    assert client.do("QLEN", "q") == 1
    assert client.do("GETJOB", "FROM", "other") == "-" + LEAVING.decode()
    others = Priority.GONE
    assert client.do("GETJOB", "FROM", "q") == "-" + LEAVING.decode()
    others = Priority.GOOD
    assert client.do("GETJOB", "NOHANG", "FROM", "q") is None
    assert client.replies(request("GETJOB", "FROM", "other", "q")) == []
    a.client().do("ENQUEUE", job_id)
    cluster.settle()
    assert client.replies() == [], "this node delivers nothing more"
    taken = cluster.add(b, "q", b"as its new leader")
    assert client.replies() == [[[b"q", taken.encode(), b"as its new leader"]]]

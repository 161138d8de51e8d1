"""Adding, fetching and finishing jobs, as clients of Disque see it. The expected replies are those of Disque 1.0-rc1."""

from collections.abc import Callable

import pytest

from nsqd.core.limits import Limits
from nsqd.core.sequence.mark import Mark
from nsqd.protocols.disque.context import Alone
from nsqd.protocols.disque.ids import JobIds
from nsqd.storage.memory import MemoryTopic
from tests.cases import each
from tests.nsqd.core.node import Node
from tests.nsqd.protocols.beanstalk.wire import Wire as Beanstalk
from tests.nsqd.protocols.disque.wire import Wire, context_of, new_wire, request

UNKNOWN = JobIds(b"a cluster").encode(7 << 48 | 999_999, 86_400, 300).decode()
FOREIGN = JobIds(b"another cluster").encode(7 << 48 | 1, 86_400, 300).decode()
FORGED = "D-zzzzzzzz-!!!!!!!!!!!!!!!!!!!!!!!!-zzzz"
NOBODYS = JobIds(b"a cluster").encode(999 << 48 | 1, 86_400, 300).decode()
BAD_NAME = (
    "-ERR Invalid queue name: 1 to 200 printable ASCII characters without spaces, not with # at the beginning"
    " or #ephemeral at the end"
)
TOO_FEW = "-NOREPL Not enough reachable nodes for the requested replication level"


@each("options, suffix, retry", [
    ((), "05a1", 300), (("RETRY", 0), "05a0", 0), (("TTL", 29), "0001", 2), (("TTL", 1), "0001", 1),
    (("TTL", 120), "0003", 12), (("TTL", 60, "RETRY", 0), "0000", 0), (("TTL", 9_999_999), "ffff", 300),
    (("TTL", 9_999_999, "RETRY", 0), "fffe", 0),
], wire=new_wire)  # fmt: skip
def test_an_id_contains_ttl_and_retry(wire: Wire, options: tuple[str | int, ...], suffix: str, retry: int) -> None:
    job_id = wire.add("q", b"", *options)
    assert job_id.endswith("-" + suffix)
    shown = wire.show(job_id)
    assert shown["retry"] == retry


def test_a_wait_ends_when_its_time_is_over_and_a_delay_is_waited_for(wire: Wire) -> None:
    data = request("GETJOB", "TIMEOUT", 250, "FROM", "q") + request("PING")
    assert wire.replies(data) == []
    assert wire.advance(249).replies() == []
    assert wire.advance(1).replies() == [None, "PONG"]
    assert wire.node.broker.tubes.waiters.count == 0
    job_id = wire.add("q", b"x", "DELAY", 3)
    shown = wire.show(job_id)
    assert (shown["state"], shown["delay"], shown["next-requeue-within"]) == (b"active", 3, 3000)
    assert wire.do("QLEN", "q") == 0
    wire.replies(request("GETJOB", "TIMEOUT", 3000, "FROM", "q"))
    assert wire.advance(3_000).replies() == [[[b"q", job_id.encode(), b"x"]]]


def test_headers_are_for_a_getjob_that_asks_for_them(wire: Wire) -> None:
    wire.add("q", b"x", "HEADER", "A", "1", "HEADER", "b", "", "RETRY", 1)
    wire.add("q", b"y")
    (first,) = wire.do("GETJOB", "WITHHEADERS", "WITHCOUNTERS", "FROM", "q")
    assert first[2:] == [b"x", b"nacks", 0, b"additional-deliveries", 0, b"headers", [b"a", b"1", b"b", b""]]
    (second,) = wire.do("GETJOB", "WITHHEADERS", "FROM", "q")
    assert second[2:] == [b"y", b"headers", []]
    wire.replies(request("GETJOB", "FROM", "q"))
    ((again,),) = wire.advance(1_100).replies()
    assert again[2:] == [b"x"]


def state(wire: Wire, name: str) -> str:
    """The id of a job in that state."""
    retry = ("RETRY", 0) if name.startswith("once") else ()
    delay = ("DELAY", 100) if name.endswith("delayed") else ()
    job_id = wire.add("q", b"x", *retry, *delay)
    if name.endswith("fetched"):
        assert wire.get("q")[0][1] == job_id
    elif name.endswith("dequeued"):
        assert wire.do("DEQUEUE", job_id) == 1
    return job_id


STATES = ("queued", "fetched", "dequeued", "delayed", "once queued", "once dequeued", "once delayed")
NO_JOB = "-NOJOB Job not known in the context of this node."
# by command: for each of STATES the reply, and then state, nacks and additional deliveries; None: the job is gone
Q, A, GONE = ("queued", 0, 0), ("active", 0, 0), None
MATRIX = {
    "ACKJOB": [(1, GONE)] * 7,
    "FASTACK": [(1, GONE)] * 7,
    "DELJOB": [(1, GONE)] * 7,
    "NACK": [
        (0, Q), (1, ("queued", 1, 0)), (1, ("queued", 1, 0)), (1, ("queued", 1, 0)),
        (0, Q), (1, ("queued", 1, 0)), (1, ("queued", 1, 0)),
    ],
    "ENQUEUE": [
        (0, Q), (1, ("queued", 0, 1)), (1, ("queued", 0, 1)), (1, Q),
        (0, Q), (1, ("queued", 0, 1)), (1, Q),
    ],
    "DEQUEUE": [(1, A), (0, A), (0, A), (0, A), (1, A), (0, A), (0, A)],
    "WORKING": [(300, A), (300, A), (300, A), (300, A), (0, Q), (0, A), (0, A)],
}  # fmt: skip


@each("command", MATRIX)
@each("place", range(len(STATES)), wire=new_wire)
def test_each_command_in_each_state(wire: Wire, command: str, place: int) -> None:
    job_id = state(wire, STATES[place])
    reply, expected = MATRIX[command][place]
    assert wire.do(command, job_id) == reply
    shown = wire.show(job_id)
    after = None if shown is None else (shown["state"].decode(), shown["nacks"], shown["additional-deliveries"])
    assert after == expected
    assert wire.do("QLEN", "q") == (after is not None and after[0] == "queued")
    wire.node.broker.check()


@each("job_id", [UNKNOWN, FOREIGN, FORGED, NOBODYS], wire=new_wire)
def test_an_unknown_job(wire: Wire, job_id: str) -> None:
    wire.add("q")
    for command in ("ACKJOB", "FASTACK", "DELJOB", "NACK", "ENQUEUE", "DEQUEUE"):
        assert wire.do(command, job_id) == 0
    assert wire.do("WORKING", job_id) == NO_JOB
    assert wire.do("SHOW", job_id) is None


def test_several_ids_in_one_command(wire: Wire) -> None:
    first, second = wire.add("q"), wire.add("q")
    assert wire.do("ACKJOB", first, "bad", second) == "-BADID Invalid Job ID format."
    assert wire.do("ACKJOB", first[:-4] + "05a0") == 0, "an id with another TTL"
    assert wire.do("QLEN", "q") == 2
    assert wire.do("ACKJOB", first, first, UNKNOWN, second) == 2
    assert wire.do("ACKJOB") == 0
    assert wire.do("ACKJOB", *[UNKNOWN] * 1022, wire.add("q")) == 1
    assert wire.replies(request("ACKJOB", *[UNKNOWN] * 1024)) == ["-ERR Protocol error: invalid multibulk length"]
    assert wire.peer.outbox.closing


@each("words, expected", [
    (("ADDJOB", "q", "b", 0, "REPLICATE", 2), TOO_FEW),
    (("ADDJOB", "q", "b", 0, "TTL", 10**12), "-ERR TTL must be a number > 0"),
    (("ADDJOB", "q", "b", 0, "MAXLEN", 1), "-MAXLEN Queue is already longer than the specified MAXLEN count"),
    (("ADDJOB", "a b", "b", 0), BAD_NAME),
    (("ADDJOB", "q#ephemeral", "b", 0), BAD_NAME),
    (("ADDJOB", "#kept-acknowledgements", "b", 0), BAD_NAME),
    (("ADDJOB", "q", "b"), "-ERR wrong number of arguments for 'addjob' command"),
    (("GETJOB", "COUNT", 0, "FROM", "q"), "-ERR COUNT must be a number greater than zero"),
    (("NOSUCH", "x"), "-ERR unknown command 'NOSUCH'"),
], wire=new_wire)  # fmt: skip
def test_refusals(wire: Wire, words: tuple[str | int, ...], expected: str) -> None:
    wire.add("q")
    assert wire.do(*words) == expected
    assert wire.do(*words) == expected  # though ADDJOB and GETJOB are remembered
    assert wire.do("QLEN", "q") == 1


def test_working_is_refused_in_the_second_half_of_a_life(wire: Wire) -> None:
    job_id = wire.add("q", b"x", "TTL", 100, "RETRY", 10)
    assert wire.get("q")
    for _ in range(5):
        assert wire.do("WORKING", job_id) == 10
        wire.advance(9_900)
    wire.advance(500)
    assert wire.do("WORKING", job_id) == 10
    wire.advance(1)
    assert wire.do("WORKING", job_id).startswith("-TOOLATE Half of job TTL already elapsed")


class Grown(Alone):
    """A cluster of `nodes_` nodes, of which the others have no copies."""

    nodes_ = 1

    def size(self) -> int:
        return self.nodes_


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many copies were asked for, in order."""
    found: list[int] = []

    def ask(journal: MemoryTopic, count: int, has_limit: bool = False) -> tuple[Mark, ...]:
        found.append(count)
        return ()

    monkeypatch.setattr(MemoryTopic, "ask_for_copies", ask)
    return found


def grown_wire(cluster: Grown) -> Wire:
    node = Node(Limits(whole_job_ids=True))
    context = context_of(node)
    context.cluster = cluster
    return Wire(node, context)


def test_a_remembered_command_asks_for_as_many_copies_as_the_cluster_has_nodes_now(asked: list[int]) -> None:
    cluster = Grown(7, 7711)
    wire = grown_wire(cluster)
    wire.add("q")
    wire.add("q")
    cluster.nodes_ = 3
    assert [wire.do("ADDJOB", "q", "body", 0, "REPLICATE", 4) for _ in range(2)] == [TOO_FEW] * 2
    assert wire.replies(request("ADDJOB", "q", "body", 5)) == []
    assert wire.advance(5).replies() == [TOO_FEW]
    assert asked == []

    wire.node.broker.set_copies(3)
    assert len(wire.replies(request("ADDJOB", "q", "body", 0) * 3)) == 3
    wire.add("q", "body", "REPLICATE", 2)
    wire.add("q", "body", "REPLICATE", 2)
    assert asked[-2:] == [2, 2]
    assert set(asked[:-2]) == {3}

    wire.node.broker.set_copies(1)
    assert wire.replies(request("ADDJOB", "q", "body", 0, "REPLICATE", 2)) == []
    wire.node.broker.set_copies(3)
    assert wire.replies()[0].startswith("D-")
    asked.clear()
    for _ in range(2):
        wire.add("q", "body", "REPLICATE", 2, "ASYNC")
    assert asked == []
    wire.node.broker.check()


def test_at_most_once_needs_one_copy_again_and_again() -> None:
    cluster = Grown(7, 7711)
    wire = grown_wire(cluster)
    for _ in range(2):
        wire.add("q", "body", "RETRY", 0)
    cluster.nodes_ = 3
    wire.node.broker.set_copies(3)
    refused = "-ERR With RETRY set to 0 please explicitly set  REPLICATE to 1 (at-most-once delivery)"
    assert [wire.do("ADDJOB", "q", "body", 0, "RETRY", 0) for _ in range(3)] == [refused] * 3


def test_jobs_are_shared_with_clients_of_beanstalkd(wire: Wire) -> None:
    worker = Beanstalk(wire.node)
    job_id = wire.add("default", b"from disque")
    answer = worker.ask(b"reserve-with-timeout 0\r\n")
    assert answer.startswith(b"RESERVED ")
    assert answer.endswith(b" 11\r\nfrom disque\r\n")
    number = answer.split()[1]
    assert wire.get("default") == []
    assert wire.do("WORKING", job_id) == 300  # any client of Disque may act on it; it stays the worker's
    assert worker.ask(b"touch %s\r\n" % number) == b"TOUCHED\r\n"
    assert wire.do("NACK", job_id) == 1
    assert worker.ask(b"delete %s\r\n" % number).startswith(b"DELETED")  # it is ready now
    assert worker.ask(b"put 5 0 60 2\r\nhi\r\n").startswith(b"INSERTED")
    ((queue, other, body),) = wire.get("default")
    assert (queue, body) == (b"default", b"hi")
    assert other.endswith("-ffff")  # it has no end of its life
    assert worker.ask(b"delete %d\r\n" % (7 << 48 | 2)) == b"NOT_FOUND\r\n"  # a client of Disque has fetched it
    assert wire.do("ACKJOB", other) == 1


def test_messages_of_nsq_are_jobs(wire: Wire) -> None:
    wire.node.publish("news", b"published")
    wire.node.turn()
    ((queue, job_id, body),) = wire.get("news")
    assert (queue, body) == (b"news", b"published")
    assert wire.do("ACKJOB", job_id) == 1
    assert wire.replies(request("GETJOB", "FROM", "later")) == []
    wire.node.publish("later", b"one")
    wire.node.turn()
    assert wire.replies()[0][0][2] == b"one"


def test_a_client_that_goes_in_every_state(wire: Wire) -> None:
    leaves: list[Callable[[Wire], object]] = [
        lambda client: client.replies(request("GETJOB", "FROM", "q", "r")),
        lambda client: client.replies(request("ADDJOB", "q", b"whole", 0)[:-3]),
        lambda client: client.send(request("ADDJOB", "q", b"added", 0)),
        lambda client: client.get("q"),
    ]
    for leave in leaves:
        client = wire.another()
        leave(client)
        client.leave()
        client.leave()
        wire.node.broker.check()
    assert wire.node.broker.tubes.waiters.count == 0
    assert wire.do("QLEN", "q") == 0

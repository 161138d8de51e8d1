"""Clients of Disque on several nodes: jobs are lent, and commands reach the owner of a job. No socket; time is given."""

import pytest

from nsqd.cluster.remote_jobs.job_frames import pack_loan
from nsqd.cluster.remote_jobs.job_owners import KEPT
from nsqd.cluster.remote_jobs.lending import ANSWER_WITHIN, MOST_AHEAD
from nsqd.cluster.wire.frames import KIND_AT, FrameKind, PeerError
from nsqd.core.limits import TooFewCopies, TooMany
from nsqd.core.message.epoch import Epoch
from nsqd.core.sequence.put_batch import JobOptions
from nsqd.core.work_queue.job import Job
from nsqd.core.work_queue.loan import Loan
from nsqd.core.work_queue.tube import Tube
from nsqd.core.work_queue.waiters import Reading
from tests.cases import each
from tests.nsqd.cluster.stations import Cluster, Station, ask, nodes, waiting
from tests.nsqd.core.node import MS, SECOND
from tests.nsqd.core.promoted import PromotedLog
from tests.nsqd.protocols.disque.wire import request

SMALL, LARGE = b"small", b"x" * 700_000


@each("body", [SMALL, LARGE, b""])
def test_a_job_added_anywhere_reaches_a_client_that_waits(body: bytes) -> None:
    cluster, a, _, c = nodes(3)
    client = cluster.waiting(c, "q", options=("WITHCOUNTERS", "WITHHEADERS"))
    job_id = cluster.add(a, "q", body, "HEADER", "a", "1")
    counters = b"nacks", 0, b"additional-deliveries", 0
    assert client.replies() == [[[b"q", job_id.encode(), body, *counters, b"headers", [b"a", b"1"]]]]
    assert a.client().get("q") == []


def test_a_loan_without_headers_is_refused() -> None:
    _, a, b = nodes(2)
    (frame,) = pack_loan(Loan(1, "q", 2, 0, 0, 0, 0, 0, b"no headers"))
    with pytest.raises(PeerError, match="headers"):
        a.jobs.receive(a.links[b.number], FrameKind.LOAN, frame[KIND_AT + 1 :], 0)


def test_a_job_that_was_in_transit_for_longer_than_its_retry_time_reaches_no_client() -> None:
    """Its owner may have given it to another client since, and knows that it is done."""
    for retry, is_given in ((1, False), (2, True), (0, True)):
        cluster, a, b = nodes(2)
        client = cluster.waiting(b, "q")
        b.links[1].delay = SECOND
        job_id = cluster.add(a, "q", b"x", "RETRY", retry)
        assert client.replies() == ([[[b"q", job_id.encode(), b"x"]]] if is_given else [])
        b.links[1].delay = 0
        cluster.advance(1100)
        if not is_given:
            assert client.replies() == [[[b"q", job_id.encode(), b"x"]]]


def test_a_queue_shows_from_which_nodes_its_jobs_came() -> None:
    cluster, a, b, c = nodes(3)
    client, other = c.client(), c.client()
    for station in (a, b, a):
        client.replies(request("GETJOB", "FROM", "q"))
        cluster.settle()
        cluster.add(station, "q")
        assert len(client.replies()) == 1
    stat = dict(zip(*[iter(other.do("QSTAT", "q"))] * 2, strict=True))
    assert stat[b"import-from"] == [c.context.ids.node_id(number) for number in (1, 2)]
    assert stat[b"import-rate"] == 3
    assert other.do("QSCAN", "IMPORTRATE", 1) == [b"0", [b"q"]]
    assert other.do("QSCAN", "IMPORTRATE", 3, "COUNT", 1) == [b"0", [b"q"]]
    assert other.do("QSCAN", "IMPORTRATE", 4)[1] == other.do("QSCAN", "IMPORTRATE", 1, "MINLEN", 1)[1] == []
    assert a.client().do("QSCAN", "IMPORTRATE", 1)[1] == []
    other.add("q")
    assert other.do("QSCAN", "IMPORTRATE", 1) == [b"0", [b"q"]], "once"
    cluster.advance(5_001)
    assert other.do("QSCAN", "IMPORTRATE", 1)[1] == []
    assert other.do("QSTAT", "q")[11] == []


def test_every_node_takes_commands_about_every_job() -> None:
    cluster, a, b, _ = nodes(3)
    adder, other = a.client(), b.client()
    ids = [adder.add("q", b"%d" % number, "RETRY", 60) for number in range(3)]
    own = other.add("q", b"own")
    assert ask(cluster, other, "SHOW", ids[0])[1] == ids[0].encode()
    assert ask(cluster, other, "WORKING", ids[0]) == 60
    assert ask(cluster, other, "NACK", ids[0]) == 1
    assert ask(cluster, other, "DEQUEUE", ids[1]) == 1
    assert ask(cluster, other, "ENQUEUE", ids[1]) == 1
    assert ask(cluster, other, "ACKJOB", *ids, own, ids[0]) == 4
    assert adder.do("QLEN", "q") == other.do("QLEN", "q") == 0
    assert ask(cluster, other, "WORKING", ids[0]) == "-NOJOB Job not known in the context of this node."
    assert ask(cluster, other, "SHOW", ids[0]) is None
    assert other.do("SHOW", own) is None


def test_a_pause_reaches_all_nodes_if_it_says_so() -> None:
    cluster = Cluster(3)
    clients = [station.client() for station in cluster.stations]

    def stat(*words: str) -> list[str]:
        replies = [clients[0].do("PAUSE", "q", *words)]
        cluster.settle()
        return replies + [client.do("PAUSE", "q", "state") for client in clients[1:]]

    assert stat("in") == ["in", "none", "none"]
    assert stat("out", "bcast") == ["out"] * 3
    assert stat("none") == ["none", "out", "out"]
    assert stat("state", "bcast") == ["none"] * 3


def test_only_the_owner_is_asked() -> None:
    cluster, a, b, _ = nodes(3)
    job_id = a.client().add("q")
    cluster.kinds.clear()
    assert ask(cluster, b.client(), "FASTACK", job_id) == 1
    assert cluster.kinds == [FrameKind.ASK, FrameKind.SAID]


def test_clients_of_the_owner_come_first() -> None:
    cluster, a, b = nodes(2)
    far = cluster.waiting(b, "q")
    near = waiting(a, "q")
    cluster.settle()
    cluster.add(a, "q", b"first")
    assert [one[0][2] for one in near.replies()] == [b"first"]
    assert far.replies() == []
    cluster.add(a, "q", b"second")
    assert [one[0][2] for one in far.replies()] == [b"second"]


def test_all_clients_of_another_node_that_begin_to_wait_together_are_lent_jobs_that_were_there() -> None:
    cluster, a, b = nodes(2)
    for body in (b"1", b"2", b"3"):
        a.client().add("q", body)
    clients = [waiting(b, "q"), waiting(b, "q")]
    cluster.settle()
    assert [one[2] for client in clients for ((one,),) in [client.replies()]] == [b"1", b"2"]
    assert a.client().do("QLEN", "q") == 1


def test_a_loan_without_a_waiting_client_is_returned_uncounted() -> None:
    cluster, a, b, c = nodes(3)
    client = cluster.waiting(c, "q")
    ids = [station.client().add("q", b"x") for station in (a, b)]
    cluster.settle()  # both owners lend, and one client waits
    ((got,),) = client.replies()
    (returned,) = set(ids) - {got[1].decode()}
    owner = a if returned == ids[0] else b
    shown = owner.client().show(returned)
    assert (shown["state"], shown["nacks"], shown["additional-deliveries"]) == (b"queued", 0, 0)
    assert owner.client().get("q") == [(b"q", returned, b"x")]
    assert FrameKind.RETURN in cluster.kinds


def test_a_job_without_retry_and_without_a_waiting_client_stays_at_the_node_that_got_it() -> None:
    cluster, a, b, c = nodes(3)
    client = cluster.waiting(c, "q")
    for station, body in ((a, b"a"), (b, b"b")):
        station.client().add("q", body, "RETRY", 0, "REPLICATE", 1)
    cluster.settle()
    ((first,),) = client.replies()
    ((_, second, body),) = c.client().get("q")
    assert {first[2], body} == {b"a", b"b"}
    assert a.client().get("q") == b.client().get("q") == []
    assert int(second[-4:], 16) % 2 == 0


@each("retry", [0, 1])
def test_a_loan_that_comes_after_its_end_is_not_delivered(retry: int) -> None:
    cluster, a, b = nodes(2)
    client = cluster.waiting(b, "q")
    a.client().add("q", b"old", "TTL", 1, "RETRY", retry, "REPLICATE", 1)
    for station in cluster.stations:  # the loan is on its way for two seconds
        station.node.now += 2 * SECOND
    cluster.settle()
    assert a.jobs.lending.lent == 1
    assert client.replies() == []
    assert b.client().get("q") == a.client().get("q") == []


def test_a_job_that_was_lent_comes_back_after_its_retry_time() -> None:
    cluster, a, b = nodes(2)
    client = cluster.waiting(b, "q")
    job_id = cluster.add(a, "q", b"x", "RETRY", 5)
    assert client.replies()[0][0][1] == job_id.encode()
    cluster.advance(4_900)
    assert a.client().get("q") == []
    cluster.advance(200)
    assert a.client().get("q") == [(b"q", job_id, b"x")]


@each("restarts", [False, True])
def test_a_loan_that_got_lost_is_taken_back_when_the_other_node_is_connected_again(restarts: bool) -> None:
    cluster, a, b = nodes(2)
    cluster.waiting(b, "q")
    cluster.holds = lambda source, target, kind: kind is FrameKind.LOAN
    job_id = cluster.add(a, "q", b"x")
    cluster.cut(a, b)
    cluster.holds = lambda source, target, kind: False
    assert a.client().get("q") == []
    if restarts:
        b = cluster.restart(2)
    cluster.connect(a, b)
    found = a.client().get("q") or b.client().get("q")
    shown = a.client().show(job_id)
    if restarts:
        assert found == [(b"q", job_id, b"x")]
    else:  # the client still waits, and gets it
        assert (found, shown["state"]) == ([], b"active")


def test_a_loan_to_a_node_that_is_no_longer_a_member_is_taken_back() -> None:
    cluster, a, b = nodes(2)
    cluster.waiting(b, "q")
    cluster.holds = lambda source, target, kind: kind is FrameKind.LOAN
    job_id = cluster.add(a, "q", b"x")
    cluster.cut(a, b)
    cluster.advance(2000)
    assert a.client().get("q") == [], "the node may return"
    a.cluster.membership.members.remove(b.identity)
    cluster.advance(2000)
    assert a.client().get("q") == [(b"q", job_id, b"x")]


def test_what_came_of_an_earlier_run_of_the_lender_says_nothing_of_its_loans() -> None:
    """Their numbers begin again. The simulator of clusters finds this fault too seldom."""
    cluster, a, b = nodes(2)
    client = cluster.waiting(b, "q")
    cluster.add(a, "q", b"earlier")
    assert len(client.replies()) == 1
    cluster.cut(a, b)
    a = cluster.restart(1)
    cluster.connect(a, b)
    client = cluster.waiting(b, "q")
    cluster.holds = lambda source, target, kind: kind is FrameKind.LOAN
    cluster.add(a, "q", b"later")
    cluster.cut(a, b)
    cluster.holds = lambda source, target, kind: False
    cluster.connect(a, b)
    assert [one[0][2] for one in client.replies()] == [b"later"]


def test_a_connection_that_was_confirmed_takes_nothing_back() -> None:
    cluster, a, b = nodes(2)
    client = cluster.waiting(b, "q")
    job_id = cluster.add(a, "q", b"x")
    assert len(client.replies()) == 1
    cluster.cut(a, b)
    cluster.connect(a, b)
    assert a.client().get("q") == []
    assert ask(cluster, b.client(), "ACKJOB", job_id) == 1


def test_who_waits_no_more_is_lent_nothing() -> None:
    cluster, a, b = nodes(2)
    client = cluster.waiting(b, "q", options=("TIMEOUT", 100))
    client.advance(100)
    cluster.settle()
    assert client.replies() == [None]
    leaving = cluster.waiting(b, "q")
    leaving.leave()
    cluster.settle()
    cluster.kinds.clear()
    job_id = cluster.add(a, "q", b"x")
    assert cluster.kinds == []
    assert a.client().get("q") == [(b"q", job_id, b"x")]
    assert "r" not in a.node.broker.topics


def test_an_acknowledgement_is_kept_for_an_owner_that_is_away() -> None:
    cluster, a, b = nodes(2)
    ids = [a.client().add("q", b"x"), a.client().add("q", b"y", "RETRY", 0)]
    cluster.cut(a, b)
    assert b.client().do("ACKJOB", *ids) == 0
    assert b.node.broker.tubes.tube(KEPT).jobs.count == 1  # no client waits for the other one again
    assert b.client().do("NACK", ids[0]) == 0
    assert b.client().do("QSCAN") == b.client().do("JSCAN") == [b"0", []]  # no client is shown where it is kept
    assert b.client().do("INFO", "jobs").endswith(b"registered_jobs:0\r\n")
    cluster.advance(5_000)
    assert a.client().do("QLEN", "q") == 2
    cluster.connect(a, b)
    cluster.advance(3_000)
    assert a.client().do("SHOW", ids[0]) is None
    assert a.client().do("QLEN", "q") == 1
    assert b.node.broker.tubes.tube(KEPT).jobs.count == 0


def test_a_kept_acknowledgement_stays_while_a_member_is_away_that_may_lead_a_log_with_the_job() -> None:
    cluster, a, b, c = nodes(3)
    job_id = cluster.add(a, "q", b"x")
    cluster.cut(a, b)
    ask(cluster, b.client(), "ACKJOB", job_id)
    cluster.cut(b, c)
    cluster.connect(cluster.restart(1), b)  # with an empty disk: another node leads its former log
    cluster.advance(3000)
    assert b.jobs.figures()["kept"] == 1
    cluster.connect(b, c)
    cluster.advance(3000)
    assert b.jobs.figures()["kept"] == 0


@each("number", [2, 3])
def test_a_kept_acknowledgement_stays_while_a_node_has_a_log_that_it_does_not_serve_yet(number: int) -> None:
    cluster, a, b, _ = nodes(3)
    job_id = cluster.add(a, "q", b"x")
    cluster.cut(a, b)
    ask(cluster, b.client(), "ACKJOB", job_id)
    promoter = cluster.stations[number - 1].cluster
    promoter.has_unserved_log = True
    cluster.connect(cluster.restart(1), b)
    cluster.advance(3000)
    assert b.jobs.figures()["kept"] == 1
    promoter.has_unserved_log = False
    cluster.advance(3000)
    assert b.jobs.figures()["kept"] == 0


@each("number", [1, 2])
def test_an_acknowledgement_is_kept_if_a_possible_owner_has_a_log_that_it_does_not_serve_yet(number: int) -> None:
    cluster, a, b = nodes(2)
    job_id = cluster.add(a, "q", b"x")
    cluster.cut(a, b)
    cluster.connect(cluster.restart(1), b)
    cluster.stations[number - 1].cluster.has_unserved_log = True
    assert ask(cluster, b.client(), "ACKJOB", job_id) == 0
    assert b.jobs.figures()["kept"] == 1


def test_an_acknowledgement_is_dropped_when_no_node_has_the_job_and_its_owner_has_left() -> None:
    cluster, a, b = nodes(2)
    job_id = cluster.add(a, "q", b"x")
    cluster.cut(a, b)
    ask(cluster, b.client(), "ACKJOB", job_id)
    assert b.jobs.figures()["kept"] == 1
    b.note_members([b.identity])
    cluster.advance(2000)
    cluster.advance(1000)
    assert b.jobs.figures()["kept"] == 0


def test_an_acknowledgement_of_ids_that_were_never_issued_is_not_kept() -> None:
    cluster, a, b = nodes(2)
    cluster.cut(a, b)
    b.cluster.leases[1] = 1000
    for message_id in (1 << 48 | 1000, 1 << 48 | 2000, 900 << 48 | 5, 2 << 48 | 77):
        assert b.client().do("ACKJOB", b.context.ids.encode(message_id, 86_400, 300)) == 0
    assert b.node.broker.tubes.tube(KEPT) is None
    assert b.client().do("ACKJOB", b.context.ids.encode(1 << 48 | 999, 86_400, 300)) == 0
    assert b.node.broker.tubes.tube(KEPT).jobs.count == 1


def test_a_kept_acknowledgement_is_applied_to_a_promoted_log() -> None:
    cluster, a, b = nodes(2)
    log = PromotedLog(b.node, 1)
    numbers = [log.broker.tubes.put_into("q", [body], JobOptions(was_put=True)) for body in (b"1", b"2")]
    log.broker.seal()
    cluster.cut(a, b)
    job_id = b.context.ids.encode(numbers[0], 0, 60)
    assert b.client().do("ACKJOB", job_id) == 0
    b.jobs.attached(log.broker)
    log.attach()
    assert [body for _, _, body in b.client().get("q", count=9)] == [b"2"]
    assert b.node.broker.tubes.tube(KEPT).jobs.count == 0


def test_kept_acknowledgements_are_not_read_from_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a restart, or if memory is scarce, their bodies are on disk only."""
    cluster, a, b, c = nodes(3)
    log = PromotedLog(b.node, 3)
    taken = log.broker.tubes.put_into("q", [b"x"], JobOptions(was_put=True))
    log.broker.seal()
    cluster.cut(a, b)
    cluster.cut(c, b)
    added = a.client().add("q", b"y", "TTL", 7200)
    for job_id in (b.context.ids.encode(taken, 0, 60), added):
        assert b.client().do("ACKJOB", job_id) == 0

    def read(tube: Tube, job: Job) -> bytes:
        raise Reading(tube)

    monkeypatch.setattr(Tube, "body", read)
    b.jobs.attached(log.broker)
    assert log.broker.tubes.find(taken) is None
    cluster.connect(a, b)
    cluster.advance(2_000)
    cluster.settle()
    assert b.node.broker.tubes.tube(KEPT).jobs.count == a.client().do("QLEN", "q") == 0


@pytest.mark.parametrize("error", [TooMany, TooFewCopies])
def test_an_acknowledgement_that_cannot_be_kept_is_answered_all_the_same(
    error: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster, a, b = nodes(2)
    job_id = a.client().add("q")
    cluster.cut(a, b)

    def refuse(name: str, bodies: list[bytes], options: JobOptions) -> int:
        raise error

    monkeypatch.setattr(b.node.broker.tubes, "put_into", refuse)
    assert b.client().do("ACKJOB", job_id) == 0
    assert b.jobs.owners.kept == 0


def promoted_job(station: Station) -> int:
    """Return the message id of a job of the queue q, in a log of node 1 that a station has promoted."""
    log = PromotedLog(station.node, 1)
    number = log.broker.tubes.put_into("q", [b"x"], JobOptions(was_put=True))
    log.broker.seal()
    log.attach()
    return number


@each("log_id", [b"%016d" % 1, b"an old log of it"])
def test_the_new_leader_of_a_log_is_asked_too(log_id: bytes) -> None:
    """Also of the log that its dead node would have published into: it has no other one until it comes back."""
    cluster, a, b, c = nodes(3)
    number = promoted_job(b)
    for station in (a, c):
        station.cluster.leaders.epochs[log_id] = Epoch(5, 2, bytes(8))
    job_id = c.context.ids.encode(number, 0, 60)
    assert ask(cluster, c.client(), "WORKING", job_id) == 60
    cluster.cut(a, c)
    assert ask(cluster, c.client(), "ACKJOB", job_id) == 1


def test_a_node_that_does_not_answer_is_not_waited_for() -> None:
    cluster, a, b = nodes(2)
    job_id = a.client().add("q")
    cluster.holds = lambda source, target, kind: kind is FrameKind.ASK
    client = b.client()
    assert client.replies(request("ACKJOB", job_id) + request("QLEN", "q")) == []
    cluster.advance(ANSWER_WITHIN // MS + 1)
    assert client.replies() == [0, 0]
    assert b.node.broker.tubes.tube(KEPT).jobs.count == 1  # a may never have seen it
    gone = b.client()
    assert gone.replies(request("SHOW", job_id)) == []
    gone.leave()
    cluster.advance(ANSWER_WITHIN // MS + 1)
    cluster.holds = lambda source, target, kind: False
    cluster.advance(2_000)
    cluster.advance(1_000)
    assert a.client().do("QLEN", "q") == b.node.broker.tubes.tube(KEPT).jobs.count == 0


def test_an_acknowledgement_is_kept_until_the_new_leader_is_back_too() -> None:
    """The node that published the job is there with another log, and knows nothing of the job."""
    cluster, a, b, c = nodes(3)
    number = promoted_job(b)
    for station in (a, c):
        station.cluster.leaders.epochs[b"an old log of it"] = Epoch(5, 2, bytes(8))
    cluster.cut(b, c)
    assert ask(cluster, c.client(), "ACKJOB", c.context.ids.encode(number, 0, 60)) == 0
    cluster.advance(5_000)
    assert c.node.broker.tubes.tube(KEPT).jobs.count == 1
    assert b.client().do("QLEN", "q") == 1
    cluster.connect(b, c)
    cluster.advance(2_000)
    cluster.advance(1_000)
    assert b.client().do("QLEN", "q") == c.node.broker.tubes.tube(KEPT).jobs.count == 0


def test_an_acknowledgement_of_a_job_that_this_node_has_published_is_kept_for_the_new_leader_of_its_old_log() -> None:
    cluster, a, b = nodes(2)
    log = PromotedLog(b.node, 1)  # into which the node a has published
    number = log.broker.tubes.put_into("q", [b"x"] * 9, JobOptions(was_put=True)) + 8
    log.broker.seal()
    log.attach()
    job_id = a.context.ids.encode(number, 0, 60)
    cluster.cut(a, b)
    assert a.client().do("ACKJOB", job_id) == 0
    assert a.node.broker.tubes.tube(KEPT) is None  # no node has promoted anything, as far as it knows
    a.cluster.leaders.epochs[b"an old log of it"] = Epoch(5, 2, bytes(8))
    assert a.client().do("ACKJOB", job_id) == 0
    assert a.node.broker.tubes.tube(KEPT).jobs.count == 1
    cluster.connect(a, b)
    cluster.advance(2_000)
    cluster.settle()
    assert (b.client().do("QLEN", "q"), a.node.broker.tubes.tube(KEPT).jobs.count) == (8, 0)


def test_other_nodes_may_not_ask_for_everything() -> None:
    _, a, _ = nodes(2)
    replies: list[bytes] = []
    for data in (request("DEBUG", "FLUSHALL"), request("GETJOB", "FROM", "q"), b"*1\r\n$9", b"\xff" * 100, b"\r\n"):
        a.jobs._execute(b"", data, replies.append)
    assert (set(replies), len(replies)) == ({b"-ERR other nodes may not ask that\r\n"}, 5)


def test_no_more_is_lent_than_the_network_takes() -> None:
    cluster, a, b = nodes(2)
    clients = [waiting(b, "q") for _ in range(20)]
    cluster.settle()
    a.links[2].backlog = MOST_AHEAD - 100
    adder = a.client()
    for _ in range(5):
        adder.add("q", LARGE)
    lent = a.jobs.lending.lent
    assert 0 < lent < 5
    cluster.settle()
    assert a.jobs.lending.lent == lent
    a.links[2].backlog = 0
    cluster.advance(1)
    cluster.advance(1)
    assert sum(len(client.replies()) for client in clients) == 5


@each("said", [b":one\r\n", b"-ERR no\r\n", b":1", b"+OK\r\n"])
def test_an_answer_that_is_no_number_is_none(said: bytes) -> None:
    cluster, a, b = nodes(2)
    job_id = a.client().add("q")
    a.jobs.lending._execute = lambda rights, request, then: then(said)
    assert ask(cluster, b.client(), "ACKJOB", job_id) == 0
    kept = b.node.broker.tubes.tube(KEPT)
    assert kept.jobs.count == 1

"""What other nodes are sent with a turn waits for the promises of that turn, as far as it is about its records."""

from nsqd.cluster.remote_jobs.job_owners import KEPT
from nsqd.cluster.wire.frames import KIND_AT, FrameKind
from nsqd.core.limits import TooFewCopies
from nsqd.core.message.epoch import Epoch
from nsqd.core.sequence.put_batch import JobOptions
from penstock.protocol.headers import Headers
from tests.nsqd.cluster.stations import Cluster, Station, ask, nodes, waiting
from tests.nsqd.protocols.disque.wire import request

ONCE = "RETRY", 0, "REPLICATE", 1


def lender_and_clients(count: int) -> tuple[Cluster, Station, Station]:
    """Two nodes. The promises of the first one are not kept at once, and clients wait at the second one."""
    cluster, a, b = nodes(2)
    for _ in range(count):
        waiting(b, "q")
    cluster.settle()
    a.held = []
    cluster.kinds.clear()
    return cluster, a, b


def test_loans_leave_in_their_order_whatever_they_wait_for() -> None:
    cluster, a, _ = lender_and_clients(2)
    for body in (b"first", b"second"):
        a.client().add("q", body)
    first, second = a.held
    second.deliver()
    assert a.links[2].sent == []
    first.deliver()
    assert [b"first" in frame for frame in a.links[2].sent] == [True, False]
    cluster.settle()
    assert cluster.kinds == [FrameKind.LOAN] * 2 + [FrameKind.TOOK] * 2


def test_what_promises_nothing_waits_for_nothing() -> None:
    cluster, a, b = lender_and_clients(1)
    a.client().add("q", b"x")
    leaving = waiting(a, "r")
    leaving.leave()
    a.node.turn()
    assert [frame[KIND_AT] for frame in a.links[2].sent] == [FrameKind.WANT] * 2
    cluster.settle()
    cluster.add(b, "r", b"y")
    assert FrameKind.LOAN not in cluster.kinds  # the last WANT was that no client waits


def test_copies_that_do_not_come_in_time_hold_back_only_what_is_delivered_once_at_most() -> None:
    """The node that promotes the log may not know its finish."""
    cluster, a, _ = lender_and_clients(3)
    client = a.client()
    for words in ((b"1", 0, *ONCE), (b"2" * 600_000, 0, *ONCE), (b"3" * 600_000, 0)):
        client.peer.receive(request("ADDJOB", "q", *words), client.node.now)
    client.replies()
    for replies in a.held:
        replies.give_up()
    cluster.settle()
    assert cluster.kinds == [FrameKind.BODY] * 2 + [FrameKind.LOAN, FrameKind.TOOK]
    assert client.do("QLEN", "q") == 0


def test_what_the_log_could_not_write_is_not_sent_and_holds_up_nothing() -> None:
    _, a, _ = lender_and_clients(2)
    for body in (b"first", b"second"):
        a.client().add("q", body)
    first, second = a.held
    second.deliver()
    first.refuse()
    assert [b"second" in frame for frame in a.links[2].sent] == [True]


def test_an_acknowledgement_is_kept_within_the_turn_in_which_others_have_answered() -> None:
    """Station asserts that nothing changes when the group of a turn is written."""
    cluster, a, b, c = nodes(3)
    job_id = a.client().add("q", b"x")
    c.cluster.membership.members.clear()
    cluster.cut(a, c)
    c.cluster.leaders.epochs[b"an old log of it"] = Epoch(5, b.number, bytes(8))
    assert ask(cluster, c.client(), "ACKJOB", job_id) == 0
    assert c.node.broker.tubes.tube(KEPT).jobs.count == 1


def test_a_job_that_no_queue_takes_waits_until_one_does() -> None:
    """Its owner has forgotten it."""
    cluster, a, b = nodes(2)
    client = cluster.waiting(b, "q")
    put_into = b.node.broker.tubes.put_into

    def refuse(name: str, bodies: list[bytes], options: JobOptions, headers: Headers) -> int:
        raise TooFewCopies

    a.client().add("q", b"x", *ONCE)
    a.node.turn()
    client.leave()
    b.node.broker.tubes.put_into = refuse
    cluster.settle()
    assert b.client().get("q") == []
    b.node.broker.tubes.put_into = put_into
    cluster.settle()
    assert [body for _, _, body in b.client().get("q")] == [b"x"]

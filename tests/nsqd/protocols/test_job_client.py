"""The common base of beanstalkd's and Disque's clients: pieces of bodies, and limits of reserved jobs."""

from nsqd.core.work_queue.worker import FEW
from nsqd.protocols.job_client import MOST_KEPT
from tests.nsqd.core.node import MS, Node
from tests.nsqd.protocols.beanstalk.wire import Wire, put
from tests.nsqd.protocols.disque.wire import Wire as DisqueWire
from tests.nsqd.protocols.disque.wire import request
from tests.nsqd.protocols.rights.limited_clients import another, disque, workers


def test_each_body_of_a_stream_has_a_time_of_its_own() -> None:
    for wire, job in ((Wire(), put(b"x" * 1000)), (DisqueWire(Node()), request("ADDJOB", "q", b"x" * 1000, 0))):
        began = wire.send(job[:500]).peer.body_since
        wire.node.advance(MS)
        wire.send(job[500:] + job[:500])
        assert wire.peer.body_since == wire.node.now > began >= 0


def test_of_a_client_that_waits_or_watches_many_tubes_less_is_read() -> None:
    client = Wire().send(b"".join(b"watch t%d\r\n" % number for number in range(FEW - 1)))  # and the tube default
    assert not client.peer.is_heavy
    assert client.send(b"watch one-more\r\nreserve\r\n").peer.is_heavy
    assert not client.peer.waiting
    assert client.send(b"x" * (MOST_KEPT + 1)).peer.waiting


def test_beanstalk_a_reserve_waits_for_room_and_a_batch_has_as_many_jobs_as_there_is() -> None:
    first, second = workers(2, in_flight=2)
    first.ask(put(b"1") + put(b"2") + put(b"3") + put(b"4"))
    assert first.ask(b"reserve\r\nreserve\r\n").count(b"RESERVED") == 2
    assert second.ask(b"reserve\r\n") == b""
    assert second.advance(100).said() == b""
    assert first.ask(b"reserve-with-timeout 0\r\n") == b"TIMED_OUT\r\n"
    assert first.ask(b"delete 1\r\n") == b"DELETED\r\n"
    assert second.advance(100).said() == b"RESERVED 3 1\r\n3\r\n"
    assert second.ask(b"reserve-job 4\r\nreserve-batch 5 0\r\n") == b"OUT_OF_MEMORY\r\nTIMED_OUT\r\n"
    first.ask(b"delete 2\r\n")
    assert second.ask(b"reserve-batch 5 0\r\n").startswith(b"RESERVED_BATCH 1\r\n")
    first.ask(b"put-unique k 0 0 60 1\r\nx\r\n" * 2)
    assert first.peer.published() == (5, 6), "a job that was put before is not counted again"
    first.node.broker.check()


def test_beanstalk_a_reserve_that_waits_for_room_ends_with_its_time_or_its_right() -> None:
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
    first, second = workers(2, in_flight=1)
    first.ask(put(b"1") + b"reserve\r\n")
    assert second.ask(b"reserve\r\n") == b""
    proofs = second.peer.credential._proofs
    proofs.set("orders")
    second.peer.rights_changed()
    assert second.said() == b"UNAUTHORIZED\r\n"
    assert second.peer.outbox.closing


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


def test_disque_jobs_whose_retry_time_is_over_or_whose_queue_is_deleted_are_counted_no_more() -> None:
    first = disque(in_flight=1)
    first.add("work", "1", "RETRY", 1)
    assert len(first.get("work")) == 1
    assert first.get("work") == []
    assert len(first.advance(1100).get("work")) == 1
    account = first.context.accounts.account("worker")  # type: ignore[union-attr]
    assert account.in_flight() == 1
    first.node.broker.delete_topic("work")
    assert account.in_flight() == 0
    first.node.broker.check()

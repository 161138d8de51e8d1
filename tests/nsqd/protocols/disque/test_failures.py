"""Jobs whose time to live is over, and jobs that failed too often, as clients of Disque and of beanstalkd see them."""

from nsqd.core.limits import Limits
from shared.topic_config import TopicConfig
from tests.cases import each
from tests.nsqd.core.node import MS, SECOND, Node
from tests.nsqd.protocols.beanstalk.wire import Wire as Beanstalk
from tests.nsqd.protocols.disque.wire import Wire, request


def a_wire(limit: int = 0) -> Wire:
    return Wire(Node(Limits(whole_job_ids=True, max_attempts={"": limit})))


def pass_without_a_scan(wire: Wire, ms: int) -> None:
    """Let time pass for clients, before the scan of jobs whose life is over has come."""
    node = wire.node
    node.now += ms * MS
    node.broker.begin(node.now, 1_800_000_000 * SECOND + node.now)


def state(wire: Wire, job_id: str) -> tuple[object, ...]:
    found = [job for tube in wire.node.broker.tubes.all() for job in tube.jobs]
    (job,) = [job for job in found if wire.context.ids.of_job(job).decode() == job_id]
    return job.state.name.lower(), job.failures


@each("ms", [1000, 1500])
@each("how", ["queued", "nacked", "enqueued", "kicked", "delayed"])
def test_a_job_past_its_time_to_live_is_never_delivered(how: str, ms: int) -> None:
    wire = a_wire()
    tubes = Beanstalk(wire.node)
    tubes.ask(b"watch q\r\n")
    pass_without_a_scan(wire, 300)  # within a second
    options = ("TTL", 2, "DELAY", 1) if how == "delayed" else ("TTL", 1)
    job_id = wire.add("q", b"old", *options, "RETRY", 1)
    (number,) = (job.id for tube in wire.node.broker.tubes.all() for job in tube.jobs)
    if how in ("nacked", "enqueued"):
        assert len(wire.get("q")) == 1
    elif how == "kicked":
        tubes.ask(b"reserve\r\n")
        tubes.ask(b"bury %d 0\r\n" % number)
    fresh = wire.add("q", b"new", "TTL", 100)
    pass_without_a_scan(wire, ms + 1000 * (how == "delayed"))
    if how == "nacked":
        assert wire.do("NACK", job_id) == 0
    elif how == "enqueued":
        assert wire.do("ENQUEUE", job_id) == 0
    elif how == "kicked":
        assert tubes.ask(b"kick-job %d\r\n" % number) == b"NOT_FOUND\r\n"
    assert wire.do("QPEEK", "q", 9) == [[b"q", fresh.encode(), b"new"]]
    assert wire.show(job_id) is None
    assert wire.do("WORKING", job_id).startswith("-NOJOB")  # type: ignore[union-attr]
    assert [body for _, _, body in wire.get("q")] == [b"new"]
    assert wire.get("q") == []
    assert tubes.ask(b"reserve-with-timeout 0\r\n") == b"TIMED_OUT\r\n"
    wire.node.broker.check()


def test_very_many_that_are_over_are_passed_over_bit_by_bit_for_workers_of_beanstalkd_too() -> None:
    wire = a_wire()
    tubes = Beanstalk(wire.node)
    tubes.ask(b"use q\r\nwatch q\r\n")
    wire.replies(request("ADDJOB", "q", "old", 0, "TTL", 1) * 1200)
    wire.add("q", b"new", "TTL", 100)
    pass_without_a_scan(wire, 1000)
    assert tubes.ask(b"peek-ready\r\n") == b"NOT_FOUND\r\n"
    got = [wire.get("q") for _ in range(4)]
    assert [body for jobs in got for _, _, body in jobs] == [b"new"]
    assert tubes.ask(b"reserve-with-timeout 0\r\n") == b"TIMED_OUT\r\n"
    assert wire.do("QLEN", "q") == 0


def test_of_jobs_that_were_fetched_together_the_first_one_fails_and_others_one_by_one() -> None:
    wire = a_wire(limit=2)
    ids = [wire.add("q", b"%d" % number, "RETRY", 1) for number in range(5)]
    for _ in range(2):
        assert len(wire.get("q", count=5)) == 5
        wire.node.advance(1100 * MS)
    assert [state(wire, one) for one in ids] == [("buried", 2), *[("ready", 0)] * 4]
    assert len(wire.get("q", count=5)) == 4
    wire = a_wire(limit=1)
    ids = [wire.add("q", b"%d" % number, "RETRY", 1) for number in range(2)]
    for _ in range(2):
        wire.get("q")
        wire.node.advance(10 * MS)
    wire.node.advance(1100 * MS)
    assert [state(wire, one) for one in ids] == [("buried", 1)] * 2


@each("way", ["kick", "kick-job", "ENQUEUE", "reserve-job"])
def test_every_way_back_from_the_dead_forgets_the_failures(way: str) -> None:
    wire = a_wire(limit=2)
    job_id = wire.add("q", b"x")
    tubes = Beanstalk(wire.node)
    tubes.ask(b"use q\r\nwatch q\r\n")
    for _ in range(2):
        wire.get("q")
        assert wire.do("NACK", job_id) == 1
    assert state(wire, job_id) == ("buried", 2)
    number = next(job.id for tube in wire.node.broker.tubes.all() for job in tube.jobs)
    if way == "ENQUEUE":
        assert wire.do("ENQUEUE", job_id) == 1
    else:
        tubes.ask(b"kick 1\r\n" if way == "kick" else b"%s %d\r\n" % (way.encode(), number))
    if way != "reserve-job":
        wire.get("q")
    assert wire.do("NACK", job_id) == 1
    assert state(wire, job_id) == ("ready", 1)
    wire.get("q")
    assert wire.do("NACK", job_id) == 1
    assert state(wire, job_id) == ("buried", 2)


@each("delay", [0, 5])
def test_a_lowered_limit_holds_before_the_next_reservation(delay: int) -> None:
    wire = a_wire()
    job_id = wire.add("q", b"x")
    tubes = Beanstalk(wire.node)
    tubes.ask(b"use q\r\nwatch q\r\n")
    number = next(job.id for tube in wire.node.broker.tubes.all() for job in tube.jobs)
    for last in (False, False, True):
        tubes.ask(b"reserve\r\n")
        tubes.ask(b"release %d 0 %d\r\n" % (number, delay if last else 0))
    assert state(wire, job_id)[1] == 3
    wire.node.broker.topics["q"].configure(TopicConfig(max_attempts=2))
    assert tubes.ask(b"reserve-job %d\r\n" % number) == b"NOT_FOUND\r\n"
    wire.node.advance(6000 * MS)
    assert wire.get("q") == []
    assert state(wire, job_id) == ("buried", 3)


def test_a_lost_worker_fails_and_a_node_that_stops_does_not() -> None:
    wire = a_wire(limit=2)
    job_id = wire.add("q", b"x")
    for expected in (("ready", 1), ("buried", 2)):
        tubes = Beanstalk(wire.node)
        tubes.ask(b"watch q\r\n")
        assert tubes.ask(b"reserve\r\n").startswith(b"RESERVED")
        tubes.peer.disconnected()
        assert state(wire, job_id) == expected
    wire.do("ENQUEUE", job_id)
    tubes = Beanstalk(wire.node)
    tubes.ask(b"watch q\r\nreserve\r\n")
    wire.node.broker.agenda.is_stopping = True
    tubes.peer.disconnected()
    assert state(wire, job_id) == ("reserved", 0)

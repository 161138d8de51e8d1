"""Looking at queues, and pausing them, as clients of Disque see it."""

from typing import Any

from nsqd.core.limits import Limits
from nsqd.core.sequence.put_batch import JobOptions
from nsqd.core.timing.pause import Pause
from shared.values import SECOND
from tests.nsqd.core.node import Node
from tests.nsqd.core.promoted import PromotedLog
from tests.nsqd.protocols.disque.wire import Wire, request


def stat(wire: Wire, queue: str) -> dict[str, Any]:
    found = wire.do("QSTAT", queue)
    return dict(zip([one.decode() for one in found[::2]], found[1::2], strict=True))


def test_a_queue_has_no_facts_until_it_is_used(wire: Wire) -> None:
    assert wire.do("QSTAT", "q") is None
    assert wire.do("QLEN", "q") == 0
    assert wire.do("QPEEK", "q", 5) == []
    assert wire.do("PAUSE", "q", "state") == "none"
    assert wire.do("PAUSE", "q", "none") == "none"
    assert wire.do("QSTAT", "q") is None
    assert wire.get("q") == []
    assert wire.do("QSTAT", "q") is None  # a GETJOB that does not wait makes no queue
    for _ in range(3):
        wire.add("q")
    wire.advance(5_000)
    wire.get("q")
    wire.advance(2_000)
    assert stat(wire, "q") == {
        "name": b"q", "len": 2, "age": 7, "idle": 2, "blocked": 0, "import-from": [], "import-rate": 0,
        "jobs-in": 3, "jobs-out": 1, "pause": b"none",
    }  # fmt: skip
    wire.node.broker.tubes.made("unused")
    assert [stat(wire, "unused")[name] for name in ("age", "idle", "jobs-out")] == [0, 0, 0]
    waiting = wire.another()
    waiting.replies(request("GETJOB", "FROM", "r"))
    assert stat(wire, "r")["blocked"] == 1


def test_a_peek_shows_the_next_jobs_or_the_latest(wire: Wire) -> None:
    ids = [wire.add("q", b"%d" % number).encode() for number in range(4)]
    wire.get("q")
    assert wire.do("QPEEK", "q", 2) == [[b"q", ids[1], b"1"], [b"q", ids[2], b"2"]]
    assert wire.do("QPEEK", "q", -2) == [[b"q", ids[3], b"3"], [b"q", ids[2], b"2"]]
    assert len(wire.do("QPEEK", "q", 10**9)) == 3
    assert wire.do("QPEEK", "q", -(2**63)) == [[b"q", one, b"%d" % place] for place, one in list(enumerate(ids))[:0:-1]]
    assert wire.do("QPEEK", "q", 0) == []
    assert wire.do("QPEEK", "q", "x") == "-ERR value is not an integer or out of range"


def test_pauses_last_and_the_log_knows_who_made_them(wire: Wire) -> None:
    tubes, job_id = wire.node.broker.tubes, wire.add("q")
    assert wire.do("PAUSE", "q", "in") == "in"
    assert wire.do("ADDJOB", "q", "x", 0) == "-PAUSED Queue paused in input, try later"
    assert wire.do("PAUSE", "q", "out") == "out"
    second = wire.add("q", "x", "TTL", 1_000_000)
    assert wire.get("q") == []
    other = wire.another()
    assert other.replies(request("GETJOB", "FROM", "q")) == []
    wire.advance(40_000_000)
    assert wire.do("PAUSE", "q", "state") == "out"
    assert stat(wire, "q")["pause"] == b"out"
    assert wire.do("PAUSE", "q", "in", "out", "bcast") == "all"
    since = wire.node.broker.wall // SECOND
    assert tubes.made("q").paused == Pause("10.0.0.1", since, 0, out=True, into=True)
    wire.do("CLIENT", "SETNAME", "ann")
    wire.do("PAUSE", "q", "out")
    assert tubes.made("q").paused == Pause("ann", since, 0)
    assert wire.do("PAUSE", "q", "in", "none") == "none"
    assert tubes.made("q").paused is None
    assert other.replies() == [[[b"q", job_id.encode(), b"body"]]]
    assert wire.get("q")[0][1] == second
    assert wire.do("PAUSE", "q", "what") == "-ERR syntax error"


def test_pause_tube_of_beanstalkd_ends_a_pause_of_jobs_that_go_and_of_no_others(wire: Wire) -> None:
    job_id = wire.add("q")
    wire.do("PAUSE", "q", "all")
    tube = wire.node.broker.tubes.made("q")
    tube.pause_for(2 * SECOND, wire.node.now)
    assert wire.do("PAUSE", "q", "state") == "all"
    assert wire.get("q") == []
    wire.advance(2000)
    assert wire.get("q")[0][1] == job_id
    assert wire.do("PAUSE", "q", "state") == "in"
    assert wire.do("ADDJOB", "q", "x", 0).startswith("-PAUSED")


def test_a_scan_of_queues(wire: Wire) -> None:
    for number in range(25):
        for _ in range(number % 3):
            wire.add(f"q{number}")
        if not number % 3:
            wire.do("PAUSE", f"q{number}", "in")
    found, cursor = wire.do("QSCAN", "0", "COUNT", 4)[::-1]
    while cursor != b"0":
        cursor, names = wire.do("QSCAN", cursor, "COUNT", 4)
        found += names
    assert found == [b"q%d" % number for number in range(25)]
    assert wire.do("QSCAN", "COUNT", -1)[1] == found
    assert wire.do("QSCAN", "BUSYLOOP", "MINLEN", 2)[1] == [one for one in found if int(one[1:]) % 3 == 2]
    assert wire.do("QSCAN", "0", "MAXLEN", 0)[1] == found[::3]
    assert wire.do("QSCAN", "IMPORTRATE", 1)[1] == []


def scanned(wire: Wire, *options: str | int) -> list[Any]:
    found, cursor = [], b"0"
    for _ in range(100):
        cursor, page = wire.do("JSCAN", cursor, *options)
        found += page
        if cursor == b"0":
            return found
    raise AssertionError(cursor)


def test_a_scan_of_jobs(wire: Wire) -> None:
    ids = [wire.add(f"q{number % 3}", b"%d" % number) for number in range(100)]
    in_order = [one for rest in range(3) for one in ids[rest::3]]
    assert scanned(wire, "COUNT", 7) == in_order
    assert scanned(wire, "COUNT", 10**12, "QUEUE", "q1") == ids[1::3]
    fetched = [job_id for _, job_id, _ in wire.get("q2", count=5)]
    assert scanned(wire, "STATE", "active") == fetched
    assert scanned(wire, "STATE", "active", "STATE", "queued", "BUSYLOOP") == in_order
    assert scanned(wire, "STATE", "acked") == []
    assert wire.do("JSCAN", "STATE", "no") == "-ERR Invalid job state name"
    shown = scanned(wire, "REPLY", "all", "COUNT", 3, "QUEUE", "q0")
    assert [dict(zip(one[::2], one[1::2], strict=True))[b"id"].decode() for one in shown] == ids[::3]
    assert wire.do("JSCAN", 2**64 - 1)[0] == b"0"


def test_jobs_of_a_promoted_log(wire: Wire) -> None:
    log = PromotedLog(wire.node, 8)
    for body in (b"theirs1", b"theirs2"):
        log.broker.tubes.put_to("q", body, JobOptions(65_536, 60, 0, 0, True))
    log.attach()
    own = wire.add("q", b"own")
    assert wire.do("QLEN", "q") == 3
    assert len(scanned(wire, "COUNT", 1)) == 3
    assert {one[2] for one in wire.do("QPEEK", "q", 10)} == {b"theirs1", b"theirs2", b"own"}
    found = wire.get("q", count=9)
    assert {body for _, _, body in found} == {b"theirs1", b"theirs2", b"own"}
    for _, job_id, body in found:
        assert (job_id == own) == (body == b"own")
        assert job_id[2:10] == wire.context.ids.node_id(7 if body == b"own" else 8)[:8].decode()
        assert wire.do("WORKING", job_id) == (300 if body == b"own" else 60)
        assert wire.do("ACKJOB", job_id) == 1
    assert scanned(wire) == []


def test_a_pause_holds_for_promoted_logs_and_their_pause_stays(wire: Wire) -> None:
    node = wire.node
    held, shut = Pause("ann", 7, 0), Pause("bob", 7, 0, out=False, into=True)
    logs = {}
    for origin, name in ((8, "theirs"), (9, "ours"), (10, "shut")):
        log = logs[name] = PromotedLog(node, origin)
        log.broker.tubes.made(name)
        log.publish(name, b"job")
    logs["theirs"].broker.tubes.made("theirs").pause_queue(held)
    logs["shut"].broker.tubes.made("shut").pause_queue(shut)
    wire.do("PAUSE", "ours", "out")
    for log in logs.values():
        log.attach()
    assert [queue for queue, _, _ in wire.get("theirs", "ours", "shut")] == [b"shut"]
    assert [wire.do("PAUSE", name, "state") for name in logs] == ["out", "out", "none"]
    assert wire.add("shut").startswith("D-")
    assert logs["ours"].broker.tubes.made("ours").paused == node.broker.tubes.made("ours").paused
    node.broker.tubes.made("ours").pause_for(0, node.now)
    assert wire.do("PAUSE", "theirs", "none") == "none"
    found = wire.get("theirs", "ours", "shut", count=3)
    assert [queue for queue, _, _ in found] == [b"theirs", b"ours", b"shut"]
    assert [log.broker.tubes.made(name).paused for name, log in logs.items()] == [None, None, shut]
    node.broker.check()


def tables(wire: Wire) -> tuple[int, ...]:
    """The sizes of all tables of a node whose keys are names that clients chose."""
    tubes, queues = wire.node.broker.tubes, wire.context.queues
    return (
        len(queues.uses), len(tubes.listed.names), len(tubes.listed.counters), len(tubes.listed.users),
        tubes.waiters.awaited_count, len(tubes.waiters.queues), len(wire.node.broker.topics),
        len(wire.node.broker.directory.named), len(wire.peer.worker.watching),
    )  # fmt: skip


def test_names_that_no_queue_has_leave_nothing_behind(wire: Wire) -> None:
    before = tables(wire)
    for number in range(10):
        names = [f"q{number}-{one}" for one in range(300)]
        assert wire.get(*names) == []
        for ask in ("QLEN", "QSTAT"):
            wire.do(ask, names[0])
        assert wire.do("QPEEK", names[0], 5) == []
        assert wire.do("PAUSE", names[0], "none") == "none"
        assert wire.do("PAUSE", names[0], "state") == "none"
        assert wire.do("QSCAN")[1] == []
    assert tables(wire) == before


def test_a_getjob_that_waits_keeps_names_only_while_it_waits(wire: Wire) -> None:
    before, tubes = tables(wire), wire.node.broker.tubes
    ways = (lambda one: one.advance(2000), lambda one: one.eof(), lambda one: one.leave())
    for number, way in enumerate(ways):
        one, name = wire.another(), f"q{number}-7"
        one.replies(request("GETJOB", "TIMEOUT", 1000, "FROM", *[f"q{number}-{at}" for at in range(300)]))
        assert tubes.waiters.awaited_count == 300
        assert stat(wire, name)["blocked"] == 1
        assert tubes.names_of_all().count(name) == tubes.watching_count(name) == tubes.waiters.count_at(name) == 1
        way(one)
        assert tables(wire) == before
        assert name not in tubes.names_of_all()
        assert tubes.watching_count(name) == 0
        assert not one.peer.worker.watching or one.peer.is_gone


def test_clients_that_wait_can_invent_as_many_names_as_there_may_be_topics_and_no_more() -> None:
    wire = Wire(Node(Limits(whole_job_ids=True, max_topics=10)))
    wire.add("real")
    assert wire.another().replies(request("GETJOB", "FROM", *"abcdefgh")) == []
    assert wire.replies(request("GETJOB", "FROM", "x", "y", "z"))[0].startswith("-OOM")
    assert wire.get("x", "y", "z") == []
    two = wire.another()
    assert two.replies(request("GETJOB", "FROM", *"abcdefgh", "real"))[0][0][0] == b"real"
    assert two.replies(request("GETJOB", "FROM", *"abcdefgh", "real")) == []  # others wait there already


def test_queues_without_jobs_go_when_there_is_no_room_for_another_topic() -> None:
    wire = Wire(Node(Limits(whole_job_ids=True, max_topics=10)))
    kept = wire.add("full")
    wire.do("PAUSE", "paused", "in")
    wire.another().replies(request("GETJOB", "FROM", "awaited"))
    for number in range(100):
        assert wire.do("ACKJOB", wire.add(f"q{number}")) == 1
    assert wire.show(kept) is not None
    assert wire.do("PAUSE", "paused", "state") == "in"
    assert len(wire.node.broker.topics) <= 10
    wire.node.publish("of-nsq", b"x")  # another protocol finds room, too
    for number in range(100):
        if wire.do("ADDJOB", f"full{number}", "x", 0).startswith("-OOM"):
            break
    assert number < 10  # queues with jobs do not go
    wire.node.broker.check()


def test_idle_queues_go_by_themselves_and_sooner_while_there_are_many(wire: Wire) -> None:
    queues, node = wire.context.queues, wire.node
    wire.do("ACKJOB", wire.add("idle"))
    wire.add("full")
    wire.advance(299_000)
    assert queues.evict_idle(node.now, 20) == 0
    wire.advance(2_000)
    assert queues.evict_idle(node.now, 20) == 1
    assert list(node.broker.topics) == ["full"]
    crowded = Wire(Node(Limits(whole_job_ids=True, max_topics=4)))
    for name in "abcd":
        crowded.do("ACKJOB", crowded.add(name))
    crowded.advance(1_000)
    assert crowded.context.queues.evict_idle(crowded.node.now, 20) == 0
    crowded.advance(1_000)
    assert crowded.context.queues.evict_idle(crowded.node.now, 20) == 4

"""Jobs of promoted logs: workers reserve them like those of the node's own log, and every command finds them by their ids."""

from collections.abc import Iterator

import pytest

from nsqd.core.limits import Limits
from nsqd.core.sequence.put_batch import JobOptions
from nsqd.http.figures import _walk as walk
from nsqd.http.tubes import tube_figures
from tests.nsqd.core.node import Node
from tests.nsqd.core.promoted import PromotedLog
from tests.nsqd.protocols.beanstalk.wire import Wire, facts, put

OWN, THEIRS, OTHERS = 7 << 48, 8 << 48, 9 << 48  # the first ids of the nodes are one above


@pytest.fixture
def wire() -> Iterator[Wire]:
    wire = Wire(Node(Limits(whole_job_ids=True)))
    yield wire
    wire.check()


def promote(wire: Wire, origin: int, *jobs: tuple[int, bytes], tube: str = "default", delay: int = 0) -> PromotedLog:
    """A log whose tube has these jobs, each (priority, body)."""
    log = PromotedLog(wire.node, origin)
    due = wire.node.now + delay * 10**9 if delay else 0
    for priority, body in jobs:
        log.broker.tubes.put_to(tube, body, JobOptions(priority, 60, delay, due, True))
    log.attach()
    return log


def reserved(wire: Wire) -> tuple[int, bytes]:
    word, number, _, body = wire.ask(b"reserve-with-timeout 0\r\n").split(None, 3)
    assert word == b"RESERVED"
    return int(number), body.rstrip()


def count(wire: Wire, name: str, command: bytes = b"stats-tube default") -> int:
    return int(facts(wire.ask(command + b"\r\n"))[name])


def test_jobs_of_all_logs_are_reserved_by_priority_and_found_by_their_ids(wire: Wire) -> None:
    wire.ask(put(b"own5", 5) + put(b"own1", 1))
    promote(wire, 8, (3, b"theirs3"), (0, b"theirs0"))
    promote(wire, 9, (4, b"others4"))
    order = [reserved(wire) for _ in range(5)]
    assert [body for _, body in order] == [b"theirs0", b"own1", b"theirs3", b"others4", b"own5"]
    assert [number for number, _ in order] == [THEIRS + 2, OWN + 2, THEIRS + 1, OTHERS + 1, OWN + 1]
    assert wire.ask(b"reserve-with-timeout 0\r\n") == b"TIMED_OUT\r\n"
    for number, _ in order:
        assert wire.ask(b"touch %d\r\n" % number) == b"TOUCHED\r\n"
        assert count(wire, "id", b"stats-job %d" % number) == number
        assert wire.ask(b"delete %d\r\n" % number) == b"DELETED\r\n"
        assert wire.ask(b"delete %d\r\n" % number) == b"NOT_FOUND\r\n"


def test_release_bury_kick_and_peek_act_on_the_log_of_the_job(wire: Wire) -> None:
    log = promote(wire, 8, (0, b"job"))
    number, _ = reserved(wire)
    assert wire.ask(b"release %d 7 0\r\n" % number) == b"RELEASED\r\n"
    assert wire.ask(b"peek-ready\r\n") == b"FOUND %d 3\r\njob\r\n" % number
    assert wire.ask(b"peek %d\r\n" % number) == b"FOUND %d 3\r\njob\r\n" % number
    assert reserved(wire)[0] == number
    assert wire.ask(b"bury %d 7\r\n" % number) == b"BURIED\r\n"
    assert wire.ask(b"peek-buried\r\n") == b"FOUND %d 3\r\njob\r\n" % number
    assert wire.ask(b"kick 5\r\n") == b"KICKED 1\r\n"
    assert wire.ask(b"reserve-job %d\r\n" % number).startswith(b"RESERVED")
    assert wire.ask(b"release %d 7 100\r\n" % number) == b"RELEASED\r\n"
    assert wire.ask(b"peek-delayed\r\n") == b"FOUND %d 3\r\njob\r\n" % number
    assert wire.ask(b"kick-job %d\r\n" % number) == b"KICKED\r\n"
    tube = log.broker.tubes.tube("default")
    assert tube.counts() == (1, 0, 0, 0)
    assert wire.ask(b"move-job %d elsewhere\r\n" % number) == b"MOVED %d\r\n" % (OWN + 1)
    assert tube.counts() == (0, 0, 0, 0)


def test_a_waiting_worker_gets_the_job_of_a_log_that_is_promoted_also_a_delayed_one(wire: Wire) -> None:
    wire.send(b"watch t\r\nreserve\r\n")
    wire.said()
    promote(wire, 8, (0, b"job"), tube="t")
    assert wire.said() == b"RESERVED %d 3\r\njob\r\n" % (THEIRS + 1)
    promote(wire, 9, (0, b"job"), delay=5)
    wire.send(b"reserve-with-timeout 10\r\n")
    assert wire.said() == b""
    wire.advance(5100)
    assert wire.said() == b"RESERVED %d 3\r\njob\r\n" % (OTHERS + 1)


def test_counts_are_sums_and_jobs_are_listed_and_cleared_in_all_logs(wire: Wire) -> None:
    wire.ask(put(b"own", 5))
    promote(wire, 8, (0, b"a"), (0, b"b"))
    promote(wire, 6, (0, b"c"))
    numbers = [(6 << 48) + 1, OWN + 1, THEIRS + 1, THEIRS + 2]
    found, after = [], 0
    while len(page := wire.ask(b"list-jobs default ready 1 %d\r\n" % after).splitlines()[:-1]) > 2:
        after = int(page[2][2:])
        found.append(after)
    assert found == numbers
    reserved(wire)
    for name, value in (("jobs-ready", 3), ("jobs-reserved", 1), ("jobs-urgent", 3)):
        assert count(wire, f"current-{name}") == count(wire, f"current-{name}", b"stats") == value
    assert count(wire, "total-jobs") == 4
    stats = tube_figures(wire.node.broker.tubes, "default", wire.node.now)
    assert (stats["ready_count"], stats["reserved_count"], stats["job_count"]) == (3, 1, 4)
    rows = dict(walk(wire.node.broker))
    assert (rows["tubes"].gauges, rows["tubes"].counters) == ((3, 1, 0, 0, 3, 0), (4,))
    wire.leave()
    other = Wire(wire.node)
    assert other.ask(b"clear-tube default\r\nreserve-with-timeout 0\r\n") == b"CLEARED 4\r\nTIMED_OUT\r\n"


def test_an_empty_tube_stays_while_a_shard_has_jobs(wire: Wire) -> None:
    promote(wire, 8, (0, b"a"), (0, b"b"), tube="t")
    wire.ask(b"watch t\r\nignore default\r\n")
    number, _ = reserved(wire)
    assert wire.ask(b"delete %d\r\n" % number) == b"DELETED\r\n"
    wire.ask(b"watch default\r\nignore t\r\n")
    assert b"- t\n" in wire.ask(b"list-tubes\r\n")
    wire.ask(b"watch t\r\n")
    assert reserved(wire)[0] != number


def test_a_topic_that_is_deleted_takes_the_jobs_of_all_logs(wire: Wire) -> None:
    log = promote(wire, 8, (0, b"a"), (0, b"b"))
    number, _ = reserved(wire)
    wire.node.broker.delete_topic("default")
    wire.node.turn()
    assert wire.ask(b"delete %d\r\n" % number) == b"NOT_FOUND\r\n"
    assert wire.peer.worker.holds == {}
    assert log.broker.topics == {}
    assert wire.node.broker.tubes.waiters.sharded == {}
    wire.ask(put(b"own", 0))
    assert reserved(wire)[1] == b"own"


def test_jobs_are_not_found_before_their_log_is_attached_and_after_it_is_detached(wire: Wire) -> None:
    log = PromotedLog(wire.node, 8)
    for body in (b"a", b"b"):
        log.broker.tubes.put_to("default", body, JobOptions(0, 60, 0, 0, True))
    wire.node.turn()
    assert wire.ask(b"reserve-job %d\r\n" % (THEIRS + 1)) == b"NOT_FOUND\r\n"
    log.attach()
    assert wire.ask(b"reserve-job %d\r\n" % (THEIRS + 1)).startswith(b"RESERVED")
    log.detach()
    assert wire.peer.worker.holds == {}
    for command in (b"delete %d", b"release %d 0 0", b"touch %d", b"peek %d"):
        assert wire.ask(command % (THEIRS + 1) + b"\r\n") == b"NOT_FOUND\r\n"
    assert wire.ask(b"reserve-with-timeout 0\r\n") == b"TIMED_OUT\r\n"
    wire.ask(put(b"own", 0))
    assert reserved(wire)[1] == b"own"
    wire.leave()

"""Conversations as bytes: every command, every reply and error, as beanstalkd 1.13 says them.

See docs/contributing/design/beanstalkd.md.
"""

from collections.abc import Iterator

import pytest

from nsqd.core.batches.table import BatchState, NamedBatch
from nsqd.core.limits import Limits
from nsqd.core.work_queue.job import JobState
from nsqd.protocols.beanstalk.client import BeanstalkContext
from nsqd.protocols.beanstalk.stats import batch_stats
from penstock.protocol.headers import MOST_HEADERS, pack_headers
from shared.foreign import Foreign
from tests.cases import each
from tests.nsqd.core.node import MS, SECOND, Node
from tests.nsqd.protocols.beanstalk.wire import Wire, facts, put

SMALL = BeanstalkContext(max_job_size=10)


@pytest.fixture
def wire() -> Iterator[Wire]:
    wire = Wire()
    yield wire
    wire.check()


REPLIES = {
    b"BAD_FORMAT": [
        b"stats ", b"statsX", b"stats-job", b"reserveX", b"reserve ", b"reserve-job", b"reserve-with-timeout",
        b"reserve-with-timeout -1", b"reserve-with-timeout 2147483648", b"reserve-mode tube", b"peek-readyX",
        b"list-tubesX", b"use  a", b"use a ", b"use -a", b"use a:b", b"use \xc3\xa4", b"use " + b"a" * 201,
        b"delete 1 ", b"delete +1", b"delete \t1", b"delete 18446744073709551616", b"release 1 4294967296 0",
        b"release 1 0", b"bury 1", b"kick 18446744073709551616", b"kick x", b"pause-tube default", b"pause-tube -x 0",
        b"pause-tube-x 0", b"pause-tube - 1", b"pause-tube " + b"a" * 201 + b" 0", b"use a\0b", b"put 0 0 60",
        b"put 4294967296 0 60 1", b"put -1 0 60 1", b"put 0 0 60 1 ", b"x" * 300,
        b"list-tube-used\nuse x",  # a line feed alone ends no line
    ],
    b"NOT_FOUND": [
        b"delete 18446744073709551615", b"delete    1", b"delete 001", b"release 1 0 0", b"bury 1 0", b"touch 1",
        b"kick-job 1", b"peek 1", b"peek-ready", b"peek-delayed", b"peek-buried", b"reserve-job 1", b"stats-job 1",
        b"stats-tube nowhere", b"pause-tube nowhere 1", b"pause-tube " + b"a" * 200 + b" 0",
    ],
    b"UNKNOWN_COMMAND": [b"put", b"use", b"", b"list-tube", b"LIST-TUBES", b"peek-foo", b"kick"],
    b"TIMED_OUT": [b"reserve-with-timeout 0abc"],
    b"KICKED 0": [b"kick -1", b"kick +5", b"kick 5abc", b"kick 5 6"],
    b"PAUSED": [b"pause-tubedefault 0", b"pause-tube   default 0"],
    b"OK 14\r\n---\n- default\n": [b"list-tubes", b"list-tubes-watched"],
    b"USING " + b"a" * 200: [b"use " + b"a" * 200],
    b"USING A-z0+9/;.$_()": [b"use A-z0+9/;.$_()"],
    b"WATCHING 2": [b"watch a"],
    b"WATCHING 1": [b"ignore nowhere"],
    b"NOT_IGNORED": [b"ignore default"],
    b"USING default": [b"list-tube-used"],
}  # fmt: skip


@each("line, reply", [(line, reply) for reply, lines in REPLIES.items() for line in lines])
@each("in_pieces", [False, True], wire=Wire)
def test_a_line_and_its_reply(wire: Wire, line: bytes, reply: bytes, in_pieces: bool) -> None:
    sent = line + b"\r\nlist-tube-used\r\n"
    for piece in [bytes([byte]) for byte in sent] if in_pieces else [sent]:
        wire.send(piece)
    used = line[4:] if line.startswith(b"use ") and reply.startswith(b"USING") else b"default"
    assert wire.said() == reply + b"\r\nUSING %s\r\n" % used


@each(
    "line",
    [
        b"delete / HTTP/1.1", b"get / HTTP/1.0", b"PROPFIND / HTTP/1.1", b"kick 5 HTTP/1.1",
        b"reserve-with-timeout 0 HTTP/1.1", b"Host: localhost", b"host: localhost", b"HOST:",
        b"POST /" + b"x" * 300 + b" HTTP/1.1", b"GET / HTTP/1.1", b"PUT / HTTP/1.1", b"HEAD / HTTP/1.1", b"OPTIONS / HTTP/1.1",
        b"quit", b"quitXYZ",
    ],
)  # fmt: skip
@each("size", [1, 7, 1000], wire=Wire)
def test_quit_and_any_line_of_a_request_of_http_end_the_connection(wire: Wire, line: bytes, size: int) -> None:
    said = line + b"\r\n" + put(b"x")
    assert b"".join(wire.ask(said[at : at + size]) for at in range(0, len(said), size)) == b""
    assert wire.peer.outbox.closing
    assert wire.node.broker.tubes.total == 0


@each("sent, kind", [
    (b"*3\r\n$6\r\nADDJOB\r\n", Foreign.RESP), (b"  V2SUB t c\n", Foreign.NSQ), (b"  V1IDENTIFY\n", Foreign.LOOKUPD),
    (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", Foreign.HTTP2), (b"\x16\x03\x01\x02\x00\x01", Foreign.TLS),
    (b"\x16\x03\x01\r\n\x01", Foreign.TLS), (b"\0\0\0\x5a\x01\x95\x01", Foreign.CLUSTER), (b"GET /", Foreign.HTTP),
])  # fmt: skip
@each("size", [1, 1000], wire=Wire)
def test_other_protocols_end_the_connection_and_are_logged(wire: Wire, sent: bytes, kind: Foreign, size: int) -> None:
    said = sent + b"\r\n" + put(b"x")
    assert b"".join(wire.ask(said[at : at + size]) for at in range(0, len(said), size)) == b""
    assert wire.peer.outbox.closing
    assert wire.node.broker.tubes.total == 0
    assert wire.foreign == [("BEANSTALK", str(kind))]


@each("line", [b"PING", b"*", b"*x", b"  V3", b"\x16\x02", b"GETJOB FROM q"], wire=Wire)
def test_a_mistake_that_own_clients_could_make_is_answered_as_ever(wire: Wire, line: bytes) -> None:
    assert wire.ask(line + b"\r\n" + put(b"x")) == b"UNKNOWN_COMMAND\r\nINSERTED 1\r\n"
    assert not wire.foreign


@each("line", [b"use xHTTP/1.1", b"watch host:", b"use x HTTP/11", b"HTTP/1.1", b" HTTP/1.x"], wire=Wire)
def test_what_only_looks_a_little_like_it_is_a_line_as_any_other(wire: Wire, line: bytes) -> None:
    assert wire.ask(line + b"\r\n") != b""
    assert not wire.peer.outbox.closing


def test_bodies_are_as_long_as_was_said_whatever_they_hold(wire: Wire) -> None:
    body = b"\r\ndelete 1\r\n\0\xff"
    for byte in put(body):
        wire.send(bytes([byte]))
    assert wire.said() == b"INSERTED 1\r\n"
    assert wire.ask(b"peek 1\r\n") == b"FOUND 1 %d\r\n%s\r\n" % (len(body), body)


def test_a_body_without_its_end_burns_an_id_and_a_bad_put_does_not_take_its_body(wire: Wire) -> None:
    assert wire.ask(b"put 0 0 60 3\r\nabcdXlist-tube-used\r\n") == b"EXPECTED_CRLF\r\nUSING default\r\n"
    assert wire.ask(put(b"x")) == b"INSERTED 2\r\n"
    assert wire.ask(b"put 0 0 x 5\r\nhello\r\n") == b"BAD_FORMAT\r\nUNKNOWN_COMMAND\r\n"


def test_a_body_that_is_too_big_is_thrown_away_and_takes_no_id() -> None:
    wire = Wire(context=SMALL)
    assert wire.ask(put(b"x" * 10)) == b"INSERTED 1\r\n"
    assert wire.ask(b"put 0 0 60 11 trailing\r\n" + b"x" * 11 + b"\r\nlist-tube-used\r\n") == (
        b"JOB_TOO_BIG\r\nUSING default\r\n"
    )
    wire.send(b"put 0 0 60 4294967295\r\n")
    for _ in range(100):
        wire.send(b"x" * 100_000)
        assert wire.peer._buffer == b""
    assert wire.said() == b""
    other = Wire(wire.node)
    assert other.ask(put(b"y")) == b"INSERTED 2\r\n"


def test_puts_of_one_piece_are_answered_one_by_one_also_around_one_that_fails(wire: Wire) -> None:
    assert wire.ask(put(b"alike") * 3) == b"INSERTED 1\r\nINSERTED 2\r\nINSERTED 3\r\n"
    said = wire.ask(put(b"alike") + put(b"alike")[:-2] + b"xx" + put(b"alike"))
    assert said == b"INSERTED 4\r\nEXPECTED_CRLF\r\nINSERTED 6\r\n"
    assert wire.ask(b"delete 5\r\ndelete 6\r\n") == b"NOT_FOUND\r\nDELETED\r\n"


@each("command, reply", [
    (b"reserve\r\n", b"RESERVED 3 1\r\nc\r\n"), (b"reserve-job 2\r\n", b"RESERVED 2 1\r\nb\r\n"),
    (b"peek 2\r\n", b"FOUND 2 1\r\nb\r\n"), (b"delete 2\r\n", b"DELETED\r\n"), (b"kick 1\r\n", b"KICKED 1\r\n"),
    (b"kick-job 4\r\n", b"KICKED\r\n"), (b"list-jobs default ready 9\r\n", b"OK 16\r\n---\n- 1\n- 2\n- 3\n\r\n"),
    (b"clear-tube default\r\n", b"CLEARED 4\r\n"), (b"move-job 2 other\r\n", b"MOVED 5\r\n"),
    (b"put-unique k 0 0 1 1\r\ne\r\nput-unique k 0 0 1 1\r\ne\r\n", b"INSERTED 5\r\nDUPLICATE\r\n"),
], wire=Wire)  # fmt: skip
def test_what_is_put_can_be_looked_at_in_the_same_turn(wire: Wire, command: bytes, reply: bytes) -> None:
    """Also by others: the replies about a job must not depend on when the node's turn ends."""
    jobs = put(b"a", 5) + put(b"b", 5) + put(b"c", 4) + put(b"d", 5, 100)
    other = Wire(wire.node)
    other.peer.receive(jobs, wire.node.now)
    answer = wire.ask(command)
    assert answer == reply
    assert other.said() == b"".join(b"INSERTED %d\r\n" % number for number in range(1, 5))
    wire.check()


@each("commands, answers, got", [
    (put(b"a") + b"reserve-with-timeout 0\r\n", b"INSERTED 2\r\nTIMED_OUT\r\n", b"RESERVED 2 1\r\na\r\n"),
    (put(b"a") + b"delete 2\r\n", b"INSERTED 2\r\nNOT_FOUND\r\n", b"RESERVED 2 1\r\na\r\n"),
    (put(b"a", 9) + put(b"b", 1), b"INSERTED 2\r\nINSERTED 3\r\n", b"RESERVED 2 1\r\na\r\n"),
    (put(b"a") * 2, b"INSERTED 2\r\nINSERTED 3\r\n", b"RESERVED 2 1\r\na\r\n"),
    (b"release 1 0 0\r\nreserve-with-timeout 0\r\n", b"RELEASED\r\nTIMED_OUT\r\n", b"RESERVED 1 3\r\nold\r\n"),
    (b"bury 1 0\r\nkick 5\r\npeek-ready\r\n", b"BURIED\r\nKICKED 1\r\nNOT_FOUND\r\n", b"RESERVED 1 3\r\nold\r\n"),
], wire=Wire)  # fmt: skip
def test_a_waiting_worker_is_before_a_later_one(wire: Wire, commands: bytes, answers: bytes, got: bytes) -> None:
    """Also before the one who put it, in the same piece."""
    assert wire.ask(put(b"old") + b"reserve\r\n").endswith(b"old\r\n")
    waiting = Wire(wire.node).send(b"reserve\r\n")
    assert wire.ask(commands) == answers
    assert waiting.said() == got


def test_a_job_put_behind_messages_that_are_no_jobs_yet_is_there_at_once(wire: Wire) -> None:
    wire.ask(b"use t\r\nwatch t\r\n")
    topic = wire.node.broker.topic("t")
    topic.publish([b"nsq"] * 5000, 15_000)
    wire.node.turn()
    assert wire.ask(put(b"urgent", 1) + b"peek 5001\r\nreserve\r\n") == (
        b"INSERTED 5001\r\nFOUND 5001 6\r\nurgent\r\nRESERVED 5001 6\r\nurgent\r\n"
    )
    while wire.node.broker.agenda.awake:
        wire.node.turn()
    facts_of = facts(wire.ask(b"stats-tube t\r\n"))
    assert (facts_of["current-jobs-ready"], facts_of["current-jobs-reserved"]) == ("5000", "1")
    assert facts_of["total-jobs"] == "5001"


def test_drain_mode(wire: Wire) -> None:
    wire.ask(put(b"x"))
    wire.node.broker.drain(True)
    assert wire.ask(put(b"y")) == b"DRAINING\r\n"
    assert wire.ask(b"put 0 0 60 1\r\nabc") == b"EXPECTED_CRLF\r\n"
    assert wire.ask(b"put 0 0 60 99999\r\n" + b"x" * 100_001) == b"JOB_TOO_BIG\r\n"
    assert wire.ask(b"reserve\r\n") == b"RESERVED 1 1\r\nx\r\n"
    assert wire.ask(b"release 1 0 0\r\n") == b"RELEASED\r\n"
    assert wire.ask(b"move-job 1 other\r\n") == b"DRAINING\r\n"
    assert wire.ask(b"put-unique k 0 0 60 1\r\nz\r\n") == b"DRAINING\r\n"
    assert facts(wire.ask(b"stats\r\n"))["draining"] == "true"
    wire.node.broker.drain(False)
    assert wire.ask(b"move-job 1 other\r\n").startswith(b"MOVED ")
    assert facts(wire.ask(b"stats\r\n"))["draining"] == "false"
    assert wire.ask(put(b"x")) == b"INSERTED 6\r\n"  # refused puts have used up ids


def test_the_order_is_priority_and_then_id_over_all_watched_tubes(wire: Wire) -> None:
    for tube, priority in ((b"a", 5), (b"b", 1), (b"a", 1), (b"c", 0), (b"b", 1)):
        wire.ask(b"use %s\r\n" % tube + put(b"x", priority))
    wire.ask(b"watch b\r\nwatch a\r\n")
    found = [wire.ask(b"reserve\r\n").split()[1] for _ in range(4)]
    assert found == [b"2", b"3", b"5", b"1"]
    assert wire.ask(b"reserve-with-timeout 0\r\n") == b"TIMED_OUT\r\n"
    wire.ask(b"release 2 1 0\r\nrelease 5 1 0\r\nrelease 1 0 0\r\n")
    assert [wire.ask(b"reserve\r\n").split()[1] for _ in range(3)] == [b"1", b"2", b"5"]


def test_deadline_soon(wire: Wire) -> None:
    wire.ask(put(b"x", ttr=3))
    wire.ask(b"reserve\r\n")
    wire.send(b"reserve-with-timeout 10\r\n").advance(1990)
    assert wire.said() == b""
    wire.advance(20)
    assert wire.said() == b"DEADLINE_SOON\r\n"
    assert wire.ask(b"reserve\r\n") == b"DEADLINE_SOON\r\n"
    wire.ask(put(b"y"))
    assert wire.ask(b"reserve\r\n") == b"RESERVED 2 1\r\ny\r\n"  # there was one
    wire.advance(1100)
    assert wire.ask(b"reserve-with-timeout 0\r\n") == b"RESERVED 1 1\r\nx\r\n"
    other = Wire()
    other.ask(put(b"x", ttr=0) + b"reserve\r\n")
    assert facts(other.ask(b"stats-job 1\r\n"))["ttr"] == "1"
    assert other.ask(b"reserve\r\n") == b"DEADLINE_SOON\r\n", "a TTR of nothing is a second, and warns at once"


def test_who_leaves_hands_back_what_it_had_and_has_put_what_it_put(wire: Wire) -> None:
    other = Wire(wire.node)
    wire.ask(b"use t\r\nwatch t\r\n")
    wire.peer.receive(put(b"x"), wire.node.now)
    wire.leave()
    wire = Wire(wire.node)
    assert other.ask(b"watch t\r\nreserve\r\n") == b"WATCHING 2\r\nRESERVED 1 1\r\nx\r\n"
    wire.send(b"watch t\r\nreserve\r\n")
    for _ in range(2):  # who leaves leaves once
        other.leave()
    assert wire.said() == b"WATCHING 2\r\nRESERVED 1 1\r\nx\r\n"
    expected = facts(wire.ask(b"stats-job 1\r\n"))
    assert (expected["timeouts"], expected["releases"], expected["reserves"]) == ("0", "0", "2")
    expected = facts(wire.ask(b"stats-tube default\r\n"))
    assert (expected["current-using"], expected["current-watching"]) == ("1", "1")


def test_waiters_are_served_in_the_order_of_their_coming() -> None:
    node = Node()
    waiters = [Wire(node).send(b"reserve\r\n") for _ in range(4)]
    assert facts(Wire(node).ask(b"stats-tube default\r\n"))["current-waiting"] == "4"
    waiters[1].leave()
    producer = Wire(node)
    producer.ask(put(b"1") + put(b"2") + put(b"3"))
    assert [waiters[n].said() for n in (0, 2, 3)] == [b"RESERVED %d 1\r\n%d\r\n" % (n, n) for n in (1, 2, 3)]


def test_what_follows_a_reserve_waits_with_it_unless_no_more_is_sent(wire: Wire) -> None:
    wire.send(b"reserve\r\ndelete 1\r\nlist-tube-used\r\n")
    assert wire.said() == b""
    other = Wire(wire.node)
    other.ask(put(b"x"))
    assert wire.said() == b"RESERVED 1 1\r\nx\r\nDELETED\r\nUSING default\r\n"
    other.send(put(b"x") + b"reserve\r\nreserve\r\n").eof()
    assert other.said() == b"INSERTED 2\r\nRESERVED 2 1\r\nx\r\nTIMED_OUT\r\n"
    assert other.peer.outbox.closing


def test_reserve_job_in_every_state(wire: Wire) -> None:
    wire.ask(b"use elsewhere\r\n" + put(b"r") + put(b"d", delay=100) + put(b"b"))
    wire.ask(b"pause-tube elsewhere 100\r\n")
    for job, body in ((1, b"r"), (2, b"d"), (3, b"b")):
        assert wire.ask(b"reserve-job %d\r\n" % job) == b"RESERVED %d 1\r\n%s\r\n" % (job, body)
    assert wire.ask(b"reserve-job 1\r\n") == b"NOT_FOUND\r\n"
    wire.ask(b"bury 3 0\r\n")
    assert wire.ask(b"reserve-job 3\r\n") == b"RESERVED 3 1\r\nb\r\n"
    assert facts(wire.ask(b"stats\r\n"))["cmd-reserve"] == "0"


def test_a_paused_tube_gives_nothing_out_until_its_time_is_over(wire: Wire) -> None:
    wire.ask(put(b"x"))
    assert wire.ask(b"pause-tube default 2\r\n") == b"PAUSED\r\n"
    assert wire.ask(b"reserve-with-timeout 0\r\n") == b"TIMED_OUT\r\n"
    expected = facts(wire.ask(b"stats-tube default\r\n"))
    assert (expected["pause"], expected["pause-time-left"], expected["cmd-pause-tube"]) == ("2", "2", "1")
    wire.send(b"reserve\r\n").advance(1900)
    assert wire.said() == b""
    wire.advance(150)
    assert wire.said() == b"RESERVED 1 1\r\nx\r\n"
    wire.ask(b"release 1 0 0\r\npause-tube default 100\r\n")
    wire.send(b"reserve\r\n").advance(500)
    assert wire.said() == b""
    assert Wire(wire.node).ask(b"pause-tube default 0\r\n") == b"PAUSED\r\n"
    wire.advance(50)
    assert wire.said() == b"RESERVED 1 1\r\nx\r\n"
    assert facts(wire.ask(b"stats-tube default\r\n"))["pause"] == "0"


def test_tubes_come_and_go_and_are_watched(wire: Wire) -> None:
    other = Wire(wire.node)
    other.ask(b"watch a\r\nuse b\r\n")
    assert wire.ask(b"list-tubes\r\n") == b"OK 22\r\n---\n- default\n- a\n- b\n\r\n"
    other.ask(put(b"x"))
    other.leave()
    assert wire.ask(b"list-tubes\r\n") == b"OK 18\r\n---\n- default\n- b\n\r\n"
    assert wire.ask(b"delete 1\r\nlist-tubes\r\n") == b"DELETED\r\nOK 14\r\n---\n- default\n\r\n"
    assert list(wire.node.broker.topics) == []
    assert wire.ask(b"watch a\r\nwatch b\r\nwatch a\r\n") == b"WATCHING 2\r\nWATCHING 3\r\nWATCHING 3\r\n"
    assert wire.ask(b"list-tubes-watched\r\n") == b"OK 22\r\n---\n- default\n- a\n- b\n\r\n"
    assert wire.ask(b"ignore default\r\nlist-tubes-watched\r\n") == b"WATCHING 2\r\nOK 12\r\n---\n- b\n- a\n\r\n"
    assert wire.ask(b"ignore a\r\nignore b\r\n") == b"WATCHING 1\r\nNOT_IGNORED\r\n"


JOB = ["id", "tube", "state", "pri", "age", "delay", "ttr", "time-left", "file", "reserves", "timeouts", "releases"]
TUBE = [
    "name",
    *(f"current-jobs-{state}" for state in ("urgent", "ready", "reserved", "delayed", "buried")),
    "total-jobs",
]
TUBE += [
    "current-using", "current-watching", "current-waiting", "cmd-delete", "cmd-pause-tube", "pause",
    "pause-time-left",
]  # fmt: skip
ALL = [
    "current-jobs-urgent", "current-jobs-ready", "current-jobs-reserved", "current-jobs-delayed",
    "current-jobs-buried", "cmd-put", "cmd-peek", "cmd-peek-ready", "cmd-peek-delayed", "cmd-peek-buried",
    "cmd-reserve", "cmd-reserve-with-timeout", "cmd-delete", "cmd-release", "cmd-use", "cmd-watch", "cmd-ignore",
    "cmd-bury", "cmd-kick", "cmd-touch", "cmd-stats", "cmd-stats-job", "cmd-stats-tube", "cmd-list-tubes",
    "cmd-list-tube-used", "cmd-list-tubes-watched", "cmd-pause-tube", "job-timeouts", "total-jobs", "max-job-size",
    "current-tubes", "current-connections", "current-producers", "current-workers", "current-waiting",
    "total-connections", "pid", "version", "rusage-utime", "rusage-stime", "uptime", "binlog-oldest-index",
    "binlog-current-index", "binlog-records-migrated", "binlog-records-written", "binlog-max-size", "draining", "id",
    "hostname", "os", "platform",
]  # fmt: skip


def test_statistics_have_beanstalkds_keys_in_its_order(wire: Wire) -> None:
    wire.ask(put(b"x", 5) + put(b"y", 2000) + put(b"z", delay=9))
    wire.ask(b"reserve-job 2\r\n")
    assert list(facts(wire.ask(b"stats-job 1\r\n"))) == [*JOB, "buries", "kicks"]
    assert facts(wire.ask(b"stats-job 1\r\n"))["tube"] == '"default"'
    expected = facts(wire.ask(b"stats-tube default\r\n"))
    assert list(expected) == [*TUBE, "oldest-ready-age"]
    assert expected == expected | {
        "name": '"default"', "current-jobs-urgent": "1", "current-jobs-ready": "1", "current-jobs-reserved": "1",
        "current-jobs-delayed": "1", "current-jobs-buried": "0", "total-jobs": "3", "current-using": "1",
        "current-watching": "1",
    }  # fmt: skip
    expected = facts(wire.ask(b"stats\r\n"))
    assert list(expected) == ALL
    assert expected == expected | {
        "cmd-put": "3", "cmd-stats": "1", "cmd-stats-job": "2", "version": '"1.13"', "total-jobs": "3",
    }  # fmt: skip
    assert wire.ask(b"stats-tube \r\npause-tube : 1\r\n") == b"BAD_FORMAT\r\n" * 2
    expected = facts(wire.ask(b"stats\r\n"))
    assert (expected["cmd-stats-tube"], expected["cmd-pause-tube"]) == ("1", "1")


def test_batches(wire: Wire) -> None:
    wire.ask(put(b"1") + put(b"2") + put(b"3"))
    assert wire.ask(b"reserve-batch 2 0\r\n") == b"RESERVED_BATCH 2\r\nRESERVED 1 1\r\n1\r\nRESERVED 2 1\r\n2\r\n"
    assert wire.ask(b"reserve-batch 9 0\r\n") == b"RESERVED_BATCH 1\r\nRESERVED 3 1\r\n3\r\n"
    assert wire.ask(b"reserve-batch 9 0\r\n") == b"TIMED_OUT\r\n"
    assert wire.ask(b"delete-batch 1 2 7\r\n") == b"DELETED_BATCH 2\r\n"
    for line in ("reserve-batch 0 0", "reserve-batch 101 0", "reserve-batch 1", "delete-batch 1 x", "delete-batch "):
        assert wire.ask(line.encode() + b"\r\n") == b"BAD_FORMAT\r\n", line
    wire.send(b"reserve-batch 5 10\r\n")
    Wire(wire.node).ask(put(b"4"))
    assert wire.said() == b"RESERVED 4 1\r\n4\r\n"


def test_headers_are_in_front_of_bodies_for_clients_that_asked(wire: Wire) -> None:
    content, none = pack_headers((("a", "1"),)), pack_headers(())
    assert wire.ask(b"headers\r\n" + put(none + b"0")) == b"HEADERS\r\nINSERTED 1\r\n"
    first, second = put(content + b"x"), put(content + b"y").replace(b"put ", b"put-unique k ")
    assert wire.ask(first * 2 + second * 2) == b"INSERTED 2\r\nINSERTED 3\r\nINSERTED 4\r\nDUPLICATE\r\n"
    size, other = len(content) + 1, Wire(wire.node)
    assert wire.ask(b"peek 2\r\npeek-ready\r\n") == b"FOUND 2 %d\r\n%sx\r\nFOUND 1 6\r\n%s0\r\n" % (size, content, none)
    assert other.ask(b"peek 2\r\nreserve\r\n") == b"FOUND 2 1\r\nx\r\nRESERVED 1 1\r\n0\r\n"
    assert other.ask(b"reserve\r\n" + put(b"plain")) == b"RESERVED 2 1\r\nx\r\nINSERTED 5\r\n"
    assert other.ask(b"move-job 2 default\r\n") == b"MOVED 6\r\n"
    assert wire.ask(b"reserve-batch 1 0\r\n") == b"RESERVED_BATCH 1\r\nRESERVED 3 %d\r\n%sx\r\n" % (size, content)
    assert wire.ask(b"reserve-job 5\r\nreserve\r\n").endswith(
        b"%splain\r\nRESERVED 4 %d\r\n%sy\r\n" % (none, size, content)
    )
    assert wire.ask(b"reserve\r\nreserve\r\n") == b"RESERVED 6 %d\r\n%sx\r\n" % (size, content)
    other.ask(put(b"late"))
    assert wire.said() == b"RESERVED 7 9\r\n%slate\r\n" % none


@each("content, reply", [
    (b"", b"BAD_FORMAT"), (b"body", b"BAD_FORMAT"), (b"\0\0\0\1\xc0", b"BAD_FORMAT"),
    (b"\0\0\0\1\x90" + b"x" * 11, b"JOB_TOO_BIG"), (b"x" * 100_000, b"JOB_TOO_BIG"),
    *((pack_headers(((name, "1"),)), b"BAD_FORMAT") for name in ("batch", "unique", "deliver-at")),
])  # fmt: skip
def test_headers_that_no_job_can_have(content: bytes, reply: bytes) -> None:
    wire = Wire(context=SMALL)
    assert wire.ask(b"headers\r\n" + put(content) + b"headers\r\n") == b"HEADERS\r\n" + reply + b"\r\nHEADERS\r\n"
    assert wire.ask(put(b"\0\0\0\1\x90" + b"x" * 10)).startswith(b"INSERTED")
    many = put(pack_headers(tuple((f"h{number}", "") for number in range(MOST_HEADERS))))
    assert wire.ask(many + many.replace(b"put ", b"put-batch b ")).split()[::2] == [b"INSERTED", b"BAD_FORMAT"]


def test_a_job_that_was_reserved_too_often_is_buried() -> None:
    wire = Wire(Node(Limits(max_attempts={"work": 2})))
    wire.ask(b"use work\r\nwatch work\r\n" + put(b"x", ttr=1))
    wire.ask(b"reserve\r\n")
    assert wire.ask(b"release 1 0 0\r\n") == b"RELEASED\r\n"
    wire.ask(b"reserve\r\n")
    assert wire.ask(b"release 1 5 9\r\n") == b"BURIED\r\n"
    expected = facts(wire.ask(b"stats-job 1\r\n"))
    assert (expected["state"], expected["pri"], expected["releases"], expected["buries"]) == ("buried", "5", "2", "1")
    wire.ask(b"reserve-job 1\r\n")  # from now on it may fail as often again
    for state in ("ready", "buried"):
        wire.advance(1200)
        assert facts(wire.ask(b"stats-job 1\r\n"))["state"] == state
        wire.ask(b"reserve-with-timeout 0\r\n")
    wire.check()


def test_clearing_moving_and_listing(wire: Wire) -> None:
    wire.ask(b"use a\r\nwatch a\r\n" + put(b"1") + put(b"2") + put(b"3", 7, delay=9) + put(b"4"))
    wire.ask(b"reserve\r\nreserve-job 4\r\nbury 4 0\r\n")
    assert wire.ask(b"list-jobs a ready 10\r\n") == b"OK 8\r\n---\n- 2\n\r\n"
    assert wire.ask(b"list-jobs a delayed 10 2\r\n") == b"OK 8\r\n---\n- 3\n\r\n"
    assert wire.ask(b"list-jobs a delayed 10 3\r\n") == b"OK 4\r\n---\n\r\n"
    assert wire.ask(b"move-job 3 b\r\n") == b"MOVED 5\r\n"
    moved = {"tube": '"b"', "state": "delayed", "pri": "7", "delay": "9", "time-left": "9"}
    assert moved.items() <= facts(wire.ask(b"stats-job 5\r\n")).items()
    assert wire.ask(b"peek 3\r\n") == b"NOT_FOUND\r\n"
    other = Wire(wire.node)  # job 1 is reserved by another client
    assert other.ask(b"move-job 1 b\r\nclear-tube a\r\n") == b"NOT_FOUND\r\nCLEARED 2\r\n"
    assert wire.ask(b"delete 1\r\nclear-tube nowhere\r\n") == b"DELETED\r\nNOT_FOUND\r\n"
    for line in (
        "list-jobs a ready",
        "list-jobs a odd 5",
        "list-jobs a ready 0",
        "list-jobs a ready 1001",
        "move-job 1",
    ):
        assert wire.ask(line.encode() + b"\r\n") == b"BAD_FORMAT\r\n", line


def test_kicking_and_clearing_many_take_several_turns(wire: Wire) -> None:
    for _ in range(12):
        wire.ask(put(b"x", delay=1000) * 100)
    assert wire.ask(b"kick 1150\r\nlist-tube-used\r\n") == b"KICKED 1150\r\nUSING default\r\n"
    assert wire.node.broker.tubes.count(JobState.DELAYED) == 50
    wire.peer.receive(b"clear-tube default\r\n", wire.node.now)
    assert wire.peer.has_more
    assert 0 < wire.node.broker.tubes.count(JobState.READY) < 1150
    assert wire.said() == b"CLEARED 1200\r\n"
    assert wire.ask(b"kick 5\r\n") == b"KICKED 0\r\n"


def test_a_unique_job_is_put_once(wire: Wire) -> None:
    one = b"put-unique k1 5 0 60 1\r\nx\r\n"
    assert wire.ask(one + one) == b"INSERTED 1\r\nDUPLICATE\r\n"
    assert wire.ask(b"use other\r\n" + one) == b"USING other\r\nINSERTED 2\r\n"
    assert wire.ask(b"put-unique k2 5 0 60 99999\r\n" + b"x" * 100_001) == b"JOB_TOO_BIG\r\n"
    assert wire.ask(b"put-unique k2 5 0 60 1\r\nabc") == b"EXPECTED_CRLF\r\n"
    assert wire.ask(b"put-unique k2 5 0 60 1\r\na\r\n") == b"INSERTED 4\r\n"  # neither was put
    for words in (" 5 0 60 1", "k", "k 5 0 60", "k" * 129 + " 5 0 60 1"):
        assert wire.ask(b"put-unique %s\r\n" % words.encode()) == b"BAD_FORMAT\r\n", words


def test_a_job_is_put_once_while_it_is_pending(wire: Wire) -> None:
    one = b"put-unless-pending k 5 0 60 1\r\nx\r\n"
    assert wire.ask(one + one) == b"INSERTED 1\r\nDUPLICATE 1\r\n"
    for command in (b"reserve", b"bury 1 5", b"kick 1", b"reserve", b"release 1 5 60"):
        wire.ask(command + b"\r\n")
        assert wire.ask(one) == b"DUPLICATE 1\r\n", command
    assert wire.ask(b"use other\r\n" + one) == b"USING other\r\nINSERTED 2\r\n"
    # a key of the other kind
    assert wire.ask(b"use default\r\nput-unique k 5 0 60 1\r\nx\r\n") == b"USING default\r\nINSERTED 3\r\n"
    assert wire.ask(b"delete 1\r\n" + one + one) == b"DELETED\r\nINSERTED 4\r\nDUPLICATE 4\r\n"
    assert wire.ask(put(b"before") + one + b"delete 4\r\n" + put(b"before") + one) == (
        b"INSERTED 5\r\nDUPLICATE 4\r\nDELETED\r\nINSERTED 6\r\nINSERTED 7\r\n"
    )
    assert facts(wire.ask(b"stats-tube default\r\n"))["total-jobs"] == "6"


def test_jobs_of_a_batch(wire: Wire) -> None:
    member = b"put-batch b 5 0 60 1\r\nx\r\n"
    assert wire.ask(b"stats-batch b\r\n" + member + member) == b"NOT_FOUND\r\nINSERTED 1\r\nINSERTED 2\r\n"
    assert wire.ask(b"reserve\r\ndelete 1\r\nreserve\r\nclose-batch b\r\n").endswith(b"CLOSED\r\n")
    batches = wire.node.broker.context.batches
    batches.find_done(1, 9)
    batches.find_done(1, 9)
    assert facts(wire.ask(b"stats-batch b\r\n")) == {"name": '"b"', "state": "closed", "members": "2"}
    wire.ask(b"bury 2 5\r\n")
    batches.find_done(1, 9)
    batches.find_done(1, 9)
    assert facts(wire.ask(b"stats-batch b\r\n")) | {"name": ""} == {
        "name": "", "state": "done", "members": "2", "finished": "1", "buried": "1",
    }  # fmt: skip
    assert wire.ask(member + b"close-batch b\r\n") == b"BATCH_DONE\r\nCLOSED\r\n"
    for line in (b"put-batch a", b"put-batch " + b"b" * 65 + b" 5 0 60 1", b"close-batch ", b"stats-batch a b"):
        assert wire.ask(line + b"\r\n") == b"BAD_FORMAT\r\n", line


def test_a_member_that_two_channels_moved_to_dead_letter_topics_counts_once() -> None:
    batch = NamedBatch("b", 1, 1, BatchState.DONE, count=1, buried=2)
    assert batch_stats([batch]) == {"name": '"b"', "state": "done", "members": 1, "finished": 0, "buried": 1}


def due_between_two_scans(wire: Wire, command: bytes) -> None:
    """A job of 1 s delay, after which `command` is said at once; a scan runs a millisecond before the second is over."""
    wire.ask(b"use other\r\n" + put(b"", delay=1) + b"use default\r\n")
    wire.advance(1)
    wire.ask(put(b"late", delay=1) + command)
    wire.node.advance(999 * MS)
    wire.node.now += MS
    scan_at = wire.node.broker.scan.next_turn()
    assert scan_at is not None
    assert scan_at > wire.node.now


@each("seconds", [b"1", b"2147483647"], wire=Wire)
def test_a_job_that_is_due_with_a_workers_deadline_is_its_own(wire: Wire, seconds: bytes) -> None:
    due_between_two_scans(wire, b"reserve-with-timeout %s\r\n" % seconds)
    if seconds == b"1":
        assert wire.peer.next_timer() == wire.node.now
        wire.peer.tick(wire.node.now)
    else:
        wire.node.advance(25 * MS)
    assert wire.said() == b"RESERVED 2 4\r\nlate\r\n"


@each("ttr, delay", [(1, 0), (60, 1)])
def test_what_is_free_with_a_workers_deadline_is_its_own_unless_another_one_waits_longer(ttr: int, delay: int) -> None:
    """By the end of a reservation, and by that of a delay."""
    for is_first in (True, False):
        node = Node()
        slow, other, early = Wire(node), Wire(node), Wire(node)
        slow.ask(put(b"x", delay=delay, ttr=ttr) + b"reserve\r\n" * (not delay))
        if not is_first:
            early.ask(b"reserve\r\n")
        other.ask(b"reserve-with-timeout 1\r\n")
        node.now += SECOND
        other.peer.tick(node.now)
        assert [other.said(), early.said()] == (
            [b"RESERVED 1 1\r\nx\r\n", b""] if is_first else [b"TIMED_OUT\r\n", b"RESERVED 1 1\r\nx\r\n"]
        )


@each("command", [b"reserve-with-timeout 0\r\n", b"reserve-batch 1 0\r\n", b"reserve\r\n"], wire=Wire)
def test_a_due_job_is_available_before_the_scan_has_found_it(wire: Wire, command: bytes) -> None:
    due_between_two_scans(wire, b"")
    wire.peer.receive(command, wire.node.now)
    assert b"".join(wire.peer.take_output()).endswith(b"RESERVED 2 4\r\nlate\r\n")

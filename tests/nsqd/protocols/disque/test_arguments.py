"""The arguments of Disque's commands, and the error that each wrong one gets."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from nsqd.protocols.disque.arguments import (
    AddJob,
    GetJob,
    JScan,
    PauseCommand,
    QPeek,
    QScan,
    Refused,
    addjob,
    getjob,
    job_ids,
    jscan,
    pause,
    qpeek,
    qscan,
)
from tests.cases import each

ID = b"D-dcb833cf-8YL1NT17e9+wsA/09NqxscQI-05a1"
I63, U64 = (1 << 63) - 1, (1 << 64) - 1
SYNTAX = "ERR syntax error"
NO_INTEGER = "ERR value is not an integer or out of range"
NO_TIMEOUT = "ERR timeout is not an integer or out of range"
NEGATIVE = "ERR timeout is negative"
REPLICATE = "ERR REPLICATE must be between 1 and 65535"
TTL = "ERR TTL must be a number > 0"
RETRY = "ERR RETRY time must be a non negative number"
DELAY = "ERR DELAY time must be a non negative number"
MAXLEN = "ERR MAXLEN must be a positive number"
COPIES = "ERR With RETRY set to 0 please explicitly set  REPLICATE to 1 (at-most-once delivery)"
LATE = "ERR The specified DELAY is greater than TTL. Job refused since would never be delivered"
COUNT = "ERR COUNT must be a number greater than zero"
CURSOR = "ERR invalid cursor or option name"

JOB = AddJob(b"q", b"body", 0, None, 0, None, 86400, None, False)


def refusal(read: Callable[[list[bytes]], Any], line: str) -> str:
    """Return the error that a command gets, or what it means if it gets none."""
    try:
        return repr(read(line.encode().split(b" ")))
    except Refused as refused:
        return refused.text.decode()


@each("rest, meaning", [
    ("0", JOB), ("100", JOB._replace(timeout=100)), (f"{I63}", JOB._replace(timeout=I63)),
    ("+7", JOB._replace(timeout=7)), ("-0", JOB), ("007", JOB._replace(timeout=7)),
    ("0" * 5000 + "7", JOB._replace(timeout=7)),
    ("", JOB),  # strtoll finds nothing wrong with an empty text
    ("0 replicate 3", JOB._replace(replicate=3)), ("0 REPLICATE 65535", JOB._replace(replicate=65535)),
    ("0 Delay 10", JOB._replace(delay=10)), ("0 RETRY 0", JOB._replace(retry=0)),
    ("0 RETRY 0 REPLICATE 1", JOB._replace(retry=0, replicate=1)),
    ("0 RETRY 4294967295", JOB._replace(retry=4294967295)), ("0 TTL 4294967295", JOB._replace(ttl=4294967295)),
    ("0 TTL 4294967295 DELAY 4294967294", JOB._replace(ttl=4294967295, delay=4294967294)),
    ("0 TTL 2 DELAY 1", JOB._replace(ttl=2, delay=1)), (f"0 MAXLEN {I63}", JOB._replace(maxlen=I63)),
    ("0 ASYNC async", JOB._replace(is_async=True)), ("0 TTL 5 TTL 6", JOB._replace(ttl=6)),
    ("0 DELAY 90000 TTL 90001", JOB._replace(delay=90000, ttl=90001)),
    ("5 REPLICATE 1 DELAY 2 RETRY 3 TTL 4 MAXLEN 5 ASYNC", AddJob(b"q", b"body", 5, 1, 2, 3, 4, 5, True)),
])  # fmt: skip
def test_addjob(rest: str, meaning: AddJob) -> None:
    assert addjob([b"ADDJOB", b"q", b"body", *rest.encode().split(b" ")]) == meaning


@each("rest, error", [
    ("x", NO_TIMEOUT), ("1.5", NO_TIMEOUT), ("+", NO_TIMEOUT), ("\t1", NO_TIMEOUT), ("1\t", NO_TIMEOUT),
    (f"{I63 + 1}", NO_TIMEOUT), (f"-{I63 + 2}", NO_TIMEOUT), ("9" * 5000, NO_TIMEOUT), ("-1", NEGATIVE),
    (f"-{I63 + 1}", NEGATIVE), *((f"0 REPLICATE {n}", REPLICATE) for n in (0, -1, 65536, "x", I63 + 1)),
    *((f"0 TTL {n}", TTL) for n in (0, -1, 2**32, 10**12, "x", "", I63 + 1)),
    *((f"0 RETRY {n}", RETRY) for n in (-1, 2**32, 5 * 10**9, "x")),
    *((f"0 DELAY {n}", DELAY) for n in (-1, 2**32, "x")), *((f"0 MAXLEN {n}", MAXLEN) for n in (0, -1, "x", I63 + 1)),
    ("0 BOGUS", SYNTAX), ("0 TTL", SYNTAX), ("0 ASYNC 1", SYNTAX), ("0 REPLICATE 2 RETRY", SYNTAX), ("0 ", SYNTAX),
    ("0 DELAY 86400", LATE), ("0 TTL 1 DELAY 1", LATE), ("0 RETRY 0 REPLICATE 2", COPIES),
    # the order: options as they stand, the timeout, RETRY with REPLICATE, DELAY with TTL
    ("x TTL 0", TTL), ("x BOGUS", SYNTAX), ("x TTL 0 REPLICATE 0", TTL), ("x REPLICATE 0 TTL 0", REPLICATE),
    ("x RETRY 0 REPLICATE 2", NO_TIMEOUT), ("-1 TTL 1 DELAY 1", NEGATIVE),
    ("0 RETRY 0 REPLICATE 2 TTL 1 DELAY 1", COPIES),
])  # fmt: skip
def test_addjob_is_refused(rest: str, error: str) -> None:
    assert refusal(addjob, f"ADDJOB q body {rest}") == error


def test_retry_0_wants_one_copy_in_a_cluster() -> None:
    def in_a_cluster(arguments: list[bytes]) -> AddJob:
        return addjob(arguments, copies=3)

    assert refusal(in_a_cluster, "ADDJOB q body 0 RETRY 0") == COPIES
    assert refusal(in_a_cluster, "ADDJOB q body 0 RETRY 0 TTL 1 DELAY 1") == COPIES
    assert refusal(in_a_cluster, "ADDJOB q body 0 RETRY 1 TTL 1 DELAY 1") == LATE
    assert in_a_cluster([b"ADDJOB", b"q", b"body", b"0", b"RETRY", b"0", b"REPLICATE", b"1"]).retry == 0
    assert in_a_cluster([b"ADDJOB", b"q", b"body", b"0"]) == JOB


FETCH = GetJob(False, 0, 1, False, [b"q"])


@each("rest, meaning", [
    ("FROM q", FETCH), ("from a b a", replace(FETCH, queues=[b"a", b"b", b"a"])),
    ("NOHANG FROM q", replace(FETCH, nohang=True)), ("withcounters from q", replace(FETCH, with_counters=True)),
    ("TIMEOUT 250 FROM q", replace(FETCH, timeout=250)), ("COUNT 1000000000 FROM q", replace(FETCH, count=10**9)),
    (f"COUNT {I63} COUNT 2 FROM q", replace(FETCH, count=2)),
    ("NOHANG COUNT 2 WITHCOUNTERS TIMEOUT 1 FROM q", GetJob(True, 1, 2, True, [b"q"])),
    ("FROM NOHANG FROM COUNT 0", replace(FETCH, queues=[b"NOHANG", b"FROM", b"COUNT", b"0"])),
    ("COUNT 1 FROM ", replace(FETCH, queues=[b""])),
])  # fmt: skip
def test_getjob(rest: str, meaning: GetJob) -> None:
    assert getjob([b"GETJOB", *rest.encode().split(b" ")]) == meaning


@each("rest, error", [
    *((rest, SYNTAX) for rest in ("FROM", "q", "NOHANG", "COUNT", "TIMEOUT", "COUNT 1", "NOHANG FROM", "BOGUS FROM q")),
    *((f"COUNT {n} FROM q", COUNT) for n in (0, -1, "x", "", I63 + 1, "FROM")), ("COUNT 0", COUNT),
    ("TIMEOUT x", NO_TIMEOUT), ("TIMEOUT -1 FROM q", NEGATIVE), ("TIMEOUT -1 COUNT 0", NEGATIVE),
    ("COUNT 0 TIMEOUT -1", COUNT), ("COUNT 0 BOGUS", COUNT),
])  # fmt: skip
def test_getjob_is_refused(rest: str, error: str) -> None:
    assert refusal(getjob, f"GETJOB {rest}") == error


@each(
    "id_",
    [b"", b"x", ID[:-1], ID + b"1", ID + b"\n", b"d" + ID[1:], b"DI" + ID[2:]]
    + [ID[:at] + b"_" + ID[at + 1 :] for at in (0, 1, 10, 35)],
)
def test_one_bad_id_refuses_all(id_: bytes) -> None:
    with pytest.raises(Refused) as refused:
        job_ids([b"ACKJOB", ID, id_, ID])
    assert refused.value.text == b"BADID Invalid Job ID format."


def test_qpeek_and_refusals_of_pause() -> None:
    assert qpeek([b"QPEEK", b"q", b"5"]) == QPeek(b"q", 5, False)
    assert qpeek([b"QPEEK", b"q", b"-5"]) == QPeek(b"q", 5, True)
    assert qpeek([b"QPEEK", b"q", b""]) == QPeek(b"q", 0, False)
    assert refusal(qpeek, "QPEEK q x") == refusal(qpeek, f"QPEEK q {I63 + 1}") == NO_INTEGER
    assert refusal(pause, "PAUSE q in bogus") == refusal(pause, "PAUSE q ") == SYNTAX


QUEUES = QScan(0, 100, False, None, None, None)


@each("rest, meaning", [
    ([], QUEUES), ([b"0"], QUEUES), ([b""], QUEUES), ([b"17"], replace(QUEUES, cursor=17)),
    ([b"+017"], replace(QUEUES, cursor=17)), ([str(U64).encode()], replace(QUEUES, cursor=U64)),
    ([b"-1"], replace(QUEUES, cursor=U64)),
    ([b"COUNT", b"5", b"17", b"busyloop"], replace(QUEUES, cursor=17, count=5, busyloop=True)),
    ([b"COUNT", b"-5"], replace(QUEUES, count=-5)),
    ([b"MINLEN", b"1", b"MAXLEN", b"2", b"IMPORTRATE", b"3"], QScan(0, 100, False, 1, 2, 3)),
    ([b"minlen", b"-1", b"maxlen", b"-2", b"importrate", b"-1"], QScan(0, 100, False, None, -2, None)),
    ([b"COUNT", b"1", b"COUNT", b"2"], replace(QUEUES, count=2)),
])  # fmt: skip
def test_qscan(rest: list[bytes], meaning: QScan) -> None:
    assert qscan([b"QSCAN", *rest]) == meaning


@each("read", [qscan, jscan])
@each("rest, error", [
    ("0 0", SYNTAX), ("0 bogus", SYNTAX), ("0 COUNT", SYNTAX), ("COUNT", CURSOR), ("bogus", CURSOR), ("\t1", CURSOR),
    ("1\t", CURSOR), ("-", CURSOR), (f"{U64 + 1}", CURSOR), (f"-{U64 + 1}", CURSOR), ("COUNT x", NO_INTEGER),
    (f"COUNT {I63 + 1}", NO_INTEGER), ("COUNT x bogus", NO_INTEGER), ("bogus COUNT x", CURSOR),
])  # fmt: skip
def test_a_scan_is_refused(read: Callable[[list[bytes]], Any], rest: str, error: str) -> None:
    assert refusal(read, f"SCAN {rest}") == error


def test_a_limit_of_a_scan_is_a_number() -> None:
    for option in ("MINLEN", "maxlen", "importrate"):
        assert refusal(qscan, f"QSCAN {option} x") == NO_INTEGER
        assert refusal(qscan, f"QSCAN {option}") == CURSOR


JOBS = JScan(0, 100, False, None, frozenset(), "id")


@each("rest, meaning", [
    ([], JOBS), ([b"COUNT", b"5", b"17", b"BUSYLOOP"], replace(JOBS, cursor=17, count=5, busyloop=True)),
    ([b"QUEUE", b"busyloop"], replace(JOBS, queue=b"busyloop")),
    ([b"STATE", b"Queued", b"state", b"ACKED"], replace(JOBS, states=frozenset((b"queued", b"acked")))),
    ([b"STATE", b"wait-repl", b"state", b"active"], replace(JOBS, states=frozenset((b"wait-repl", b"active")))),
    ([b"REPLY", b"ALL"], replace(JOBS, reply="all")), ([b"REPLY", b"all", b"reply", b"Id"], JOBS),
    ([b"QUEUE", b"a", b"QUEUE", b"b"], replace(JOBS, queue=b"b")),
])  # fmt: skip
def test_jscan(rest: list[bytes], meaning: JScan) -> None:
    assert jscan([b"JSCAN", *rest]) == meaning


@each("rest, error", [
    ("STATE bogus", "ERR Invalid job state name"), ("STATE ", "ERR Invalid job state name"),
    ("REPLY bogus", "ERR Invalid REPLY type, try ID or ALL"),
    ("REPLY bogus STATE bogus", "ERR Invalid REPLY type, try ID or ALL"),
    *((option, CURSOR) for option in ("STATE", "REPLY", "QUEUE", "COUNT")),
    *((f"1 {option}", SYNTAX) for option in ("STATE", "REPLY", "QUEUE", "COUNT")),
])  # fmt: skip
def test_jscan_is_refused(rest: str, error: str) -> None:
    assert refusal(jscan, f"JSCAN {rest}") == error


@each("rest, state, bcast", [
    ("in", b"in", False), ("OUT", b"out", False), ("all", b"all", False), ("in out", b"all", False),
    ("none", b"none", False), ("all none", b"none", False), ("in none out", b"out", False), ("none in", b"in", False),
    ("state", b"state", False), ("state in", b"in", False), ("none state", b"none", False), ("bcast", b"state", True),
    ("BCAST in", b"in", True),
])  # fmt: skip
def test_pause(rest: str, state: bytes, bcast: bool) -> None:
    assert pause([b"PAUSE", b"q", *rest.encode().split()]) == PauseCommand(b"q", state, bcast)

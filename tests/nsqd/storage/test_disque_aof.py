"""Disque's append-only file: read, cut at every byte, corrupt; and files that the real Disque wrote or has to load.

PENSTOCK_DISQUE=PATH names that disque-server.
"""

import os
import re
import socket
import subprocess
import time
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from random import Random
from struct import pack
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.ports import lease_port
from nsqd.storage.disque_aof import FILE, AofError, AofJob, AofJobs, AofState, read_aof
from tests.cases import each
from tests.daemons import eventually
from tests.effort import tries

ORIGINAL = os.environ.get("PENSTOCK_DISQUE", "")
NOW = 1_700_000_000  # s since the epoch
MILLISECOND = 1_000_000  # ns
ACTIVE, QUEUED = 1, 2
NODE = b"8d2f0a4c" + b"0" * 32


def job_id(number: int) -> bytes:
    return b"D-8d2f0a4c-" + b"%024d" % number + b"-05a1"


def command(*parts: bytes) -> bytes:
    return b"*%d\r\n" % len(parts) + b"".join(b"$%d\r\n%s\r\n" % (len(part), part) for part in parts)


def serialized(
    number: int, body: bytes = b"body", queue: bytes = b"q", *, id: bytes = b"", state: int = QUEUED, flags: int = 1,
    replicate: int = 1, expires: int = NOW + 86_400, created: int | None = None, delay: int = 0, retry: int = 300,
    nacks: int = 0, deliveries: int = 0, nodes: bytes = pack("<I", 1) + NODE, longer: int = 0,
) -> bytes:  # fmt: skip
    """`longer`: bytes added to the length that the job claims."""
    created = NOW * 1000 * MILLISECOND + number if created is None else created
    head = (id or job_id(number)) + pack("<BBHIQII", state, flags, replicate, expires, created, delay, retry)
    rest = pack("<HH", nacks, deliveries) + pack("<I", len(queue)) + queue + pack("<I", len(body)) + body + nodes
    return pack("<I", len(head + rest) + longer) + head + rest


def load(number: int, *args: Any, **fields: Any) -> bytes:
    return command(b"LOADJOB", serialized(number, *args, **fields))


def delete(*numbers: int) -> bytes:
    return command(b"DELJOB", *(job_id(number) for number in numbers))


def read(path: Path, data: bytes, now: int = NOW) -> AofJobs:
    (path / FILE).write_bytes(data)
    return read_aof(path / FILE, now)


def bodies(aof: AofJobs) -> list[bytes]:
    return [job.body for job in aof.jobs]


def test_a_job_with_all_its_fields(tmp_path: Path) -> None:
    one = serialized(
        7, b"\r\n\0body", b"a queue", state=ACTIVE, flags=7, replicate=3, created=NOW * 1000 * MILLISECOND + 5,
        delay=9, retry=8, nacks=2, deliveries=4, nodes=pack("<I", 2) + 2 * NODE,
    )  # fmt: skip
    assert read(tmp_path, b"*2\r\n$7\r\nLOADJOB\r\n$178\r\n" + one + b"\r\n") == AofJobs(
        (
            AofJob(
                id=b"D-8d2f0a4c-000000000000000000000007-05a1", queue=b"a queue", body=b"\r\n\0body",
                created=1_700_000_000_000_000_005, expires=1_700_086_400, delay=9, retry=8, replicate=3, nacks=2,
                additional_deliveries=4, state=AofState.ACTIVE, is_delivered=True,
            ),
        ),
        expired=0,
        cut_at=None,
        size=4 + 13 + 6 + 178 + 2,
    )  # fmt: skip


EXPIRING = load(1, b"1", expires=NOW) + load(2, b"2", expires=NOW + 1) + load(3, b"3", expires=0)


@each("data, left, expired", [
    # in the order of creation, and then of the id
    (load(3, b"3", created=6) + load(1, b"1", created=7) + load(2, b"2", created=6) + load(9, b"9", created=5), b"9231", 0),
    (load(1, b"1") + load(2, b"2") + delete(1) + load(3, b"3") + load(4, b"4") + delete(3, 77, 3, 4), b"2", 0),
    (load(1, b"f") + load(1, b"s"), b"f", 0),  # of two with one id the first counts until it is deleted
    (load(1, b"f") + delete(1) + load(1, b"s"), b"s", 0),
    (EXPIRING, b"2", 2), (EXPIRING + delete(3), b"2", 1),
    (EXPIRING + load(2, expires=NOW) + load(3, b"a"), b"2a", 1),
    (command(b"loadjob", serialized(1, b"1")) + load(2) + command(b"DelJob", job_id(2)), b"1", 0),  # names in any case
    (load(2999) + load(3000, b"x") + delete(*range(3000)), b"x", 0),
])  # fmt: skip
def test_which_jobs_there_are(tmp_path: Path, data: bytes, left: bytes, expired: int) -> None:
    aof = read(tmp_path, data)
    assert (b"".join(bodies(aof)), aof.expired) == (left, expired)


def test_an_empty_file_has_no_jobs_and_a_missing_one_is_an_error(tmp_path: Path) -> None:
    assert read(tmp_path, b"") == AofJobs((), expired=0, cut_at=None, size=0)
    with pytest.raises(FileNotFoundError):
        read_aof(tmp_path / "other", NOW)


def sized_queue(size: int) -> bytes:
    return command(b"LOADJOB", serialized(2)[:72] + pack("<I", size) + serialized(2)[76:])


SEVERAL = [load(1, b"one\r\n"), load(2, b""), delete(1), load(3, b"3" * 300, b"other"), delete(2, 3), load(4)]
AFTER = [[], [1], [1, 2], [2], [2, 3], [], [4]]  # numbers of the jobs after each command


def test_cut_at_every_byte(tmp_path: Path) -> None:
    data = b"".join(SEVERAL)
    ends = [len(b"".join(SEVERAL[:count])) for count in range(len(SEVERAL) + 1)]
    (tmp_path / FILE).write_bytes(data)
    for size in reversed(range(len(data) + 1)):
        os.truncate(tmp_path / FILE, size)
        aof = read_aof(tmp_path / FILE, NOW)
        count = max(number for number, end in enumerate(ends) if end <= size)
        assert [job.id for job in aof.jobs] == [job_id(number) for number in AFTER[count]]
        assert aof.cut_at == (None if size in ends else ends[count])
        assert aof.size == size


def test_a_string_that_ends_beyond_the_file_is_a_cut_and_takes_no_memory(tmp_path: Path) -> None:
    data = load(1) + b"*2\r\n$7\r\nLOADJOB\r\n$1073741824\r\n" + load(2)
    tracemalloc.start()
    try:
        aof = read(tmp_path, data)
        assert tracemalloc.get_traced_memory()[1] < 500_000
    finally:
        tracemalloc.stop()
    assert (len(aof.jobs), aof.cut_at) == (1, len(load(1)))


DAMAGE = {
    "an inline command": (b"DELJOB x\r\n", "b'DELJOB x\\r\\n' instead of * and a number"),
    "zeros": (bytes(4096), "instead of * and a number"),
    "a line without an end": (b"*2" + bytes(100), "instead of * and a number"),
    "a line of line feed only": (b"*2\n$7\nLOADJOB\n", "instead of * and a number"),
    "a number with a sign": (b"*+2\r\n", "instead of * and a number"),
    "a huge number": (b"*99999999999\r\n", "instead of * and a number"),
    "no words": (b"*0\r\n", "a command of 0 words"),
    "a negative number": (b"*-1\r\n", "instead of * and a number"),
    "too many words": (b"*2000000\r\n$6\r\nDELJOB\r\n", "a command of 2000000 words"),
    "a number where a string is due": (b"*2\r\n*7\r\n", "b'*7\\r\\n' instead of $ and a number"),
    "half a number where a string is due": (b"*2\r\n*", "instead of $ and a number"),
    "a nil string": (b"*2\r\n$-1\r\n", "instead of $ and a number"),
    "a long name": (b"*2\r\n$65\r\n", "a string of 65 bytes, where at most 64 are allowed"),
    "a string over 1 GiB": (b"*2\r\n$7\r\nLOADJOB\r\n$1073741825\r\n", "a string of 1073741825 bytes"),
    "a string that is longer than its size": (b"*2\r\n$7\r\nLOADJOBS\r\n", "b'S\\r' instead of the end of a string"),
    "a string that is longer than its size, at the end": (b"*1\r\n$6\r\nLOADJO\n", "b'\\n"),
    "a string that is shorter than its size": (
        b"*2\r\n$9\r\nLOADJOB\r\n$1\r\n",
        "b'$1' instead of the end of a string",
    ),
    "an unknown command": (command(b"ADDJOB", b"q", b"x", b"0"), "the command b'ADDJOB', which Disque never writes"),
    "no command": (command(b""), "the command b'', which Disque never writes"),
    "LOADJOB without a job": (command(b"LOADJOB"), "LOADJOB with 0 arguments"),
    "LOADJOB of two jobs": (command(b"LOADJOB", serialized(1), serialized(2)), "LOADJOB with 2 arguments"),
    "DELJOB without an id": (command(b"DELJOB"), "DELJOB with 0 arguments"),
    "DELJOB of a short id": (command(b"DELJOB", job_id(1)[:-1]), "which is not the id of a job"),
    "DELJOB of a long id": (command(b"DELJOB", job_id(1) + b"0"), "a string of 41 bytes, where at most 40"),
    "DELJOB of no id": (command(b"DELJOB", job_id(1), b"x" * 40), "which is not the id of a job"),
    "an empty job": (command(b"LOADJOB", b""), "a job of 0 bytes"),
    "a short job": (command(b"LOADJOB", serialized(1)[:71]), "a job of 71 bytes"),
    "a job without a queue": (command(b"LOADJOB", pack("<I", 68) + serialized(1)[4:72]), "a job that ends too early"),
    "two jobs in one": (command(b"LOADJOB", serialized(2) * 2), "a job that claims 125 bytes and has 254"),
    "a job that claims too much": (load(2, longer=1), "a job that claims 126 bytes and has 125"),
    "a job that claims too little": (load(2, longer=-1), "a job that claims 124 bytes and has 125"),
    "a job with another id": (load(2, id=b"D-8d2f0a4c-00000000000000000000000\n-05a1"), "a job with the id b'D-8d"),
    "a job that waits for copies": (load(2, state=0), "a job in the state 0"),
    "an acknowledged job": (load(2, state=3), "a job in the state 3"),
    "a job in no state": (load(2, state=0x1F), "a job in the state 15"),
    "too many nodes": (load(2, nodes=pack("<I", 2) + NODE), "a job that names 2 nodes in 40 bytes"),
    "too few nodes": (load(2, nodes=pack("<I", 0) + NODE), "a job that names 0 nodes in 40 bytes"),
    "more nodes than 32 bits count": (load(2, nodes=pack("<I", 0x2000_0000)), "a job that names 536870912 nodes"),
    "a queue beyond the job": (sized_queue(54), "a string of 54 bytes in 53 bytes of a job"),
    "a queue as long as the rest": (sized_queue(53), "a job that ends too early"),
}


@each("damage", DAMAGE)
def test_damage(tmp_path: Path, damage: str) -> None:
    data, what = DAMAGE[damage]
    good = load(1) + load(5)
    for rest in (b"", load(6)):
        with pytest.raises(AofError, match=re.escape(what)) as error:
            read(tmp_path, good + data + rest)
        assert error.value.offset == len(good)
        assert str(error.value).startswith(f"disque.aof is corrupt at byte {len(good)}: ")
        assert str(error.value).endswith(f"truncate a copy of the file to {len(good)} bytes")
        assert "\n" not in str(error.value)
    assert len(read(tmp_path, good).jobs) == 2


def test_memory_is_that_of_the_jobs_that_are_there(tmp_path: Path) -> None:
    with (tmp_path / FILE).open("wb") as file:
        for number in range(400):  # 6 MB
            file.write(load(number, bytes(16_000)) + delete(max(0, number - 3)))
            file.write(load(number + 5000, bytes(100), expires=NOW) + delete(number + 5000))
    tracemalloc.start()
    try:
        aof = read_aof(tmp_path / FILE, NOW)
        assert tracemalloc.get_traced_memory()[1] < 500_000
    finally:
        tracemalloc.stop()
    assert len(aof.jobs) == 3


WORDS = st.sampled_from([
    b"*2\r\n", b"*1\r\n", b"*3\r\n", b"$7\r\nLOADJOB\r\n", b"$6\r\nDELJOB\r\n", b"$40\r\n" + job_id(1) + b"\r\n",
    b"$129\r\n", serialized(1), b"\r\n", b"\n", b"$", b"*", b"1", b"0", b"\0", *SEVERAL, *(data for data, _ in DAMAGE.values()),
])  # fmt: skip


@settings(max_examples=tries(100))
@given(st.lists(WORDS | st.binary(max_size=5), max_size=12), st.randoms())
def test_any_bytes_are_jobs_or_a_cut_or_damage(
    tmp_path_factory: pytest.TempPathFactory, words: list[bytes], random: Random
) -> None:
    path, data = tmp_path_factory.getbasetemp(), bytearray(b"".join(words))
    for _ in range(random.choice((0, 0, 1, 3)) if data else 0):
        data[random.randrange(len(data))] = random.randrange(256)
    try:
        aof = read(path, bytes(data))
    except AofError as error:
        end = error.offset
        assert end < len(data)
    else:
        end = len(data) if aof.cut_at is None else aof.cut_at
    before = read(path, bytes(data[:end]))
    assert before.cut_at is None


class Disque:
    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=10)
        self._replies = self._socket.makefile("rb")

    def __call__(self, *words: bytes | str) -> Any:
        """Send a command and return the reply; a nil is None, an error is raised."""
        self._socket.sendall(command(*(word.encode() if isinstance(word, str) else word for word in words)))
        return self._reply()

    def close(self) -> None:
        self._replies.close()
        self._socket.close()

    def job(self, job_id: bytes) -> dict[bytes, Any]:
        pairs = self("SHOW", job_id)
        return dict(zip(pairs[::2], pairs[1::2], strict=True))

    def _reply(self) -> Any:
        line = self._replies.readline()
        kind, text = line[:1], line[1:-2]
        if kind == b"-" or not kind:
            raise ConnectionError(line)
        if kind == b"$":
            return None if text == b"-1" else self._replies.read(int(text) + 2)[:-2]
        if kind == b"*":
            return None if text == b"-1" else [self._reply() for _ in range(int(text))]
        return int(text) if kind == b":" else text


@contextmanager
def disque(path: Path) -> Iterator[Disque]:
    """Start a real Disque on the file in the directory `path`. Raises ConnectionError if it does not load that."""
    port = lease_port()
    process = subprocess.Popen(
        [ORIGINAL, "--port", str(port), "--bind", "127.0.0.1", "--dir", str(path), "--appendonly", "yes",
         "--appendfsync", "always", "--auto-aof-rewrite-percentage", "0", "--loglevel", "warning"],
        stdout=subprocess.DEVNULL,
    )  # fmt: skip
    connections: list[Disque] = []

    def is_loaded() -> bool:
        if process.poll() is not None:
            raise ConnectionError(f"exit {process.returncode}")
        with suppress(ConnectionError):  # not listening yet, or about to exit
            if not connections:
                connections.append(Disque(port))
            return b"loading:0" in connections[0]("INFO", "persistence")
        return False

    try:
        eventually(is_loaded)
        yield connections[0]
    finally:
        for connection in connections:
            connection.close()
        process.kill()
        process.wait()


original = pytest.mark.skipif(not ORIGINAL, reason="PENSTOCK_DISQUE names no disque-server")


def check(ask: Disque, job: AofJob, state: bytes = b"") -> None:
    """Compare a job with what Disque answers to SHOW. `state`: Disque's state, where it has changed since."""
    shown = ask.job(job.id)
    names = (b"queue", b"body", b"ctime", b"delay", b"retry", b"repl", b"nacks", b"additional-deliveries", b"state")
    assert [shown[name] for name in names] == [
        job.queue, job.body, job.created, job.delay, job.retry, job.replicate, job.nacks, job.additional_deliveries,
        state or job.state.name.lower().encode(),
    ]  # fmt: skip
    assert abs(job.expires - time.time() - shown[b"ttl"]) < 5


@original
@pytest.mark.process
def test_what_the_real_disque_wrote(tmp_path: Path) -> None:
    with disque(tmp_path) as ask:
        ids = [
            ask("ADDJOB", "q", "one", "0"),
            ask("ADDJOB", "q", b"two\r\n\0", "0", "RETRY", "7", "TTL", "1000", "ASYNC"),
            ask("ADDJOB", "late", "three", "0", "DELAY", "100", "RETRY", "9"),
            ask("ADDJOB", "once", "four", "0", "RETRY", "0"),
            ask("ADDJOB", b"\r\n", "", "0", "DELAY", "50", "RETRY", "0"),
            ask("ADDJOB", "big", bytes(range(256)) * 4096, "0"),
        ]
        gone = [ask("ADDJOB", "q", f"gone {number}", "0") for number in range(4)]
        assert ask("ACKJOB", gone[0]) == ask("FASTACK", gone[1]) == 1
        assert ask("DELJOB", *gone[2:]) == 2
        now = int(time.time())
        aof = read_aof(tmp_path / FILE, now)
        assert ([job.id for job in aof.jobs], aof.expired, aof.cut_at) == (ids, 0, None)
        for job in aof.jobs:
            check(ask, job)
        assert [job.is_delivered for job in aof.jobs] == [False] * 6
        aof = read_aof(tmp_path / FILE, now + 1010)
        assert ([job.id for job in aof.jobs], aof.expired) == ([ids[0], *ids[2:]], 1)

        assert [job[2] for job in ask("GETJOB", "COUNT", "2", "FROM", "q", "once")] == [b"one", b"four"]
        assert (ask("NACK", ids[0]), ask("GETJOB", "FROM", "big")[0][1]) == (1, ids[5])
        (one, *_) = read_aof(tmp_path / FILE, now).jobs
        assert one.nacks == 0  # nothing of this is logged
        ask("BGREWRITEAOF")
        eventually(lambda: b"aof_rewrite_in_progress:0" in ask("INFO", "persistence"))
        last, aof = ask("ADDJOB", "q", "after", "0"), read_aof(tmp_path / FILE, now)
        assert [job.id for job in aof.jobs] == [*ids, last]
        for job in aof.jobs:
            check(ask, job)
        assert [(job.nacks, job.state.name, job.is_delivered) for job in aof.jobs] == [
            (1, "QUEUED", True), (0, "QUEUED", False), (0, "ACTIVE", False), (0, "ACTIVE", True),
            (0, "ACTIVE", False), (0, "ACTIVE", True), (0, "QUEUED", False),
        ]  # fmt: skip


@original
@pytest.mark.process
def test_the_real_disque_loads_the_same_jobs(tmp_path: Path) -> None:
    now = int(time.time())
    later = now + 10_000
    several = [load(number, b"%d" % number, b"q" * number, expires=later, state=2 - number % 2) for number in range(9)]
    several += [load(3, b"second", expires=later), delete(5), load(5, b"again", expires=later), delete(6, 7, 70)]
    several += [load(20, expires=now), load(20, b"lives", expires=later, delay=6, retry=5, nacks=4, deliveries=3)]
    data = b"".join(several)
    for size in (0, 1, 2, 3, 4, 5, 17, 100, 1000, 1500, len(data) - 100, len(data) - 2, len(data) - 1, len(data)):
        aof = read(tmp_path, data[:size], now)
        with disque(tmp_path) as ask:
            assert b"registered_jobs:%d\r\n" % len(aof.jobs) in ask("INFO", "jobs")
            for job in aof.jobs:
                check(ask, job, b"active")
        assert (tmp_path / FILE).stat().st_size == (size if aof.cut_at is None else aof.cut_at)

"""The files of beanstalkd's binlog: every field of a job, what a later record changes, and files that are cut or foreign."""

from dataclasses import replace
from pathlib import Path
from struct import pack

from nsqd.storage.binlog import MOST_BODY, MOST_NAME, LoggedJob, find_binlogs, read_binlogs
from tests.cases import each

SECOND = 1_000_000_000
NOW = 1_700_000_000 * SECOND
HEADER = pack("<i", 7)
DELETED, READY, RESERVED, BURIED, DELAYED = range(5)  # states of a job
NAME_SIZE, JOB_ID, BODY_SIZE, STATE = 0, 8, 40, 84  # offsets in a record of the tube `work`
Counts = tuple[int, int, int, int, int]


def record(
    number: int, state: int, body: bytes | None = None, tube: str = "work", priority: int = 5, delay: int = 0,
    counts: Counts = (0, 0, 0, 0, 0), now: int = NOW,
) -> bytes:  # fmt: skip
    """`body` None: a short record, of a job that is known."""
    due = now + delay * SECOND if delay else 0
    name = tube.encode() if body is not None else b""
    size = len(body) + 2 if body is not None else 0
    job = pack(
        "<QIxxxxqqixxxxqqIIIIIBxxx", number, priority, delay * SECOND, 60 * SECOND, size, now - 100 * SECOND, due, *counts,
        state,
    )  # fmt: skip
    return pack("<i", len(name)) + name + job + (body + b"\r\n" if body is not None else b"")


def read(path: Path, *contents: bytes) -> tuple[dict[int, LoggedJob], list[tuple[str, int, int]], int]:
    """Return the jobs of files with these contents, what of them is unreadable, and the highest id."""
    for number, content in enumerate(contents, 9):  # 10 follows 9
        (path / f"binlog.{number}").write_bytes(content)
    found = read_binlogs(find_binlogs(path))
    return found.jobs, [(file.name, at, size) for file, at, size in found.unreadable], found.highest


def test_a_job_is_as_its_last_record_says(tmp_path: Path) -> None:
    first = HEADER + record(1, READY, b"one") + record(2, DELAYED, b"", "a/b;c", 7, 30, (5, 4, 3, 2, 1)) + bytes(4000)
    second = (
        HEADER + record(1, BURIED, priority=9, counts=(1, 0, 0, 1, 0)) + record(3, READY, b"3") + record(3, DELETED)
    )
    jobs, unreadable, highest = read(tmp_path, first, second)
    one = LoggedJob(1, "work", b"one", 9, 0, 60 * SECOND, NOW - 100 * SECOND, 0, (1, 0, 0, 1, 0), BURIED)
    two = replace(
        one, id=2, tube="a/b;c", body=b"", priority=7, delay=30 * SECOND, due=NOW + 30 * SECOND, counts=(5, 4, 3, 2, 1),
        state=DELAYED,
    )  # fmt: skip
    assert (jobs, unreadable, highest) == ({1: one, 2: two}, [], 3)


def test_a_record_that_is_cut_ends_its_file_and_no_other(tmp_path: Path) -> None:
    whole, last = HEADER + record(1, READY, b"one"), record(2, READY, b"two")
    for cut in range(len(last) + 1):
        jobs, unreadable, _ = read(tmp_path, whole + last[:cut], HEADER + record(3, READY, b"three"))
        assert [job.body for job in jobs.values()] == [b"one", *[b"two"] * (cut == len(last)), b"three"]
        is_torn = 0 < cut < len(last)
        assert unreadable == [("binlog.9", len(whole), len(whole) + cut)] * is_torn


@each("at, value, is_good", [
    (NAME_SIZE, pack("<i", -1), False), (NAME_SIZE, pack("<i", MOST_NAME + 1), False),
    (BODY_SIZE, pack("<i", 5), True), (BODY_SIZE, pack("<i", 1), False), (BODY_SIZE, pack("<i", MOST_BODY + 3), False),
    (JOB_ID, bytes(8), False), (STATE, bytes([DELAYED]), True), (STATE, bytes([DELAYED + 1]), False),
])  # fmt: skip
def test_a_value_out_of_range_ends_the_file(tmp_path: Path, at: int, value: bytes, is_good: bool) -> None:
    content = bytearray(HEADER + record(1, READY, b"one"))
    content[4 + at : 4 + at + len(value)] = value
    jobs, unreadable, _ = read(tmp_path, bytes(content))
    assert (len(jobs), len(unreadable)) == (is_good, not is_good)


def test_a_short_record_of_an_unknown_job_counts_for_the_highest_id_alone(tmp_path: Path) -> None:
    assert read(tmp_path, HEADER + record(8, BURIED) + record(5, DELETED)) == ({}, [], 8)


@each("content, is_unreadable", [
    (b"", False), (bytes(100), False), (pack("<i", 6) + record(1, READY, b"x"), True), (b"abc", True),
    (HEADER, False), (HEADER + pack("<i", 1 << 30) + bytes(100), True), (HEADER + bytes(3), False),
])  # fmt: skip
def test_odd_files(tmp_path: Path, content: bytes, is_unreadable: bool) -> None:
    (tmp_path / "binlog.x").write_bytes(b"other")
    jobs, unreadable, highest = read(tmp_path, content, HEADER + record(9, READY, b"good"))
    assert ([*jobs], len(unreadable), highest) == ([9], is_unreadable, 9)

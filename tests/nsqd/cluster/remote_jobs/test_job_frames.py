"""The frames about jobs: bodies in parts, and refused contents. test_fuzz.py tests packing and reading."""

from random import Random

import msgpack
import pytest

from nsqd.cluster.remote_jobs import job_frames as jobs
from nsqd.cluster.wire.frames import AFTER_PROOF, FrameKind, FrameReader, PeerError
from nsqd.core.work_queue.loan import Loan
from tests.cases import each
from tests.nsqd.cluster.wire.identities import HEAD


def carried(frames: bytes) -> Loan:
    """The loan that comes out of these frames at the other end."""
    reader = FrameReader()
    reader.limit = AFTER_PROOF
    before = b""
    for kind, content in reader.feed(frames):
        if kind is FrameKind.BODY:
            before += content
        else:
            assert kind is FrameKind.LOAN
            return jobs.unpack_loan(content, before)
    raise AssertionError("there is no loan")


@each("size", [0, 1, jobs.MOST_PART - 1, jobs.MOST_PART, jobs.MOST_PART + 1, 3 * jobs.MOST_PART + 5])
def test_a_large_body_comes_in_parts(size: int) -> None:
    loan = Loan(1, "q", 2, 0, 0, 0, 0, 0, Random(size).randbytes(size))
    frames = list(jobs.pack_loan(loan))
    assert max(map(len, frames)) < jobs.MOST_PART + 300
    assert carried(b"".join(frames)) == loan


def test_a_want_counts_a_bounded_number_of_clients() -> None:
    assert jobs.unpack_want(jobs.pack_want("mail", 3 * jobs.MOST_WANTED)[HEAD:]) == ("mail", jobs.MOST_WANTED)


@each(
    "fields",
    [(1, 1, 1), (1, 1, 1, 1), (-1, 1, 1, True), (1, 1 << 63, 1 << 32, True), (1, True, 1, True), (1, 1, "1", False)],
)
def test_what_is_no_return_is_refused(fields: tuple[object, ...]) -> None:
    with pytest.raises(PeerError):
        jobs.unpack_return(msgpack.packb(fields))


@each("fields", [
    (7, "", 1, 0, 0, 1, 0, 0, b""), (7, "x" * 201, 1, 0, 0, 1, 0, 0, b""), (7, "a\nb", 1, 0, 0, 1, 0, 0, b""),
    (7, "é", 1, 0, 0, 1, 0, 0, b""), (7, b"q", 1, 0, 0, 1, 0, 0, b""), (-1, "q", 1, 0, 0, 1, 0, 0, b""),
    (7, "q", 1, 1 << 32, 0, 1, 0, 0, b""), (7, "q", 1, 0, True, 1, 0, 0, b""), (7, "q", 1, 0, 0, -1, 0, 0, b""),
    (7, "q", 1, 0, 0, 1, 0.5, 0, b""), (7, "q", 1, 0, 0, 1, 0, 0, "text"), (7, "q", 1, 0, 0, 1, 0, b""),
])  # fmt: skip
def test_what_is_no_loan_is_refused(fields: tuple[object, ...]) -> None:
    with pytest.raises(PeerError):
        jobs.unpack_loan(msgpack.packb((*fields, 0, 0)), b"")


@each("times", [(), (0,), (0, 0, 0), (-1, 0), (0.5, 0), (0, "0")])
def test_the_times_of_a_loan_are_numbers(times: tuple[object, ...]) -> None:
    fields = (7, "q", 1, 0, 0, 1, 0, 0, b"")
    assert jobs.unpack_loan(msgpack.packb((*fields, 3, 4)), b"").lent == 3
    with pytest.raises(PeerError):
        jobs.unpack_loan(msgpack.packb((*fields, *times)), b"")

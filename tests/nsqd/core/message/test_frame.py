"""Frames and ids: the bytes on the wire, and no id twice."""

import struct

from hypothesis import given
from hypothesis import strategies as st

from nsqd.core.message.frame import encode, error, message_id, response, with_attempts
from nsqd.core.message.ids import LEASE, IdSource


def source(first: int = 1, node: int = 3) -> IdSource:
    return IdSource(node, first, lambda ceiling: True)


def exact(body: bytes, number: int, timestamp: int) -> bytes:
    return struct.pack(">iiqH", len(body) + 30, 2, timestamp, 1) + b"%04x%012x" % (3, number) + body


@given(st.lists(st.binary(min_size=1, max_size=9), min_size=1, max_size=40), st.integers(1, 5000))
def test_frames_are_exact_for_equal_and_unequal_sizes(bodies: list[bytes], first: int) -> None:
    frames = encode(bodies, set(map(len, bodies)), source(first).issue_ids(len(bodies)), 99)
    assert frames == [exact(body, first + i, 99) for i, body in enumerate(bodies)]


def test_a_batch_across_a_block_of_ids() -> None:
    blocks, expected = source(4000).issue_ids(5000), [b"%04x%012x" % (3, 4000 + i) for i in range(5000)]
    assert b"".join(block.joined for block in blocks) == b"".join(expected)
    assert [message_id(frame) for frame in encode([b"x"] * 5000, {1}, blocks, 1)] == expected


def test_ids_are_leased_long_before_they_are_issued_and_a_lease_that_fails_is_tried_again() -> None:
    leases, answers = list[int](), [True, True, False, False, True]

    def lease(ceiling: int) -> bool:
        leases.append(ceiling)
        return answers.pop(0)

    ids = IdSource(0, 100, lease)
    ids.issue_ids(LEASE // 2)
    assert leases == [100 + LEASE]
    ids.issue_ids(1)
    assert leases[1:] == [101 + LEASE // 2 + LEASE]
    for _ in range(80):
        ids.issue_ids(LEASE // 128)
    assert answers == []
    assert leases[-1] - LEASE < leases[1], "before the block is used up"


def test_a_redelivery_changes_its_own_two_bytes() -> None:
    (frame,) = encode([b"body"], {4}, source().issue_ids(1), 5)
    again = with_attempts(frame, 258)
    assert again[16:18] == b"\x01\x02"
    assert again[:16] + again[18:] == frame[:16] + frame[18:]
    assert with_attempts(frame, 65536 + 2)[16:18] == b"\0\2"
    assert (response(b"OK"), error(b"E_X y")) == (b"\0\0\0\6\0\0\0\0OK", b"\0\0\0\x09\0\0\0\1E_X y")

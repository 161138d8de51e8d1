"""The frames by which channels are shared: what is packed comes out again, and anything else is refused."""

from __future__ import annotations

from random import Random

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsqd.core.borrowed import NOT_FAILED, UNDELIVERED
from nsqd.core.message.frame import encode_one
from nsqd.protocols.peer.frames import AFTER_PROOF, FrameReader, PeerError
from nsqd.protocols.peer.sharing import (
    MOST_AT_ONCE,
    MOST_DELAY,
    MOST_DONE,
    MOST_READY,
    pack_done,
    pack_messages,
    pack_read,
    split,
    unpack_done,
    unpack_messages,
    unpack_read,
)
from tests.effort import tries

HEAD = 5  # bytes of a frame before its content
FUZZED = tries(20000)
KEY = "topic", "channel"
ID = b"0123456789abcdef"


def message(body: bytes, number: int = 1) -> bytes:
    return encode_one(body, b"%016x" % number, 5)


def carried(frames: list[bytes]) -> list[bytes]:
    """The messages that come out at the other end."""
    reader = FrameReader()
    reader.limit = AFTER_PROOF
    found, parts = [], b""
    for _, content in reader.feed(b"".join(frames)):
        key, has_more, data = unpack_messages(content)
        assert key == KEY
        parts += data
        if not has_more:
            found += split(parts)
            parts = b""
    assert not parts
    return found


@given(st.lists(st.integers(0, MOST_AT_ONCE), max_size=5))
def test_messages_come_as_they_were_sent(sizes: list[int]) -> None:
    messages = [message(b"x" * size, number) for number, size in enumerate(sizes)]
    assert carried(list(pack_messages(KEY, messages))) == messages


@pytest.mark.parametrize("size", [MOST_AT_ONCE - 34, MOST_AT_ONCE - 33, 3 * MOST_AT_ONCE, 1 << 21])
def test_a_large_message_comes_in_parts(size: int) -> None:
    messages = [message(b"first"), message(Random(size).randbytes(size)), message(b"last")]
    assert carried(list(pack_messages(KEY, messages))) == messages


@given(st.integers(0, 2 * MOST_READY))
def test_a_count_is_bounded(ready: int) -> None:
    assert unpack_read(pack_read(KEY, ready)[HEAD:]) == (KEY, min(ready, MOST_READY))


@given(st.binary(max_size=64), st.lists(st.tuples(st.binary(min_size=16, max_size=16), st.integers(-1, MOST_DELAY))))
def test_done_comes_as_it_was_sent(ids: bytes, returned: list[tuple[bytes, int]]) -> None:
    finished = ids[: len(ids) // 16 * 16]
    assert unpack_done(pack_done(KEY, finished, returned)[HEAD:]) == (KEY, finished, returned)


def test_the_largest_done_fits_into_a_frame() -> None:
    frame = pack_done(KEY, ID * MOST_DONE, [(ID, MOST_DELAY)] * MOST_DONE)
    assert len(frame) < AFTER_PROOF
    unpack_done(frame[HEAD:])


@pytest.mark.parametrize(
    "fields",
    [
        ("t", "c"), ("t", "c", -1), ("t", "c", MOST_READY + 1), ("t", "c", True), ("t", "c", 1.5), ("", "c", 1),
        ("t", "c d", 1), (b"t", "c", 1), ("t", None, 1), ("x" * 65, "c", 1),
    ],
)  # fmt: skip
def test_what_is_no_read_is_refused(fields: tuple[object, ...]) -> None:
    with pytest.raises(PeerError):
        unpack_read(msgpack.packb(fields))


@pytest.mark.parametrize(
    "fields",
    [
        ("t", "c", ID), ("t", "c", ID[:15], [[ID, 0]]), ("t", "c", "x" * 16, []), ("t", "c", ID, [[ID]]),
        ("t", "c", ID, [[ID[:15], 0]]), ("t", "c", ID, [[ID, -3]]), ("t", "c", ID, [[ID, MOST_DELAY + 1]]),
        ("t", "c", ID, [ID]), ("t", "c", ID, None), ("t", "c", ID * (MOST_DONE + 1), []),
        ("t", "c", b"", [[ID, 0]] * (MOST_DONE + 1)),
    ],
)  # fmt: skip
def test_what_is_no_done_is_refused(fields: tuple[object, ...]) -> None:
    with pytest.raises(PeerError):
        unpack_done(msgpack.packb(fields))


@pytest.mark.parametrize(
    "fields", [("t", "c", 1, b""), ("t", "c", True, "x"), ("t", "c", b""), ("t", "c", False, None)]
)
def test_what_is_no_part_of_messages_is_refused(fields: tuple[object, ...]) -> None:
    with pytest.raises(PeerError):
        unpack_messages(msgpack.packb(fields))


@pytest.mark.parametrize(
    "data",
    [
        message(b"x")[:-1], message(b"x")[:20], message(b"x") + b"y", b"\xff" * 40, b"\0" * 40,
        message(b"x")[:7] + b"\0" + message(b"x")[8:], b"\0\0\0\x04\0\0\0\2" + message(b"x"),
    ],
)  # fmt: skip
def test_what_are_no_messages_is_refused(data: bytes) -> None:
    with pytest.raises(PeerError):
        split(data)


def test_any_bytes_are_read_or_refused() -> None:
    random = Random(1)
    wholes = [
        pack_read(KEY, 9)[HEAD:],
        next(iter(pack_messages(KEY, [message(b"x"), message(b"yy")])))[HEAD:],
        pack_done(KEY, ID, [(ID, UNDELIVERED), (ID, NOT_FAILED), (ID, 5)])[HEAD:],
    ]
    read = 0
    for _ in range(FUZZED):
        place = random.randrange(3)
        content = bytearray(wholes[place])
        for _ in range(random.randrange(3)):
            content[random.randrange(len(content))] = random.randrange(256)
        piece = bytes(content[: random.choice((len(content), random.randrange(len(content) + 1)))])
        try:
            if place == 0:
                assert 0 <= unpack_read(piece)[1] <= MOST_READY
            elif place == 1:
                split(unpack_messages(piece)[2])
            else:
                assert all(NOT_FAILED <= delay <= MOST_DELAY for _, delay in unpack_done(piece)[2])
        except PeerError:
            continue
        read += 1
    assert 0 < read < FUZZED

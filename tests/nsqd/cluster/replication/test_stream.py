"""The frames by which a log is copied: their bounds, and refused contents. test_fuzz.py tests packing and reading."""

from collections.abc import Callable
from functools import partial

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsqd.cluster.replication import stream
from nsqd.cluster.replication.stream import Have
from nsqd.cluster.wire.frames import AFTER_PROOF, FrameKind, FrameReader, PeerError
from nsqd.cluster.wire.node_identity import EPOCH_SIZE
from tests.cases import each

LARGEST = (1 << 63) - 1
UNPACKERS: dict[FrameKind, Callable[[bytes], object]] = {
    FrameKind.LOG: partial(stream.unpack_log_id, FrameKind.LOG),
    FrameKind.FOLLOW: stream.unpack_follow, FrameKind.HAVE: stream.unpack_have, FrameKind.RESUME: stream.unpack_epochs,
    FrameKind.RESYNC: stream.unpack_resync, FrameKind.BYTES: stream.unpack_bytes, FrameKind.KEEP: stream.unpack_keep,
    FrameKind.SWITCH: stream.unpack_switch, FrameKind.COPIED: stream.unpack_copied,
    FrameKind.GAVE_UP: stream.unpack_gave_up, FrameKind.DROP: stream.unpack_epochs,
}  # fmt: skip
EPOCH = bytes(EPOCH_SIZE)


def content(kind: FrameKind, frame: bytes) -> bytes:
    """Return the content of one frame, which must be of this kind and not too long."""
    reader = FrameReader()
    reader.limit = AFTER_PROOF
    ((found, content),) = reader.feed(frame)
    assert found is kind
    return content


@given(st.text(max_size=600))
def test_a_reason_comes_as_one_line_that_can_be_printed(reason: str) -> None:
    found = stream.unpack_gave_up(content(FrameKind.GAVE_UP, stream.pack_gave_up(reason)))
    assert found.isprintable()
    if reason.isprintable() and len(reason.encode()) <= stream.MOST_REASON:
        assert found == reason


@each("size", [1, stream.MOST_BYTES, stream.MOST_BYTES + 1, 3 * stream.MOST_BYTES])
def test_many_bytes_are_several_frames_none_of_which_is_too_long(size: int) -> None:
    data = bytes(range(251)) * (size // 251 + 1)
    frames = [
        content(FrameKind.BYTES, frame)
        for frame in stream.pack_bytes(7, 64, [data[: size // 2], data[size // 2 : size]], size)
    ]
    assert len(frames) == -(-size // stream.MOST_BYTES)
    at = 64
    for frame in frames:
        base, start, part = stream.unpack_bytes(frame)
        assert (base, start, part) == (7, at, data[at - 64 : at - 64 + len(part)])
        at += len(part)
    assert at == 64 + size


def test_the_largest_replica_fits_into_a_frame() -> None:
    segments = {LARGEST - base: 1 << 20 for base in range(stream.MOST_SEGMENTS)}
    have = Have(LARGEST, [(EPOCH, LARGEST)] * 100, segments)
    assert stream.unpack_have(content(FrameKind.HAVE, stream.pack_have(have))) == have


@each("kind, fields", [
    (FrameKind.HAVE, None), (FrameKind.HAVE, []), (FrameKind.HAVE, [0, []]), (FrameKind.HAVE, [-1, [], []]),
    (FrameKind.HAVE, [LARGEST + 1, [], []]), (FrameKind.HAVE, [True, [], []]), (FrameKind.HAVE, [1.0, [], []]),
    (FrameKind.HAVE, [0, {}, []]), (FrameKind.HAVE, [0, [], {}]), (FrameKind.HAVE, [0, [], [0]]),
    (FrameKind.HAVE, [0, [], [[0]]]), (FrameKind.HAVE, [0, [], [[0, -1]]]), (FrameKind.HAVE, [0, [], [[[], 0]]]),
    (FrameKind.HAVE, [0, [[EPOCH]], []]), (FrameKind.HAVE, [0, [[EPOCH[1:], 0]], []]),
    (FrameKind.HAVE, [0, [[EPOCH + b"0", 0]], []]), (FrameKind.HAVE, [0, [["e" * EPOCH_SIZE, 0]], []]),
    (FrameKind.HAVE, [0, [[EPOCH, None]], []]), (FrameKind.RESUME, [[], []]), (FrameKind.RESUME, [0]),
    (FrameKind.RESYNC, [[], 0]), (FrameKind.DROP, None), (FrameKind.DROP, []), (FrameKind.DROP, [[[EPOCH, -1]]]),
    (FrameKind.KEEP, [0, 0]), (FrameKind.KEEP, [0, [b""]]), (FrameKind.KEEP, [0, [0] * (stream.MOST_SEGMENTS + 1)]),
])  # fmt: skip
def test_fields_that_are_not_right_are_refused(kind: FrameKind, fields: object) -> None:
    with pytest.raises(PeerError):
        UNPACKERS[kind](msgpack.packb(fields))


@each("kind, content", [
    (FrameKind.LOG, b""), (FrameKind.LOG, bytes(15)), (FrameKind.LOG, bytes(17)),
    (FrameKind.BYTES, b""), (FrameKind.BYTES, bytes(16)), (FrameKind.BYTES, b"\xff" * 17), (FrameKind.SWITCH, bytes(7)),
    (FrameKind.SWITCH, bytes(9)), (FrameKind.SWITCH, b"\xff" * 8), (FrameKind.COPIED, bytes(15)),
    (FrameKind.COPIED, bytes(17)), (FrameKind.COPIED, b"\xff" * 16),
])  # fmt: skip
def test_content_of_a_wrong_size_is_refused(kind: FrameKind, content: bytes) -> None:
    with pytest.raises(PeerError):
        UNPACKERS[kind](content)

"""The frames by which a log is copied: what was packed is unpacked, and whatever else comes raises PeerError alone."""

from __future__ import annotations

from collections.abc import Callable

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsqd.protocols.peer import stream
from nsqd.protocols.peer.frames import AFTER_PROOF, FrameKind, FrameReader, PeerError
from nsqd.protocols.peer.node_identity import EPOCH_SIZE
from nsqd.protocols.peer.stream import Have
from tests.cases import each

LARGEST = (1 << 63) - 1
POSITIONS = st.integers(0, LARGEST)
EPOCHS = st.lists(st.tuples(st.binary(min_size=EPOCH_SIZE, max_size=EPOCH_SIZE), POSITIONS), max_size=5)
SEGMENTS = st.dictionaries(POSITIONS, st.integers(0, 10**9), max_size=5)
UNPACKERS: dict[FrameKind, Callable[[bytes], object]] = {
    FrameKind.FOLLOW: stream.unpack_follow,
    FrameKind.HAVE: stream.unpack_have,
    FrameKind.RESUME: stream.unpack_resume,
    FrameKind.ANEW: stream.unpack_anew,
    FrameKind.BYTES: stream.unpack_bytes,
    FrameKind.KEEP: stream.unpack_keep,
    FrameKind.SWITCH: stream.unpack_switch,
    FrameKind.COPIED: stream.unpack_copied,
    FrameKind.GAVE_UP: stream.unpack_gave_up,
    FrameKind.DROP: stream.unpack_drop,
}
EPOCH = bytes(EPOCH_SIZE)


def content(kind: FrameKind, frame: bytes) -> bytes:
    """Return the content of one frame, which must be of this kind and not too long."""
    reader = FrameReader()
    reader.limit = AFTER_PROOF
    ((found, content),) = reader.feed(frame)
    assert found is kind
    return content


@given(st.integers(0, 2**32 - 1))
def test_follow(number: int) -> None:
    assert stream.unpack_follow(content(FrameKind.FOLLOW, stream.pack_follow(number))) == number


@given(st.builds(Have, POSITIONS, EPOCHS, SEGMENTS, POSITIONS))
def test_have(have: Have) -> None:
    assert stream.unpack_have(content(FrameKind.HAVE, stream.pack_have(have))) == have


@given(POSITIONS, EPOCHS)
def test_go_on_anew_and_drop(base: int, epochs: stream.Epochs) -> None:
    assert stream.unpack_resume(content(FrameKind.RESUME, stream.pack_resume(epochs))) == epochs
    assert stream.unpack_drop(content(FrameKind.DROP, stream.pack_drop(epochs))) == epochs
    assert stream.unpack_anew(content(FrameKind.ANEW, stream.pack_anew(base, epochs))) == (base, epochs)


@given(POSITIONS, st.lists(POSITIONS, max_size=5))
def test_keep_and_switch(position: int, bases: list[int]) -> None:
    assert stream.unpack_keep(content(FrameKind.KEEP, stream.pack_keep(position, bases))) == (position, bases)
    assert stream.unpack_switch(content(FrameKind.SWITCH, stream.pack_switch(position))) == position


@given(POSITIONS, POSITIONS)
def test_copied(written: int, durable: int) -> None:
    assert stream.unpack_copied(content(FrameKind.COPIED, stream.pack_copied(written, durable))) == (written, durable)


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


def test_the_largest_mirror_fits_into_a_frame() -> None:
    segments = {LARGEST - base: 1 << 20 for base in range(stream.MOST_SEGMENTS)}
    have = Have(LARGEST, [(EPOCH, LARGEST)] * 100, segments)
    assert stream.unpack_have(content(FrameKind.HAVE, stream.pack_have(have))) == have


@each(
    "kind, fields",
    [
        (FrameKind.HAVE, None),
        (FrameKind.HAVE, []),
        (FrameKind.HAVE, [0, []]),
        (FrameKind.HAVE, [-1, [], []]),
        (FrameKind.HAVE, [LARGEST + 1, [], []]),
        (FrameKind.HAVE, [True, [], []]),
        (FrameKind.HAVE, [1.0, [], []]),
        (FrameKind.HAVE, [0, {}, []]),
        (FrameKind.HAVE, [0, [], {}]),
        (FrameKind.HAVE, [0, [], [0]]),
        (FrameKind.HAVE, [0, [], [[0]]]),
        (FrameKind.HAVE, [0, [], [[0, -1]]]),
        (FrameKind.HAVE, [0, [], [[[], 0]]]),
        (FrameKind.HAVE, [0, [[EPOCH]], []]),
        (FrameKind.HAVE, [0, [[EPOCH[1:], 0]], []]),
        (FrameKind.HAVE, [0, [[EPOCH + b"0", 0]], []]),
        (FrameKind.HAVE, [0, [["e" * EPOCH_SIZE, 0]], []]),
        (FrameKind.HAVE, [0, [[EPOCH, None]], []]),
        (FrameKind.RESUME, [[], []]),
        (FrameKind.RESUME, [0]),
        (FrameKind.ANEW, [[], 0]),
        (FrameKind.DROP, None),
        (FrameKind.DROP, []),
        (FrameKind.DROP, [[[EPOCH, -1]]]),
        (FrameKind.KEEP, [0, 0]),
        (FrameKind.KEEP, [0, [b""]]),
        (FrameKind.KEEP, [0, [0] * (stream.MOST_SEGMENTS + 1)]),
    ],
)
def test_fields_that_are_not_right_are_refused(kind: FrameKind, fields: object) -> None:
    with pytest.raises(PeerError):
        UNPACKERS[kind](msgpack.packb(fields))


@each(
    "kind, content",
    [
        (FrameKind.BYTES, b""),
        (FrameKind.BYTES, bytes(16)),
        (FrameKind.BYTES, b"\xff" * 17),
        (FrameKind.SWITCH, bytes(7)),
        (FrameKind.SWITCH, bytes(9)),
        (FrameKind.SWITCH, b"\xff" * 8),
        (FrameKind.COPIED, bytes(15)),
        (FrameKind.COPIED, bytes(17)),
        (FrameKind.COPIED, b"\xff" * 16),
    ],
)
def test_content_of_a_wrong_size_is_refused(kind: FrameKind, content: bytes) -> None:
    with pytest.raises(PeerError):
        UNPACKERS[kind](content)


ANY = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(1 << 63), (1 << 64) - 1)
    | st.floats()
    | st.text()
    | st.binary(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=8,
)


@given(st.sampled_from(list(UNPACKERS)), st.binary(max_size=60) | ANY.map(msgpack.packb), st.binary(max_size=3))
def test_garbage_raises_nothing_else(kind: FrameKind, content: bytes, rest: bytes) -> None:
    try:
        UNPACKERS[kind](content + rest)
    except PeerError as error:
        assert str(error)  # noqa: PT017


def test_deep_nesting_is_refused() -> None:
    for opener in (b"\x91", b"\x81\xa0"):
        with pytest.raises(PeerError):
            stream.unpack_have(opener * 100_000)

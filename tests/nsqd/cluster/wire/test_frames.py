"""Frames: however the bytes are cut, the same frames come out; frames that are too long are refused before they are kept."""

import itertools
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsqd.cluster.wire.frames import BEFORE_PROOF, FrameKind, FrameReader, PeerError, encode
from tests.cases import each
from tests.effort import tries

FRAMES = st.lists(st.tuples(st.sampled_from(list(FrameKind)), st.binary(max_size=BEFORE_PROOF - 1)), max_size=6)
FUZZED = tries(20_000, in_short=4000)


@given(FRAMES, st.lists(st.integers(0, 6000), max_size=10))
def test_frames_come_out_as_they_went_in_however_they_are_cut(
    frames: list[tuple[FrameKind, bytes]], cuts: list[int]
) -> None:
    data = b"".join(encode(*frame) for frame in frames)
    edges = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    reader = FrameReader()
    found = [frame for start, end in itertools.pairwise(edges) for frame in reader.feed(data[start:end])]
    assert found == frames


@each("length", [0, BEFORE_PROOF + 1, 2**31, 2**32 - 1])
def test_a_length_that_is_not_allowed_is_refused_before_anything_is_kept(length: int) -> None:
    with pytest.raises(PeerError, match=f"a frame of {length} bytes"):
        list(FrameReader().feed(length.to_bytes(4)))


def test_the_limit_is_raised_between_two_frames() -> None:
    long = encode(FrameKind.REFUSED, bytes(BEFORE_PROOF))
    reader, found = FrameReader(), list[int]()
    for _, content in reader.feed(encode(FrameKind.WELCOME) + long):
        found.append(len(content))
        reader.limit = BEFORE_PROOF + 1
    assert found == [0, BEFORE_PROOF]
    with pytest.raises(PeerError):
        list(FrameReader().feed(long))


def test_an_unknown_kind_is_refused() -> None:
    with pytest.raises(PeerError, match="kind 200"):
        list(FrameReader().feed(bytes((0, 0, 0, 1, 200))))


def test_any_bytes_are_frames_or_refused_and_never_kept_beyond_the_limit() -> None:
    random = Random(1)
    for _ in range(FUZZED):
        reader = FrameReader()
        data = random.randbytes(random.randrange(40))
        if random.random() < 0.7:
            kind = random.choice(list(FrameKind))
            data = encode(kind, data)[: random.randrange(60)] + random.randbytes(random.randrange(3))
        try:
            for kind, content in reader.feed(data):
                assert encode(kind, content) in data
        except PeerError:
            continue
        assert len(reader._waiting) <= BEFORE_PROOF + 4

"""Snappy and deflate streams: cut anywhere, broken anywhere, and never more than was asked for."""

import struct
import zlib
from collections.abc import Callable, Iterator
from contextlib import suppress

import cramjam
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from penstock.protocol.compression import CorruptStream, Deflate, Snappy, StreamEnded
from tests.cases import each

IDENTIFIER = b"\xff\x06\x00\x00sNaPpY"
HELLO = bytes.fromhex("01 09 00 00 bb 1f 1c 19") + b"hello"  # uncompressed, with the masked CRC32C of "hello"
SLACK = 65536  # bytes that a read may return beyond its limit

Codec = Snappy | Deflate
Runs = list[tuple[bytes, int]]
codecs = pytest.mark.parametrize("codec", [Snappy, Deflate])
# Long runs, so that things shrink; and random bytes, so that things do not.
# As (piece, times), because hypothesis prints what failed.
runs = st.one_of(
    st.tuples(st.binary(max_size=300), st.just(1)), st.tuples(st.binary(min_size=1, max_size=4), st.just(30_000))
)
bodies = st.lists(runs)


def read_all(codec: Codec, limit: int = 1 << 20) -> bytes:
    """Everything that the input so far gives; b"" at the end."""
    out = []
    while codec.has_more:
        piece = codec.read(limit)
        assert len(piece) < limit + SLACK
        out.append(piece)
    assert codec.read(limit) == b""
    return b"".join(out)


def bodies_of(runs: Runs) -> list[bytes]:
    return [piece * times for piece, times in runs]


def pieces(data: bytes, sizes: list[int]) -> Iterator[bytes]:
    for size in sizes:
        yield data[:size]
        data = data[size:]
    yield data


@codecs
@given(runs_=bodies, cuts=st.lists(st.integers(0, 5000), max_size=50), limit=st.sampled_from([1, 50, 100_000]))
def test_streams_cut_anywhere(codec: Callable[[], Codec], runs_: Runs, cuts: list[int], limit: int) -> None:
    if limit == 1:
        runs_ = [(piece, 1) for piece, _ in runs_]  # a byte a read takes its time
    writes = bodies_of(runs_)
    writer, reader, at_once = codec(), codec(), codec()
    out, stream = [], b""
    for write in writes:
        packed = writer.compress(write)
        at_once.feed(packed)
        assert read_all(at_once) == write
        stream += packed
    for piece in pieces(stream, cuts):
        reader.feed(piece)
        out.append(read_all(reader, limit))
    assert b"".join(out) == b"".join(writes)


@codecs
@given(runs_=bodies, where=st.floats(0, 1, exclude_max=True), flip=st.integers(1, 255))
def test_truncated_and_changed_streams(codec: Callable[[], Codec], runs_: Runs, where: float, flip: int) -> None:
    writes = bodies_of(runs_)
    writer, truncated, changed = codec(), codec(), codec()
    stream = bytearray(b"".join(map(writer.compress, writes)))
    truncated.feed(bytes(stream[: int(len(stream) * where)]))
    assert b"".join(writes).startswith(read_all(truncated))
    assume(stream)
    stream[int(len(stream) * where)] ^= flip
    changed.feed(bytes(stream))
    with suppress(CorruptStream):  # anything else fails this test
        read_all(changed)


@codecs
@given(data=st.binary(max_size=200), begun=st.booleans())
def test_noise_is_corrupt_or_a_beginning(codec: Callable[[], Codec], data: bytes, begun: bool) -> None:
    reader = codec()
    reader.feed(IDENTIFIER * (begun and codec is Snappy) + data)
    with suppress(CorruptStream):
        read_all(reader)


@codecs
def test_a_bomb_comes_in_bites_and_nothing_costs_nothing(codec: Callable[[], Codec]) -> None:
    assert codec().compress(b"") == b""
    assert codec().read(1) == b""
    assert not codec().has_more
    bomb = codec().compress(bytes(16 << 20))
    for limit in (1, 4096, 262_144):
        reader = codec()
        reader.feed(bomb)
        sizes = {len(reader.read(limit)) for _ in range(30)}
        assert 0 not in sizes
        assert max(sizes) < limit + SLACK
        assert reader.has_more


# ---- snappy: the format


def test_the_snappy_stream_spelled_out() -> None:
    writer = Snappy()
    assert writer.compress(b"hello") == IDENTIFIER + HELLO
    assert writer.compress(b"hello") == HELLO


@each("size", [65_535, 65_536, 65_537, 262_144, 1 << 20])
def test_any_snappy_reader_reads_large_writes(size: int) -> None:
    data = bytes(range(256)) * (size // 256) + b"x" * (size % 256)
    writer = Snappy()
    stream = writer.compress(data) + writer.compress(data)
    assert bytes(cramjam.snappy.decompress(stream)) == 2 * data


@each("skipped", [
    IDENTIFIER, b"\xfe\x00\x00\x00", b"\xfe\x03\x00\x00abc", b"\x80\x03\x00\x00abc", b"\xfd\x03\x00\x00abc",
    b"\xfe\xca\x2a\x01" + bytes(76_490),  # as long as the original allows
    bytes.fromhex("01 04 00 00 d8 ea 82 a2"),  # no data, uncompressed
    bytes.fromhex("00 05 00 00 d8 ea 82 a2 00"),  # no data, compressed
])  # fmt: skip
def test_chunks_without_data_are_skipped(skipped: bytes) -> None:
    reader = Snappy()
    reader.feed(IDENTIFIER + HELLO + skipped + HELLO + skipped)
    assert read_all(reader) == b"hellohello"
    reader.feed(IDENTIFIER + skipped)
    assert read_all(reader) == b""


@each("chunk", [
    b"\xfe\xcf\x2a\x01",  # a length the original refuses, in padding
    b"\x00\xff\xff\xff",
    b"\x01\x05\x00\x01",  # 65,537 bytes of data
    b"\x00\x03\x00\x00",  # too short for the checksum
    b"\x01\x03\x00\x00",
    b"\x02\x00\x00\x00",  # reserved, must not be skipped
    b"\x7f\x00\x00\x00", b"\xff\x05\x00\x00", b"\xff\x06\x00\x00sNaPpX",
    b"\x00\x04\x00\x00\x00\x00\x00\x00",  # no block
    b"\x00\x06\x00\x00\x00\x00\x00\x00\x80\x80",  # the length of the block does not end
    b"\x00\x08\x00\x00\x00\x00\x00\x00\x81\x80\x04a",  # 65,537 bytes promised
    b"\x00\x08\x00\x00\x00\x00\x00\x00\x05\x10he",  # five promised, two given
    HELLO[:4] + b"\xbc" + HELLO[5:],  # another checksum
])  # fmt: skip
def test_a_bad_chunk_is_corrupt_as_soon_as_its_header_is_read(chunk: bytes) -> None:
    reader = Snappy()
    reader.feed(IDENTIFIER + HELLO)
    assert read_all(reader) == b"hello"
    reader.feed(chunk)
    with pytest.raises(CorruptStream):
        reader.read(1000)


@each("beginning", [HELLO, b"\xfe\x00\x00\x00", b"GET / HTTP/1.1\r\n"])
def test_a_snappy_stream_begins_with_its_identifier(beginning: bytes) -> None:
    reader = Snappy()
    reader.feed(beginning)
    with pytest.raises(CorruptStream, match="identifier"):
        reader.read(1000)


# ---- deflate: the format


@each("level", range(1, 10))
def test_deflate_is_raw_and_ends_with_a_sync_flush(level: int) -> None:
    stream = Deflate(level).compress(b"hello" * 100)
    assert stream.endswith(b"\x00\x00\xff\xff")
    assert zlib.decompressobj(-15).decompress(stream) == b"hello" * 100


def test_a_higher_level_is_smaller_and_a_zlib_header_is_no_raw_deflate() -> None:
    data = b" ".join(b"%d" % (n * n) for n in range(20_000))
    assert len(Deflate(9).compress(data)) < len(Deflate(1).compress(data))
    reader = Deflate()
    reader.feed(zlib.compress(b"hello" * 1000))
    with pytest.raises(CorruptStream):
        reader.read(1000)


@each("flush", [zlib.Z_SYNC_FLUSH, zlib.Z_FULL_FLUSH, zlib.Z_PARTIAL_FLUSH])
def test_any_flush_of_the_peer_will_do(flush: int) -> None:
    peer, reader = zlib.compressobj(6, zlib.DEFLATED, -15), Deflate()
    for _ in range(3):
        reader.feed(peer.compress(b"hello") + peer.flush(flush) + peer.flush(flush))
        assert read_all(reader) == b"hello"


@each("rest", [b"", b"more"])
def test_a_deflate_stream_that_ends_is_read_to_its_end(rest: bytes) -> None:
    peer, reader = zlib.compressobj(6, zlib.DEFLATED, -15), Deflate()
    reader.feed(peer.compress(b"hello") + peer.flush() + rest)
    assert reader.read(1000) == b"hello"
    assert reader.has_more
    with pytest.raises(StreamEnded):
        reader.read(1000)


@each("chunk", [b"\xfe\0\0\0", IDENTIFIER, b"\x01\x04\0\0" + struct.pack("<I", 0xA282EAD8)])
def test_a_flood_of_chunks_without_data_comes_in_bites(chunk: bytes) -> None:
    reader = Snappy()
    reader.feed(IDENTIFIER + chunk * 65_536)
    reads = 0
    while reader.has_more:
        assert reader.read(65_536) == b""
        reads += 1
    assert reads == 17

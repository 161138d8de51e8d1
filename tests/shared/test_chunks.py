"""Chunks as a file object."""

from shared.chunks import ChunkReader


def test_reads_cross_chunks_and_end_with_what_is_left() -> None:
    reader = ChunkReader([b"abc", b"d", b"efgh"])
    assert [reader.read(2), reader.read(5), reader.read(5), reader.read(5)] == [b"ab", b"cdefg", b"h", b""]
    assert reader.count == 8


def test_progress_is_told_after_each_read() -> None:
    told: list[int] = []
    reader = ChunkReader([b"abc"], told.append)
    reader.read(2)
    reader.read(2)
    assert told == [2, 3]

"""The body of a backup as a file object."""

from apps.backup import ChunkReader


def test_reads_cross_chunks_end_with_what_is_left_and_are_reported() -> None:
    sizes: list[int] = []
    reader = ChunkReader([b"abc", b"d", b"efgh"], sizes.append)
    assert [reader.read(2), reader.read(5), reader.read(5), reader.read(5)] == [b"ab", b"cdefg", b"h", b""]
    assert reader.count == 8
    assert sizes == [2, 7, 8, 8]

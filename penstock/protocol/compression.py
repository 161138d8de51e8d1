"""The compressed streams that IDENTIFY can negotiate: snappy frames and raw deflate, both directions.

The classes are pure: they turn compressed bytes into plain bytes and plain bytes into compressed bytes. One object
serves one connection. The peer may be hostile, so a length is checked before anything waits for the bytes that it
announces, and no read returns much more than was asked for: a decompression bomb costs its receiver one `limit` of
memory. After CorruptStream the stream is lost. Data that arrived together with the corrupt part may be lost with it;
data that arrived before has been read.

Both classes have the same four members:

* `compress(data)` returns everything that the receiver needs to get all of `data` at once; b"" for b""
* `feed(data)` takes compressed input and keeps it until it is read
* `read(limit)` returns plain bytes, for a limit of at least 1; b"" when it needs more input
* `has_more` is True if `read` may return something without new input; the caller reads before it feeds again

See docs/contributing/design/nsq-protocol.md#tls-and-compression.
"""

import zlib
from struct import Struct

import cramjam


class CorruptStream(Exception):
    """The peer's bytes are not a valid stream, or its stream has ended. The owner closes the connection."""


class StreamEnded(CorruptStream):
    """The peer has ended its stream in good order (gnsq does, at the end): nothing is wrong and nothing follows."""


_STREAM_IDENTIFIER = b"\xff\x06\x00\x00sNaPpY"
_CRC_SIZE = 4
_MAX_PLAIN = 65536  # bytes in one chunk, uncompressed
# The size of 64 KiB that Snappy cannot compress (32 + n + n/6), plus the checksum. The original refuses a longer chunk
# of any type, though the format lets padding be longer.
_MAX_CHUNK = 32 + _MAX_PLAIN + _MAX_PLAIN // 6 + _CRC_SIZE
_HEADER = Struct("<I")  # the type in the low byte, then the chunk's length in 24 bits

_MOST_CHUNKS = 4096  # in one read: walking over 65,536 chunks without data, of skippable types or not, took 50 ms

_COMPRESSED, _PLAIN, _IDENTIFIER = 0x00, 0x01, 0xFF
_LAST_UNSKIPPABLE = 0x7F


class Snappy:
    """Both directions of one stream in Snappy's framing format: chunks with a type, a length and a CRC32C.

    The format is described in github.com/google/snappy, framing_format.txt. Each direction begins with the stream
    identifier, which may be repeated. Chunks of types 0x80 to 0xfe are skipped.
    """

    __slots__ = ("_has_begun", "_has_identified", "_input", "has_more")

    def __init__(self) -> None:
        self.has_more = False
        self._has_identified = False  # True once our stream identifier is sent
        self._has_begun = False  # True once the peer's stream identifier has arrived
        self._input = bytearray()  # from the first chunk that was not read yet

    def compress(self, data: bytes) -> bytes:
        """Return complete chunks of up to 64 KiB of data each; one that does not shrink by an eighth stays uncompressed."""
        if not data:
            return b""
        # All chunks are made by one call, and no state is kept between calls: a Compressor object saves 2 us a call and
        # costs each connection 80 KB, or as much as its largest call took.
        chunks = cramjam.snappy.compress(data)
        skip = len(_STREAM_IDENTIFIER) if self._has_identified else 0
        self._has_identified = True
        return memoryview(chunks)[skip:].tobytes()

    def feed(self, data: bytes) -> None:
        """Take compressed input that has arrived."""
        self._input += data
        self.has_more = True

    def read(self, limit: int) -> bytes:
        """Return the plain bytes of whole chunks until they reach `limit`: fewer than limit + 64 KiB.

        An empty result does not mean that nothing is left: a read also ends after _MOST_CHUNKS chunks. Check `has_more`.
        Raises CorruptStream.
        """
        chunks = self._cut_chunks(limit)
        if not chunks:
            return b""
        try:
            return bytes(cramjam.snappy.decompress(_STREAM_IDENTIFIER + b"".join(chunks)))
        except cramjam.DecompressionError as error:
            raise CorruptStream(str(error)) from None

    def _cut_chunks(self, limit: int) -> list[bytearray]:
        """Remove the complete chunks at the beginning of the input; return those with data, adjacent ones in one piece."""
        data, end = self._input, len(self._input)
        runs: list[bytearray] = []
        start = at = size = walked = 0  # start of the run; position; plain bytes of all runs; chunks passed
        while size < limit and walked < _MOST_CHUNKS and end - at >= _HEADER.size:
            header: int = _HEADER.unpack_from(data, at)[0]
            kind, length = header & 0xFF, header >> 8
            if not (self._has_begun and kind <= _PLAIN and _CRC_SIZE <= length <= _CRC_SIZE + _MAX_PLAIN):  # rarely
                self._judge(kind, length)
            stop = at + _HEADER.size + length
            if stop > end:
                break
            if kind == _PLAIN:
                size += length - _CRC_SIZE
            elif kind == _COMPRESSED:
                size += _plain_length(data, at + _HEADER.size + _CRC_SIZE, stop)
            else:
                self._skip(kind, data[at + _HEADER.size : stop])
                runs.append(data[start:at])
                start = stop
            at = stop
            walked += 1
        runs.append(data[start:at])
        del data[:at]
        self.has_more = (size >= limit or walked == _MOST_CHUNKS) and bool(data)
        return [run for run in runs if run]

    def _judge(self, kind: int, length: int) -> None:
        """Raise CorruptStream for a header that cannot begin a legal chunk; any other chunk is worth waiting for."""
        if not self._has_begun and kind != _IDENTIFIER:
            raise CorruptStream("snappy stream does not begin with its identifier")
        if length > _MAX_CHUNK or (kind == _PLAIN and length > _MAX_PLAIN + _CRC_SIZE):
            raise CorruptStream(f"snappy chunk of {length} bytes")
        if kind <= _PLAIN and length < _CRC_SIZE:
            raise CorruptStream(f"snappy chunk of {length} bytes has no room for its checksum")
        if _PLAIN < kind <= _LAST_UNSKIPPABLE:
            raise CorruptStream(f"snappy chunk of type {kind:#04x}")
        if kind == _IDENTIFIER and length != len(_STREAM_IDENTIFIER) - _HEADER.size:
            raise CorruptStream("wrong snappy stream identifier")

    def _skip(self, kind: int, content: bytearray) -> None:
        if kind == _IDENTIFIER:
            if content != _STREAM_IDENTIFIER[_HEADER.size :]:
                raise CorruptStream("wrong snappy stream identifier")
            self._has_begun = True


def _plain_length(data: bytearray, at: int, stop: int) -> int:
    """Return the plain size that a Snappy block announces (little-endian base 128); raise CorruptStream above 64 KiB."""
    length = shift = 0
    for byte in data[at : min(stop, at + 3)]:  # three bytes express up to 2 MiB
        length |= (byte & 0x7F) << shift
        if byte < 0x80 and length <= _MAX_PLAIN:
            return length
        shift += 7
    raise CorruptStream("snappy block without an acceptable length")


class Deflate:
    """Both directions of raw deflate (RFC 1951, no zlib header).

    Each `compress` ends with a sync flush, the bytes 00 00 ff ff; a peer may flush as it likes. The original treats a
    final block as the end of the connection, whatever follows. Here `read` raises StreamEnded once everything before it
    has been read.
    """

    __slots__ = ("_deflate", "_inflate", "_input", "has_more")

    def __init__(self, level: int = 6) -> None:
        """Prepare both directions; `level` is 1 (fastest) to 9 (smallest)."""
        self.has_more = False
        self._deflate = zlib.compressobj(level, zlib.DEFLATED, -zlib.MAX_WBITS)
        self._inflate = zlib.decompressobj(-zlib.MAX_WBITS)
        self._input = b""  # input that is not inflated yet

    def compress(self, data: bytes) -> bytes:
        """Return `data` as deflate blocks that end on a byte boundary, or b"" for b""."""
        if not data:
            return b""
        return self._deflate.compress(data) + self._deflate.flush(zlib.Z_SYNC_FLUSH)

    def feed(self, data: bytes) -> None:
        """Take compressed input that has arrived."""
        self._input += data
        self.has_more = True

    def read(self, limit: int) -> bytes:
        """Return at most `limit` plain bytes. Raises CorruptStream, or StreamEnded after the peer's final block."""
        if not self.has_more:
            return b""
        if self._inflate.eof:
            raise StreamEnded("the peer has ended its deflate stream")
        try:
            data = self._inflate.decompress(self._input, limit)
        except zlib.error as error:
            raise CorruptStream(str(error)) from None
        self._input = self._inflate.unconsumed_tail
        # zlib may hold back output of input that it has consumed; after the final block the next read raises.
        self.has_more = len(data) == limit or bool(self._input) or self._inflate.eof
        return data

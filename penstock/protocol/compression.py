"""The compressed streams that IDENTIFY can ask for (specs/nsq.md a8): snappy frames and raw deflate, both directions.

Pure: compressed bytes in, plain bytes out, and the other way round; one object serves one connection. What the peer
sends is hostile: a length is judged before anything waits for it, and no read gives much more than was asked for, so a
bomb costs its owner one `limit` of memory. After CorruptStream the stream is lost. What arrived together with the
corrupt part may be lost with it; what arrived before has been read.

Both have the same five members:

* `compress(data)`  everything the receiver needs to have all of `data` at once; nothing for nothing
* `feed(data)`      compressed input has arrived; it is kept until it is read
* `read(limit)`     plain bytes, for a limit of at least 1; b"" when more input is needed
* `has_more`        True if `read` may bring something without new input; read before feeding again
"""

import zlib
from struct import Struct

import cramjam


class CorruptStream(Exception):
    """The peer's bytes are no valid stream, or its stream has ended. Close the connection."""


class StreamEnded(CorruptStream):
    """The peer has ended its stream in good order (gnsq does, at the end): nothing is wrong and nothing follows."""


_STREAM_IDENTIFIER = b"\xff\x06\x00\x00sNaPpY"
_CRC_SIZE = 4
_MAX_PLAIN = 65536  # bytes in one chunk, uncompressed
# The most that Snappy makes of 64 KiB (32 + n + n/6), and the checksum. The original refuses a longer chunk of any type,
# though the format lets padding be longer.
_MAX_CHUNK = 32 + _MAX_PLAIN + _MAX_PLAIN // 6 + _CRC_SIZE
_HEADER = Struct("<I")  # type in the low byte, then the chunk's length in 24 bits

_MOST_CHUNKS = 4096  # in a read: 65,536 chunks without data, of skippable types or not, took 50 ms to walk over

_COMPRESSED, _PLAIN, _IDENTIFIER = 0x00, 0x01, 0xFF
_LAST_UNSKIPPABLE = 0x7F


class Snappy:
    """The framing format (github.com/google/snappy, framing_format.txt): chunks with a type, a length and a CRC32C.

    Both directions begin with the stream identifier, which may be repeated. Types 0x80 to 0xfe are skipped.
    """

    __slots__ = ("_has_begun", "_has_identified", "_input", "has_more")

    def __init__(self) -> None:
        self.has_more = False
        self._has_identified = False  # our stream identifier is sent
        self._has_begun = False  # the peer's has come
        self._input = bytearray()  # from the first chunk that was not read

    def compress(self, data: bytes) -> bytes:
        """Complete chunks of up to 64 KiB of data each; one that does not shrink by an eighth goes as it is."""
        if not data:
            return b""
        # One call for all chunks, with nothing kept between calls: a Compressor object saves 2 us a call and costs
        # each connection 80 KB, or what its largest call took.
        chunks = cramjam.snappy.compress(data)
        skip = len(_STREAM_IDENTIFIER) if self._has_identified else 0
        self._has_identified = True
        return memoryview(chunks)[skip:].tobytes()

    def feed(self, data: bytes) -> None:
        """Compressed input has arrived."""
        self._input += data
        self.has_more = True

    def read(self, limit: int) -> bytes:
        """Whole chunks, until they make `limit` bytes: less than limit + 64 KiB. Raises CorruptStream.

        There may be more although it gives nothing: _MOST_CHUNKS chunks are a portion, too.
        """
        chunks = self._take(limit)
        if not chunks:
            return b""
        try:
            return bytes(cramjam.snappy.decompress(_STREAM_IDENTIFIER + b"".join(chunks)))
        except cramjam.DecompressionError as error:
            raise CorruptStream(str(error)) from None

    def _take(self, limit: int) -> list[bytearray]:
        """Remove the complete chunks at the beginning of the input; return those with data, neighbours in one piece."""
        data, end = self._input, len(self._input)
        runs: list[bytearray] = []
        start = at = size = walked = 0  # of the present run; where we look; plain bytes in all runs; chunks passed
        while size < limit and walked < _MOST_CHUNKS and end - at >= _HEADER.size:
            header: int = _HEADER.unpack_from(data, at)[0]
            kind, length = header & 0xFF, header >> 8
            if not (self._has_begun and kind <= _PLAIN and _CRC_SIZE <= length <= _CRC_SIZE + _MAX_PLAIN):  # seldom
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
        """Raises CorruptStream for a header that begins no legal chunk. What is good here is worth waiting for."""
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
    """What a block of Snappy promises to become: a little-endian base 128 number. Raises CorruptStream above 64 KiB."""
    length = shift = 0
    for byte in data[at : min(stop, at + 3)]:  # three bytes reach to 2 MiB
        length |= (byte & 0x7F) << shift
        if byte < 0x80 and length <= _MAX_PLAIN:
            return length
        shift += 7
    raise CorruptStream("snappy block without an acceptable length")


class Deflate:
    """Raw deflate (RFC 1951, no zlib header); each `compress` ends with a sync flush, the bytes 00 00 ff ff.

    A peer may flush as it likes. Behind a final block the original reads the end of the connection, whatever follows;
    here that is StreamEnded, once everything before it has been read.
    """

    __slots__ = ("_deflate", "_inflate", "_input", "has_more")

    def __init__(self, level: int = 6) -> None:
        """`level` is 1 (quick) to 9 (small)."""
        self.has_more = False
        self._deflate = zlib.compressobj(level, zlib.DEFLATED, -zlib.MAX_WBITS)
        self._inflate = zlib.decompressobj(-zlib.MAX_WBITS)
        self._input = b""  # not inflated yet

    def compress(self, data: bytes) -> bytes:
        """Blocks up to a byte boundary."""
        if not data:
            return b""
        return self._deflate.compress(data) + self._deflate.flush(zlib.Z_SYNC_FLUSH)

    def feed(self, data: bytes) -> None:
        """Compressed input has arrived."""
        self._input += data
        self.has_more = True

    def read(self, limit: int) -> bytes:
        """At most `limit` bytes. Raises CorruptStream."""
        if not self.has_more:
            return b""
        if self._inflate.eof:
            raise StreamEnded("the peer has ended its deflate stream")
        try:
            data = self._inflate.decompress(self._input, limit)
        except zlib.error as error:
            raise CorruptStream(str(error)) from None
        self._input = self._inflate.unconsumed_tail
        # zlib may hold back output of input that it has taken; behind the final block the next read raises.
        self.has_more = len(data) == limit or bool(self._input) or self._inflate.eof
        return data

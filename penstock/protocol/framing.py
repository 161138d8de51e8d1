"""A decoder of payloads that follow their length, an int32 in big-endian order, as nsqd and nsqlookupd send them.

The work is linear in the bytes fed, however they are cut. A length is checked as soon as its four bytes have
arrived, before any byte of the payload is kept.
"""

from struct import Struct

_LENGTH = Struct(">i")
pack_length = _LENGTH.pack


class ProtocolError(Exception):
    """The peer sent something that the protocol does not allow. The stream is lost: close the connection."""


class LengthPrefixed:
    """A decoder that cuts a byte stream into payloads of min_size..max_size bytes."""

    __slots__ = ("_buffer", "_max_size", "_min_size", "_need")

    def __init__(self, max_size: int, min_size: int = 0) -> None:
        self._max_size = max_size
        self._min_size = min_size
        self._buffer = bytearray()  # the beginning of one incomplete payload, including its length
        self._need = 4  # bytes that the buffer must hold to complete a payload, as far as is known

    def receive(self, data: bytes) -> list[bytes]:
        """Return the payloads that `data` completes, in order. Raises ProtocolError; do not call it again after that."""
        if self._buffer:
            self._buffer += data
            if len(self._buffer) < self._need:
                return []
            data = bytes(self._buffer)
            self._buffer.clear()
        payloads = []
        start, end = 0, len(data)
        self._need = 4
        while end - start >= 4:
            size: int = _LENGTH.unpack_from(data, start)[0]
            if not self._min_size <= size <= self._max_size:
                raise ProtocolError(f"length {size} is not in {self._min_size}..{self._max_size}")
            stop = start + 4 + size
            if stop > end:
                self._need = 4 + size
                break
            payloads.append(data[start + 4 : stop])
            start = stop
        self._buffer += data[start:]
        return payloads

"""Chunks of bytes, such as the body of an HTTP response, as a file object that can be read once."""

from __future__ import annotations

from collections.abc import Callable, Iterable


class ChunkReader:
    """The file object that tarfile reads from in its mode `r|`."""

    def __init__(self, chunks: Iterable[bytes], progress: Callable[[int], None] | None = None) -> None:
        """`chunks`: only the last may be empty. `progress` is called after each read with the number of bytes so far."""
        self.count = 0  # bytes that were read
        self._chunks = iter(chunks)
        self._held = b""
        self._progress = progress

    def read(self, size: int) -> bytes:
        """Return the next `size` bytes, or fewer at the end. Raises what the chunks raise."""
        while len(self._held) < size and (chunk := next(self._chunks, b"")):
            self._held += chunk
        part, self._held = self._held[:size], self._held[size:]
        self.count += len(part)
        if self._progress is not None:
            self._progress(self.count)
        return part

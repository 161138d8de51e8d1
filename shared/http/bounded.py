"""Answers of others, read no further than they may be long."""

from collections.abc import AsyncIterator


async def read_bounded(parts: AsyncIterator[bytes], most: int) -> bytes | None:
    """All of it; None as soon as it is more than `most` bytes."""
    content = bytearray()
    async for part in parts:
        content += part
        if len(content) > most:
            return None
    return bytes(content)

"""One call of a producer until it is answered, and what its bytes are."""

from __future__ import annotations

from collections.abc import Sequence

import anyio

from penstock.protocol import nsq
from penstock.sansio.errors import PublishError

OVERHEAD = 100  # bytes; what a publish takes in memory and on the wire besides its bodies, roughly


class Publish:
    """Messages that are published together, in one PUB, MPUB or DPUB."""

    __slots__ = ("_done", "_error", "begun_at", "bodies", "delay_ms", "is_settled", "number", "size", "topic")

    def __init__(self, topic: str, bodies: Sequence[bytes], delay_ms: int, now: float) -> None:
        """Prepare. Raises ValueError for a bad name or delay. `now`: when the call began, in s."""
        self.topic = topic
        self.bodies = bodies
        self.delay_ms = delay_ms
        self.begun_at = now
        self.size = sum(map(len, bodies)) + OVERHEAD
        self.number: nsq.Number | None = None  # set when it is first sent to a server that agreed to deduplication
        self.is_settled = False  # the outcome is known, or nobody waits for it any more
        self._error: PublishError | None = None
        self._done: anyio.Event | None = None
        nsq.sub(topic, "_")  # raises ValueError for a bad topic

    def encode(self) -> bytes:
        """Return the command."""
        if len(self.bodies) > 1:
            return nsq.mpub(self.topic, self.bodies, self.number)
        if self.delay_ms:
            return nsq.dpub(self.topic, self.delay_ms, self.bodies[0], self.number)
        return nsq.pub(self.topic, self.bodies[0], self.number)

    def settle(self, error: PublishError | None) -> None:
        """Note the outcome: None for the server's OK."""
        self.is_settled = True
        self._error = error
        if self._done is not None:
            self._done.set()

    async def outcome(self) -> None:
        """Wait for the outcome. Raises PublishError."""
        if not self.is_settled:
            self._done = anyio.Event()
            await self._done.wait()
        if self._error is not None:
            raise self._error

    def __repr__(self) -> str:
        return f"<Publish: {len(self.bodies)} messages to {self.topic}>"

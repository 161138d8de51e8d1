"""One call of a producer until it is answered, and its command."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.aio.waiter import Waiter
from penstock.protocol import nsq
from penstock.protocol.headers import Headers
from penstock.sansio.errors import PublishError
from penstock.telemetry import NSQ, telemetry

OVERHEAD = 100  # bytes of a publish in memory and on the wire in addition to its bodies, roughly


class Publish:
    """Messages that are published together, in one PUB, MPUB or DPUB."""

    __slots__ = (
        "_done", "begun_at", "bodies", "delay_ms", "error", "has_room", "headers", "is_sent", "is_settled", "number",
        "operation", "size", "topic",
    )  # fmt: skip

    def __init__(self, topic: str, bodies: Sequence[bytes], delay_ms: int, headers: Headers, done: Waiter) -> None:
        """Prepare. `headers`: valid ones, of each message. `done` is set at its end.

        Raises ValueError for a bad name or delay, TypeError for a body that is not bytes.
        """
        for body in bodies:
            if not isinstance(body, bytes):
                raise TypeError(f"a body must be bytes, not {type(body).__name__}")
        nsq.check_topic(topic)
        if delay_ms < 0:
            raise ValueError(f"a delay cannot be negative: {delay_ms}")
        self.topic = topic
        self.bodies = bodies
        self.delay_ms = delay_ms
        self.headers = headers
        self.begun_at = 0.0  # when there was room for it, in s
        self.has_room = False  # its size counts in the producer's bytes
        self.is_sent = False  # its command is on a connection that has not answered it
        self.size = sum(map(len, bodies)) + OVERHEAD
        self.number: nsq.Number | None = None  # set when it is first sent to a server that agreed to deduplication
        # its span; None: there is none
        tracing = telemetry()
        self.operation = None if tracing is None else tracing.send(NSQ, topic, len(bodies))
        self.is_settled = False  # the outcome is known, or the caller no longer waits for it
        self.error: PublishError | None = None  # the outcome; None: the server's OK
        self._done = done

    def encode(self) -> bytes:
        """Return the command (PUB, DPUB or MPUB) as bytes for the wire, with its number if it has one, without headers."""
        if len(self.bodies) > 1:
            return nsq.mpub(self.topic, self.bodies, self.number)
        if self.delay_ms:
            return nsq.dpub(self.topic, self.delay_ms, self.bodies[0], self.number)
        return nsq.pub(self.topic, self.bodies[0], self.number)

    def settle(self, error: PublishError | None) -> None:
        """Note the outcome: None for the server's OK."""
        self.is_settled = True
        self.error = error
        self.bodies = ()
        if self.operation is not None:
            self.operation.end(error)
        self._done.set()

"""A session that publishes: the responses come in the order of the publishes, and a publish is done when its OK is read."""

from collections import deque
from typing import TYPE_CHECKING, Generic, TypeVar

from penstock.protocol import nsq
from penstock.protocol.headers import Headers
from penstock.sansio.errors import MAY_PASS, ConnectionLost, PublishError
from penstock.sansio.session import Session

if TYPE_CHECKING:
    from penstock.telemetry import Operation

T = TypeVar("T")


class Publisher(Generic[T]):
    """The publishes of one session. `T`: the type of the caller's publishes."""

    __slots__ = ("session", "unanswered")

    def __init__(self, session: Session) -> None:
        self.session = session
        self.unanswered: deque[T] = deque()

    @property
    def takes_headers(self) -> bool:
        """Return True if the server agreed to headers: it is Penstock's."""
        return (self.session.features or {}).get("headers") is True

    def publish(self, command: bytes, publish: T, headers: Headers = (), operation: "Operation | None" = None) -> None:
        """Add a PUB, MPUB or DPUB to the session's output, with valid headers for its messages.

        `operation`: its context goes into the headers, if the server takes any. The session must be identified. Raises
        ConnectionLost; PublishError if there are headers and the server does not take them.
        """
        if headers and not self.takes_headers:
            raise PublishError(f"{self.session.address}: this nsqd does not take headers")
        if operation is not None and self.takes_headers:
            headers = operation.join(headers)
        self.session.send(nsq.with_headers(command, headers) if headers else command)
        self.unanswered.append(publish)

    def receive(self, data: bytes) -> list[tuple[T, nsq.ErrorFrame | None]]:
        """Return the publishes that `data` answers, each with None for OK, or with the server's error.

        After an error, the server closes the connection. b"" is the end of the stream. Raises ConnectionLost.
        """
        answered: list[tuple[T, nsq.ErrorFrame | None]] = []
        for frame in self.session.receive(data):
            error = frame if isinstance(frame, nsq.ErrorFrame) else None
            if isinstance(frame, nsq.Message) or not self.unanswered:
                raise self._unexpected(frame)
            answered.append((self.unanswered.popleft(), error))
            if error is not None:
                break
        return answered

    def _unexpected(self, frame: nsq.Frame) -> ConnectionLost:
        if isinstance(frame, nsq.ErrorFrame):
            is_final = self.session.features is None and frame.code not in MAY_PASS
            return ConnectionLost(f"{self.session.address}: {frame}", frame.code, is_final)
        return self.session.lost(f"not an nsqd: it sent {type(frame).__name__} unasked")

"""The blocking producer: one connection, and answers counted in order.

Law: a publish is done when its OK was read, and not before. PublishError is raised once for everything that is not known
to be done. The producer itself publishes nothing twice: it reconnects only while no publish is unanswered.
"""

from collections.abc import Sequence
from types import TracebackType

from penstock.client.connection import Connection
from penstock.client.dial import check_address
from penstock.client.errors import ConnectionLost, PublishError
from penstock.client.settings import Settings
from penstock.client.tls import client_context
from penstock.protocol import nsq

MAX_OUTSTANDING = 8  # MPUBs in flight: the server works while the next is encoded, and memory stays bounded


class Producer:
    """A producer that publishes to the first of `addresses` that answers.

    An address is as in `dial`: host:port, or a unix socket's path. At most `max_outstanding` publishes are unanswered.
    Raises ValueError for a bad address, for none, and for TLS settings that cannot be used.
    After a failure the next publish goes to the next address. A producer that is not called answers no heartbeats, and
    the server disconnects it after two of them; the next publish reconnects. To keep the connection, call `poll` now and
    then (`fileno` is for selectors).
    """

    def __init__(
        self,
        addresses: str | Sequence[str],
        settings: Settings | None = None,
        max_outstanding: int = MAX_OUTSTANDING,
    ) -> None:
        self._addresses = [addresses] if isinstance(addresses, str) else list(addresses)
        if not self._addresses:
            raise ValueError("a producer needs an nsqd address")
        for address in self._addresses:
            check_address(address)
        self._settings = settings or Settings()
        self._tls = client_context(self._settings)
        self._max_outstanding = max_outstanding
        self._connection: Connection | None = None
        self._outstanding = 0  # publishes sent and not answered; 0 without a connection

    def publish(self, topic: str, body: bytes) -> None:
        """Publish one message and wait for its OK. Raises PublishError; ValueError for a bad topic name."""
        self.submit(topic, (body,))
        self.flush()

    def publish_many(self, topic: str, bodies: Sequence[bytes]) -> None:
        """Publish all bodies or none (one MPUB) and wait for the OK; an empty list does nothing. Raises like `publish`."""
        self.submit(topic, bodies)
        self.flush()

    def submit(self, topic: str, bodies: Sequence[bytes]) -> None:
        """Send the bodies as one publish without waiting for its OK; `flush` waits for all.

        While max_outstanding publishes are unanswered, it first waits. Raises PublishError; ValueError for a bad topic
        name.
        """
        if not bodies:
            return
        command = nsq.mpub(topic, bodies) if len(bodies) > 1 else nsq.pub(topic, bodies[0])
        while self._outstanding >= self._max_outstanding:
            self._await_answers()
        connection = self.connect()
        self._outstanding += 1
        try:
            connection.send(command)
        except ConnectionLost as error:
            self._read_last_words(connection)
            raise self._failure(str(error)) from error

    def flush(self) -> None:
        """Wait for the OK of every publish that is unanswered. Raises PublishError."""
        while self._outstanding:
            self._await_answers()

    def poll(self) -> None:
        """Read what has arrived, mainly heartbeats, without waiting.

        If the connection is lost, an idle producer drops it, and one with unanswered publishes raises PublishError.
        """
        connection = self._connection
        if connection is None:
            return
        try:
            while connection.wait_readable(0):
                self._count_answers(connection.receive())
        except ConnectionLost as error:
            if self._outstanding:
                raise self._failure(str(error)) from error
            self.close()

    def connect(self) -> Connection:
        """Return the living connection, or make a new one. Raises PublishError if no address answers."""
        self.poll()
        if self._connection is None:
            self._connection = self._dial()
        return self._connection

    def close(self) -> None:
        """Drop the connection without waiting for answers; a later publish connects again. Closing again does nothing."""
        if self._connection is not None:
            self._connection.close()
        self._connection = None
        self._outstanding = 0

    def fileno(self) -> int:
        """Return the socket's file descriptor, for a selector, or -1 without a connection."""
        return -1 if self._connection is None else self._connection.fileno()

    def __enter__(self) -> "Producer":
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None) -> None:
        try:
            if kind is None:
                self.flush()
        finally:
            self.close()

    def _dial(self) -> Connection:
        reasons = []
        for _ in self._addresses:
            try:
                connection = Connection(self._addresses[0], self._settings, self._tls)
                self._connection = connection
                self._count_answers(connection.wait_identified())
                return connection
            except ConnectionLost as error:
                reasons.append(str(error))
                self.close()
                self._addresses.append(self._addresses.pop(0))
        raise PublishError("; ".join(reasons))

    def _await_answers(self) -> None:
        connection = self._connection
        assert connection is not None, "no answer is owed without a connection"
        if not connection.wait_readable(self._settings.read_timeout_s):
            raise self._failure(f"{connection.address}: no answer in {self._settings.read_timeout_s:g} s")
        try:
            self._count_answers(connection.receive())
        except ConnectionLost as error:
            raise self._failure(str(error)) from error

    def _count_answers(self, frames: list[nsq.Frame]) -> None:
        for frame in frames:
            if isinstance(frame, nsq.ErrorFrame):
                raise self._failure(str(frame), frame.code)
            if not isinstance(frame, nsq.Response) or not self._outstanding:
                raise self._failure(f"not an nsqd: it sent {type(frame).__name__} unasked")
            self._outstanding -= 1

    def _failure(self, text: str, code: str = "") -> PublishError:
        """Return the one error for all unanswered publishes, after closing and moving on to the next address."""
        if code:
            text = f"{self._addresses[0]}: {text}"
        if self._outstanding > 1:
            text += f" ({self._outstanding} publishes unanswered)"
        self.close()
        self._addresses.append(self._addresses.pop(0))
        return PublishError(text, code)

    def _read_last_words(self, connection: Connection) -> None:
        """Read the frames that came before a failed send.

        A send fails when the server refused an earlier publish and closed; the caller needs that error, which `_take`
        raises.
        """
        try:
            while connection.wait_readable(0):
                self._count_answers(connection.receive())
        except ConnectionLost:
            pass  # there are none, so the failed send is reported

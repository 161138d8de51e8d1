"""The blocking producer: one connection, answers counted in order.

Law: a publish is done when its OK was read, and not before; whatever is not known to be done raises PublishError, once.
Nothing is published twice by the producer itself: it connects anew only while nothing is unanswered.
"""

from collections.abc import Sequence
from types import TracebackType

from penstock.client.connection import Connection
from penstock.client.dial import check_address
from penstock.client.errors import ConnectionLost, PublishError
from penstock.client.settings import Settings
from penstock.client.tls import client_context
from penstock.protocol import nsq

MAX_OUTSTANDING = 8  # MPUBs on the way: the server works while the next is being encoded, and memory stays bounded


class Producer:
    """Publishes to the first of `addresses` that answers; after a failure the next publish goes on to the next one.

    A producer nobody calls answers no heartbeats, and the server lets go of it after two of them; the next publish then
    connects anew. Call `poll` now and then (`fileno` is for selectors) to keep the connection.
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
        """Publish one message and wait for its OK."""
        self.submit(topic, (body,))
        self.flush()

    def publish_many(self, topic: str, bodies: Sequence[bytes]) -> None:
        """Publish all of them or none (one MPUB) and wait for the OK. Nothing to do for an empty list."""
        self.submit(topic, bodies)
        self.flush()

    def submit(self, topic: str, bodies: Sequence[bytes]) -> None:
        """Send one MPUB without waiting for its OK, unless too many are unanswered. `flush` waits for all."""
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
        """Wait for every OK that is owed."""
        while self._outstanding:
            self._await_answers()

    def poll(self) -> None:
        """Take what has arrived, heartbeats above all, without waiting. An idle producer drops a lost connection."""
        connection = self._connection
        if connection is None:
            return
        try:
            while connection.wait_readable(0):
                self._take(connection.receive())
        except ConnectionLost as error:
            if self._outstanding:
                raise self._failure(str(error)) from error
            self.close()

    def connect(self) -> Connection:
        """The connection, made now if there is none that lives. Raises PublishError if no address answers."""
        self.poll()
        if self._connection is None:
            self._connection = self._dial()
        return self._connection

    def close(self) -> None:
        """Drop the connection without waiting for answers. Idempotent; a later publish connects again."""
        if self._connection is not None:
            self._connection.close()
        self._connection = None
        self._outstanding = 0

    def fileno(self) -> int:
        """The socket, for a selector, or -1."""
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
                self._take(connection.wait_identified())
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
            self._take(connection.receive())
        except ConnectionLost as error:
            raise self._failure(str(error)) from error

    def _take(self, frames: list[nsq.Frame]) -> None:
        for frame in frames:
            if isinstance(frame, nsq.ErrorFrame):
                raise self._failure(str(frame), frame.code)
            if not isinstance(frame, nsq.Response) or not self._outstanding:
                raise self._failure(f"not an nsqd: it sent {type(frame).__name__} unasked")
            self._outstanding -= 1

    def _failure(self, text: str, code: str = "") -> PublishError:
        """The one error for everything that is unanswered; the connection goes, the next address comes first."""
        if code:
            text = f"{self._addresses[0]}: {text}"
        if self._outstanding > 1:
            text += f" ({self._outstanding} publishes unanswered)"
        self.close()
        self._addresses.append(self._addresses.pop(0))
        return PublishError(text, code)

    def _read_last_words(self, connection: Connection) -> None:
        """A send fails when the server refused an earlier publish and closed: its error is what the caller needs."""
        try:
            while connection.wait_readable(0):
                self._take(connection.receive())
        except ConnectionLost:
            pass  # no last words: the failed send is the one to report

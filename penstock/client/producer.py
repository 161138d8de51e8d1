"""The blocking producer: one connection, and responses counted in order.

A publish is done when its OK was read, and not before. PublishError is raised once for everything that is not known
to be done. The producer itself publishes nothing twice: it reconnects only while no publish is unanswered.
"""

import ssl
from collections.abc import Mapping, Sequence
from contextlib import suppress
from time import monotonic

from penstock.client.connection import Connection
from penstock.protocol import nsq
from penstock.protocol.headers import Headers, headers_of
from penstock.sansio.address import check_address
from penstock.sansio.errors import ConnectionLost, PublishError
from penstock.sansio.publisher import Publisher
from penstock.sansio.session import Session
from penstock.sansio.settings import Settings
from penstock.sansio.tls import client_context
from penstock.telemetry import NSQ, Operation, telemetry

MAX_OUTSTANDING = 8  # MPUBs in flight: the server works while the next is encoded, and memory stays bounded


class Producer:
    """A producer that publishes to the first of `addresses` that answers.

    An address is as in `dial`: host:port, or a unix socket's path. At most `max_outstanding` publishes are unanswered.
    Raises ValueError for a bad address, for none, and for TLS settings that cannot be used.
    After a failure the next publish goes to the next address. A producer that is not called answers no heartbeats, and
    the server disconnects it after two of them; the next publish reconnects. To keep the connection, call `poll` now and
    then (`fileno` is for selectors). After a fork, the child's copy opens a connection of its own; publishes that were not
    answered then belong to the parent.

    Example::

        with Producer(["127.0.0.1:4150"]) as producer:
            producer.publish("orders", b"one")
            producer.publish_many("orders", [b"two", b"three"], headers={"source": "shop"})
            for number in range(100):
                producer.submit("orders", [b"%d" % number])  # without waiting
            producer.flush()
    """

    def __init__(
        self, addresses: str | Sequence[str], settings: Settings | None = None, max_outstanding: int = MAX_OUTSTANDING
    ) -> None:
        self._addresses = [addresses] if isinstance(addresses, str) else list(addresses)
        if not self._addresses:
            raise ValueError("a producer needs an nsqd address")
        for address in self._addresses:
            check_address(address)
        self._settings = settings or Settings()
        self._tls = client_context(self._settings)
        self._max_outstanding = max_outstanding
        self._telemetry = telemetry()
        self._link: _Link | None = None

    def publish(self, topic: str, body: bytes, *, headers: Mapping[str, str] | None = None) -> None:
        """Publish one message and wait for its OK.

        `headers`: texts by name, up to 32 with 8 KiB together, for an nsqd of Penstock. Raises PublishError, also if the nsqd
        does not take headers; ValueError for a bad topic name or header.
        """
        self.submit(topic, (body,), headers=headers)
        self.flush()

    def publish_many(self, topic: str, bodies: Sequence[bytes], *, headers: Mapping[str, str] | None = None) -> None:
        """Publish all bodies or none (one MPUB) and wait for the OK; an empty list does nothing.

        `headers` are those of each message. Raises like `publish`.
        """
        self.submit(topic, bodies, headers=headers)
        self.flush()

    def submit(self, topic: str, bodies: Sequence[bytes], *, headers: Mapping[str, str] | None = None) -> None:
        """Send the bodies as one publish without waiting for its OK; `flush` waits for all.

        While max_outstanding publishes are unanswered, it first waits. Raises like `publish`.
        """
        if not bodies:
            return
        checked = headers_of(headers)
        command = nsq.mpub(topic, bodies) if len(bodies) > 1 else nsq.pub(topic, bodies[0])
        self._leave_parent()
        while self._outstanding >= self._max_outstanding:
            self._await_answers()
        operation = None if self._telemetry is None else self._telemetry.send(NSQ, topic, len(bodies))
        try:
            link = self._connected()
            self._send(link, command, checked, operation)
        except BaseException as error:
            if operation is not None:
                operation.end(error)
            raise

    def _send(self, link: "_Link", command: bytes, headers: Headers, operation: Operation | None) -> None:
        try:
            link.publish(command, headers, operation)
        except ConnectionLost as error:
            self._read_refusal(link)
            raise self._failure(str(error)) from error

    def flush(self) -> None:
        """Wait for the OK of every publish that is unanswered. Raises PublishError."""
        self._leave_parent()
        while self._outstanding:
            self._await_answers()

    def poll(self) -> None:
        """Read what has arrived, mainly heartbeats, without waiting.

        If the connection is lost, an idle producer drops it, and one with unanswered publishes raises PublishError.
        """
        self._leave_parent()
        link = self._link
        if link is None:
            return
        try:
            while link.connection.wait_readable(0):
                self._read(link)
        except ConnectionLost as error:
            if self._outstanding:
                raise self._failure(str(error)) from error
            self.close()

    def connect(self) -> None:
        """Connect, if there is no living connection. Raises PublishError if no address answers."""
        self._connected()

    @property
    def features(self) -> dict[str, object] | None:
        """Return the nsqd's response to IDENTIFY, or None without a connection."""
        self._leave_parent()
        return None if self._link is None else self._link.publisher.session.features

    def close(self) -> None:
        """Drop the connection without waiting for answers; a later publish connects again. Closing again does nothing."""
        if self._link is not None:
            self._link.close(PublishError("the producer was closed"))
        self._link = None

    def fileno(self) -> int:
        """Return the socket's file descriptor, for a selector, or -1 without a connection."""
        self._leave_parent()
        return -1 if self._link is None else self._link.connection.fileno()

    def __enter__(self) -> "Producer":
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is None:
                self.flush()
        finally:
            self.close()

    def _leave_parent(self) -> None:
        """In a process that was forked since, drop the parent's connection."""
        if self._link is not None and self._link.connection.is_inherited:
            self.close()

    @property
    def _outstanding(self) -> int:
        """Return the number of publishes that are sent and not answered."""
        return 0 if self._link is None else len(self._link.publisher.unanswered)

    def _connected(self) -> "_Link":
        self.poll()
        if self._link is None:
            self._link = self._dial()
        return self._link

    def _dial(self) -> "_Link":
        reasons, code = [], ""
        for _ in self._addresses:
            try:
                return _Link(self._addresses[0], self._settings, self._tls)
            except ConnectionLost as error:
                reasons.append(str(error))
                code = error.code
                self._addresses.append(self._addresses.pop(0))
        raise PublishError("; ".join(reasons), code)

    def _await_answers(self) -> None:
        """Wait until one more publish is answered. Raises PublishError."""
        link = self._link
        assert link is not None, "without a connection no publish is unanswered"
        before, until = self._outstanding, monotonic() + self._settings.read_timeout_s
        while self._outstanding == before:  # heartbeats are no answer
            if not link.connection.wait_readable(max(0.0, until - monotonic())):
                raise self._failure(f"{link.connection.address}: no answer in {self._settings.read_timeout_s:g} s")
            try:
                self._read(link)
            except ConnectionLost as error:
                raise self._failure(str(error)) from error

    def _read(self, link: "_Link") -> None:
        """Read the socket once. Raises ConnectionLost, or PublishError if the server refused a publish."""
        for operation, error in link.receive():
            failure = None if error is None else self._failure(str(error), error.code, 1)
            if operation is not None:
                operation.end(failure)
            if failure is not None:
                raise failure

    def _failure(self, text: str, code: str = "", refused: int = 0) -> PublishError:
        """Return the one error for all unanswered publishes, after closing and moving on to the next address.

        `refused`: how many publishes were answered with this error.
        """
        if code:
            text = f"{self._addresses[0]}: {text}"
        unanswered = self._outstanding + refused
        if unanswered > 1:
            text += f" ({unanswered} publishes unanswered)"
        failure = PublishError(text, code)
        if self._link is not None:
            self._link.close(failure)
        self._link = None
        self._addresses.append(self._addresses.pop(0))
        return failure

    def _read_refusal(self, link: "_Link") -> None:
        """Raise the server's error before a failed send, if there is one: it refused an earlier publish, and closed."""
        with suppress(ConnectionLost):
            while link.connection.wait_readable(0):
                self._read(link)


class _Link:
    """A connection that is identified, and what it publishes."""

    def __init__(self, address: str, settings: Settings, tls: ssl.SSLContext | None) -> None:
        """Connect, and wait for the answer to IDENTIFY. Raises ConnectionLost."""
        self.connection = Connection.open(address, settings.dial_timeout_s, settings.write_timeout_s)
        self.publisher: Publisher[Operation | None] = Publisher(Session(address, settings, tls))
        try:
            self.connection.send(self.publisher.session.take_output())
            until = monotonic() + settings.read_timeout_s
            while self.publisher.session.features is None:
                if not self.connection.wait_readable(max(0.0, until - monotonic())):
                    raise self.publisher.session.lost("no answer to IDENTIFY")
                self.receive()
        except ConnectionLost as error:
            self.close(error)
            raise

    def publish(self, command: bytes, headers: Headers, operation: Operation | None) -> None:
        """Send a publish. Raises ConnectionLost, PublishError."""
        self.publisher.publish(command, operation, headers, operation)
        self.connection.send(self.publisher.session.take_output())

    def receive(self) -> list[tuple[Operation | None, nsq.ErrorFrame | None]]:
        """Return the answers that have arrived. Raises ConnectionLost."""
        data = self.connection.receive()
        answers = [] if data is None else self.publisher.receive(data)
        if output := self.publisher.session.take_output():
            self.connection.send(output)
        return answers

    def close(self, error: Exception) -> None:
        """Close without waiting. `error`: why publishes are not answered."""
        for operation in self.publisher.unanswered:
            if operation is not None and not self.connection.is_inherited:  # else the publish is the parent's
                operation.end(error)
        self.publisher.session.end()
        self.connection.close(self.publisher.session.take_output())

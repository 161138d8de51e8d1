"""One nsqd of an async producer: its connection, and the publishes whose outcome only this nsqd knows.

Publishes are sent again in the order in which they were first sent, before any new one, under the same numbers; so a server
that agreed to deduplication stores each once. A publish whose outcome is unknown never goes to another nsqd, unless this one
did not agree.
"""

from __future__ import annotations

import ssl
from collections import deque
from math import inf
from time import monotonic
from typing import Protocol

import anyio
from anyio.abc import ByteStream

from penstock.aio import streams
from penstock.aio.publish import Publish
from penstock.sansio.dials import DialPlan
from penstock.sansio.errors import ConnectionLost, PublishError
from penstock.sansio.publisher import Publisher
from penstock.sansio.session import Session
from penstock.sansio.settings import Settings

LONGEST_RETRY_S = 1.0  # a caller waits for it
ELSEWHERE = ("E_PUB_FAILED", "E_MPUB_FAILED", "E_DPUB_FAILED")  # the nsqd is exiting, or its disk refuses: try another


class NodeOwner(Protocol):
    """The producer that a node belongs to: it has the publishes that wait for any nsqd."""

    def next_waiting(self) -> Publish | None:
        """Return the next publish that any nsqd may have, or None."""

    def give_back(self, publishes: list[Publish]) -> None:
        """Take publishes back that this nsqd does not have: another one may."""

    def released(self, publish: Publish) -> None:
        """Note that a publish no longer takes memory."""

    def changed(self) -> None:
        """Note that the nsqd can take publishes now, or no longer."""


class Node:
    """One nsqd. `name`: of the producer, for the numbers of its publishes."""

    def __init__(
        self, address: str, name: str, settings: Settings, tls: ssl.SSLContext | None, owner: NodeOwner
    ) -> None:
        self.address = address
        self.problem = ""  # why there is no connection
        self.refusal: PublishError | None = None  # the nsqd refuses this client: trying again does not help
        self._name = name
        self._settings = settings
        self._tls = tls
        self._owner = owner
        self._dials = DialPlan(LONGEST_RETRY_S)
        self._publisher: Publisher[Publish] | None = None  # while the connection takes publishes
        self._uncertain: deque[Publish] = deque()  # sent and not answered when the connection broke
        self._next_number = 0
        self._output = anyio.Event()  # set when there is something to send
        self._agreed = False  # the server deduplicates
        self._scope: anyio.CancelScope | None = None  # of the connection
        self._last_receive_at = 0.0  # s; when the server last sent something

    @property
    def is_ready(self) -> bool:
        """Return True while a publish can be sent at once."""
        return self._publisher is not None

    def send(self, publish: Publish) -> None:
        """Send a publish with those that are sent in the same turn of the event loop. The node must be ready."""
        assert self._publisher is not None
        if not self._agreed:
            publish.number = None
        elif publish.number is None:
            publish.number = self._name, self._next_number
            self._next_number += len(publish.bodies)
        publish.is_sent = True
        try:
            self._publisher.publish(publish.encode(), publish, publish.headers, publish.operation)
        except PublishError as error:  # the server does not take its headers
            self._settle(publish, error)
        except ConnectionLost as error:  # TLS is broken: it is not sent, and what follows is as for a lost connection
            self._publisher.unanswered.append(publish)
            self.problem = str(error)
            if self._scope is not None:
                self._scope.cancel()
        self._output.set()

    def expire(self, before: float, why: str) -> None:
        """Fail the publishes that began before this time: it is unknown whether the nsqd has them.

        A connection on which one of them waits is dropped: its nsqd answers nothing else either.
        """
        uncertain, self._uncertain = self._uncertain, deque()
        for publish in uncertain:
            if publish.begun_at < before and not publish.is_settled:
                publish.settle(PublishError(f"{self.problem or self.address}: {why}"))
            if publish.is_settled:
                self._owner.released(publish)
            else:
                self._uncertain.append(publish)
        unanswered = self._publisher.unanswered if self._publisher is not None else ()
        for publish in unanswered:
            if publish.begun_at < before and not publish.is_settled:
                publish.settle(PublishError(f"{self.address}: {why}"))
        if unanswered and unanswered[0].begun_at < before and self._scope is not None:
            self.problem = f"{self.address}: {why}"
            self._scope.cancel()

    def give_up_if_silent(self, now: float) -> None:
        """Drop the connection if the server, which sends heartbeats, sent nothing for read_timeout_s."""
        if self._scope is not None and now - self._last_receive_at > self._settings.read_timeout_s:
            self.problem = f"{self.address}: no data, not even a heartbeat, for {self._settings.read_timeout_s:g} s"
            self._scope.cancel()

    async def run(self) -> None:
        """Keep a connection until the task is cancelled."""
        while True:
            try:
                stream = await streams.dial(self.address, self._settings.dial_timeout_s)
            except ConnectionLost as error:
                self.problem, self.refusal = str(error), None
            else:
                await self._converse(stream)
            await anyio.sleep(self._dials.fail(self.address, monotonic()))

    async def _converse(self, stream: ByteStream) -> None:
        """Send and receive until the connection is lost."""
        session = Session(self.address, self._settings, self._tls)
        publisher: Publisher[Publish] = Publisher(session)
        self._last_receive_at = monotonic()
        self._output.set()
        guard = streams.hold(stream)
        try:
            async with anyio.create_task_group() as tasks:
                self._scope = tasks.cancel_scope
                tasks.start_soon(self._write, stream, session, tasks.cancel_scope)
                try:
                    await self._read(stream, publisher)
                except ConnectionLost as error:
                    self.problem = str(error)
                    self.refusal = PublishError(str(error), error.code) if error.is_final else None
                tasks.cancel_scope.cancel()
        finally:
            self._scope = None
            self._lose(publisher)
            if not guard.is_inherited:
                await streams.close(stream, _last_of(session))

    async def _read(self, stream: ByteStream, publisher: Publisher[Publish]) -> None:
        session, has_begun = publisher.session, False
        while True:
            data = await streams.receive(stream, self.address)
            self._last_receive_at = monotonic()
            for publish, error in publisher.receive(data):
                if error is None:
                    self._settle(publish, None)
                else:
                    self._refuse(publish, PublishError(f"{self.address}: {error}", error.code))
            if session.features is not None and not has_begun:
                has_begun = True
                self._begin(publisher)
            self._output.set()  # for answers to heartbeats and the rest of the introduction

    async def _write(self, stream: ByteStream, session: Session, scope: anyio.CancelScope) -> None:
        while True:
            await self._output.wait()
            self._output = anyio.Event()
            try:
                if data := session.take_output():
                    await streams.send(stream, self.address, data, self._settings.write_timeout_s)
            except ConnectionLost as error:
                # The server's last frames may say more: the reader finds them, or the end of the stream.
                self.problem = str(error)
                await anyio.sleep(streams.LAST_S)
                scope.cancel()

    def _begin(self, publisher: Publisher[Publish]) -> None:
        self._publisher, self.refusal = publisher, None
        self._agreed = (publisher.session.features or {}).get("deduplication") is True
        self._dials.succeed(self.address, monotonic())
        again, self._uncertain = self._uncertain, deque()
        for publish in again:
            if publish.is_settled:
                self._owner.released(publish)
            else:
                self.send(publish)
        while (waiting := self._owner.next_waiting()) is not None:
            self.send(waiting)
        self._owner.changed()

    def _settle(self, publish: Publish, error: PublishError | None) -> None:
        publish.is_sent = False
        if not publish.is_settled:
            publish.settle(error)
        self._owner.released(publish)

    def _refuse(self, publish: Publish, error: PublishError) -> None:
        """Pass the server's error on, or the publish to another nsqd. The server closes the connection now."""
        self.problem = str(error)
        self._publisher = None
        self._owner.changed()
        if error.code in ELSEWHERE and not publish.is_settled:
            publish.is_sent = False
            self._owner.give_back([publish])
        else:
            self._settle(publish, error)

    def _lose(self, publisher: Publisher[Publish]) -> None:
        """Keep, or give back, what was not answered."""
        self._publisher = None
        if self.refusal is not None:
            self.expire(inf, "so the messages may be published or not")
        self._owner.changed()
        unanswered = []
        for publish in publisher.unanswered:
            publish.is_sent = False
            if publish.is_settled:
                self._owner.released(publish)
            else:
                unanswered.append(publish)
        if self._agreed:
            self._uncertain.extend(unanswered)
        else:
            self._owner.give_back(unanswered)

    def __repr__(self) -> str:
        return f"<Node: {self.address}, {'ready' if self.is_ready else self.problem or 'connecting'}>"


def _last_of(session: Session) -> bytes:
    """Return the last bytes for a connection that is given up."""
    session.end()
    return session.take_output()

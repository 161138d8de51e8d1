"""The async producer: publishes to several nsqds, and sends again what was not answered."""

from __future__ import annotations

import os
import secrets
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import inf
from time import monotonic

import anyio

from penstock.aio.node import Node
from penstock.aio.publish import Publish
from penstock.aio.waiter import waiters
from penstock.protocol.headers import headers_of
from penstock.sansio.address import check_address
from penstock.sansio.errors import PublishError
from penstock.sansio.settings import Settings
from penstock.sansio.tls import client_context

MAX_UNANSWERED = 8 << 20  # bytes
RETRY_S = 30.0  # how long a call is tried; well within the 10 minutes for which nsqd remembers numbers of publishes
CLOSED = "the producer is closed"
FORKED = "the producer belongs to the process that forked this one, and to its event loop: make a producer here after the fork"
SWEEP_S = 0.5  # between two checks of calls that are out of time


class Producer:
    """A producer that publishes to the nsqds at `addresses` in turn. It is a context manager, in which it is connected.

    A call returns when an nsqd has answered OK. If the connection breaks first, the publish is sent again to the same nsqd,
    under the same number: an nsqd of Penstock stores it once, whatever the network does. NSQ's own nsqd has no such numbers;
    there the publish may go to another nsqd, and a message may be stored twice. After `retry_s` seconds without an answer the
    call raises PublishError; at once if an nsqd refuses the publish, or if all of them refuse this client (E_UNAUTHORIZED ...).

    At most `max_unanswered` bytes are sent and not answered, or wait to be sent; further calls wait. Calls of many tasks are
    sent together. Raises ValueError for a bad address, for none, and for TLS settings that cannot be used.

    Example::

        async with Producer(["127.0.0.1:4150"]) as producer:
            await producer.publish("orders", b"one")
            await producer.publish_many("orders", [b"two", b"three"], headers={"source": "shop"})
            await producer.publish("orders", b"in a minute", delay_ms=60_000)
    """

    def __init__(
        self,
        addresses: str | Sequence[str],
        settings: Settings | None = None,
        *,
        max_unanswered: int = MAX_UNANSWERED,
        retry_s: float = RETRY_S,
    ) -> None:
        given = [addresses] if isinstance(addresses, str) else list(dict.fromkeys(addresses))
        if not given:
            raise ValueError("a producer needs an nsqd address")
        settings = replace(settings or Settings(), deduplication=True)
        tls = client_context(settings)
        name = f"penstock-{secrets.token_hex(8)}"
        self._nodes = [Node(check_address(address), name, settings, tls, self) for address in given]
        self._max_unanswered = max_unanswered
        self._retry_s = retry_s
        self._is_open = False
        self._pid = os.getpid()
        self._turn = 0
        self._ready: list[Node] = []
        self._waiting: deque[Publish] = deque()  # that any nsqd may have, while none is ready
        self._unanswered = 0  # bytes of all publishes that are not settled
        self._queue: deque[Publish] = deque()  # calls that wait for room

    async def publish(
        self, topic: str, body: bytes, *, delay_ms: int = 0, headers: Mapping[str, str] | None = None
    ) -> None:
        """Publish one message, to be delivered after `delay_ms` milliseconds.

        `headers`: texts by name, up to 32 with 8 KiB together, for nsqds of Penstock. Raises PublishError, also if the nsqd
        does not take headers; ValueError for a bad name, delay or header, TypeError for a body that is not bytes.
        """
        await self._publish(topic, (body,), delay_ms, headers)

    async def publish_many(
        self, topic: str, bodies: Sequence[bytes], *, headers: Mapping[str, str] | None = None
    ) -> None:
        """Publish all bodies or none (one MPUB), each with these headers; an empty list does nothing. Raises as `publish`."""
        if bodies := list(bodies):
            await self._publish(topic, bodies, 0, headers)

    async def __aenter__(self) -> Producer:
        self._tasks = anyio.create_task_group()
        await self._tasks.__aenter__()
        self._is_open, self._pid = True, os.getpid()
        self._waiter = waiters()
        for node in self._nodes:
            self._tasks.start_soon(node.run)
        self._tasks.start_soon(self._sweep)
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close the connections. Calls that are not answered raise PublishError."""
        self._is_open = False
        self._tasks.cancel_scope.cancel()
        await self._tasks.__aexit__(None, None, None)
        while self._queue:
            self._queue.popleft().settle(PublishError(CLOSED))
        self._expire(inf, CLOSED)

    # one call

    async def _publish(
        self, topic: str, bodies: Sequence[bytes], delay_ms: int, headers: Mapping[str, str] | None
    ) -> None:
        if not self._is_open:
            raise PublishError(CLOSED)
        if os.getpid() != self._pid:
            raise PublishError(FORKED)
        done = self._waiter()
        publish = Publish(topic, bodies, delay_ms, headers_of(headers), done)
        if self._queue or not self._fits(publish):
            self._queue.append(publish)
        else:
            self._begin(publish)
        try:
            await done.wait()
        except BaseException:  # the call is cancelled: if it is sent already, it may be published
            if not publish.is_settled:
                publish.settle(None)
                if not publish.is_sent:
                    self.released(publish)
            raise
        if publish.error is not None:
            raise publish.error

    def _fits(self, publish: Publish) -> bool:
        return not self._unanswered or self._unanswered + publish.size <= self._max_unanswered

    def _begin(self, publish: Publish) -> None:
        """Send a publish for which there is room, or keep it until an nsqd is ready; if all of them refuse, it fails."""
        if (refusal := self._refusal()) is not None:
            publish.settle(refusal)
            return
        publish.begun_at, publish.has_room = monotonic(), True
        self._unanswered += publish.size
        if self._ready:
            self._turn += 1
            self._ready[self._turn % len(self._ready)].send(publish)
        else:
            self._waiting.append(publish)

    # reports of nodes

    def next_waiting(self) -> Publish | None:
        """Return the first publish that waits and is not settled; None: there is none."""
        while self._waiting:
            publish = self._waiting.popleft()
            if not publish.is_settled:
                return publish
            self.released(publish)
        return None

    def give_back(self, publishes: list[Publish]) -> None:
        """Take back publishes that a node could not send, before all that wait."""
        for publish in publishes:
            publish.number = None
        self._waiting.extendleft(reversed(publishes))
        for node in self._ready:
            while (publish_again := self.next_waiting()) is not None:
                node.send(publish_again)

    def released(self, publish: Publish) -> None:
        """Free the room that a publish has taken among those without an answer."""
        if publish.has_room:
            publish.has_room = False
            self._unanswered -= publish.size
        queue = self._queue
        while queue and (queue[0].is_settled or self._fits(queue[0])):
            waiting = queue.popleft()
            if not waiting.is_settled:
                self._begin(waiting)

    def changed(self) -> None:
        """See NodeOwner."""
        self._ready = [node for node in self._nodes if node.is_ready]
        if (refusal := self._refusal()) is not None:
            while (publish := self.next_waiting()) is not None:
                publish.settle(PublishError(str(refusal), refusal.code))
                self.released(publish)

    def _refusal(self) -> PublishError | None:
        """Return the error of a call that cannot succeed, because every nsqd refuses this client; None if one may take it."""
        if self._ready:
            return None
        refusals = [node.refusal for node in self._nodes if node.refusal is not None]
        if len(refusals) < len(self._nodes):
            return None
        return PublishError("; ".join(map(str, refusals)), refusals[0].code)

    # time

    async def _sweep(self) -> None:
        """Fail the calls that are out of time."""
        while True:
            await anyio.sleep(min(SWEEP_S, self._retry_s / 2))
            now = monotonic()
            why = f"no answer in {self._retry_s:g} s, so the messages may be published or not"
            self._expire(now - self._retry_s, why)
            for node in self._nodes:
                node.give_up_if_silent(now)

    def _expire(self, before: float, why: str) -> None:
        while self._waiting and (self._waiting[0].is_settled or self._waiting[0].begun_at < before):
            publish = self._waiting.popleft()
            if not publish.is_settled:
                problems = (node.problem or f"{node.address}: {why}" for node in self._nodes)
                publish.settle(PublishError("; ".join(problems)))
            self.released(publish)
        for node in self._nodes:
            node.expire(before, why)

    def __repr__(self) -> str:
        return f"<Producer: {self._nodes}, {self._unanswered} bytes unanswered>"

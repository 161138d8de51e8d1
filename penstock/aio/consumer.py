"""The async consumer: one channel of one topic, from all nsqds that have it."""

from __future__ import annotations

import logging
import os
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from math import inf
from random import Random
from time import monotonic

import anyio
import anyio.lowlevel
from anyio.abc import ByteStream, TaskGroup

from penstock.aio import streams
from penstock.aio.lookup import Lookup
from penstock.sansio.address import check_address
from penstock.sansio.consumer import ConsumerCore
from penstock.sansio.errors import FORKED, ConnectionLost, ConsumerError
from penstock.sansio.message import Message
from penstock.sansio.settings import Settings
from penstock.sansio.subscription import Subscription
from penstock.telemetry import NSQ, activated, telemetry

log = logging.getLogger("penstock.client")

CLOSE_S = 2.0  # for leaving all nsqds together
DIALS_AT_ONCE = 20
SHORTEST_TIMEOUT_MS = 300  # nsqd's is 1 s at least
TOUCHES = 3  # in the time after which the server takes a message back
STALE_S, SETTLE_S = 5.0, 0.05  # between two checks of the core if the event loop was blocked; the wait after that

Handler = Callable[[Message], Awaitable[object]]


class Consumer:
    """A consumer to iterate over, or to `run` a handler with. It is a context manager, in which it is connected.

    `nsqd_addresses`: host:port or paths of unix sockets; `lookupd_addresses`: host:port or URLs of nsqlookupd's HTTP.
    `max_in_flight` messages at most are unanswered, on all nsqds together. Raises ValueError as the blocking Consumer does.
    A lost nsqd is dialed again: a given address always, any other when a nsqlookupd that is asked after the loss names it.
    While none of them answers, living connections stay, lost ones are not replaced, and all are asked again every 10 s.
    Messages that wait here for their turn are touched, so that the server does not take them back.

    Example::

        async with Consumer("orders", "billing", ["127.0.0.1:4150"]) as consumer:
            async for message in consumer:
                print(message.body)
                message.finish()
                break
    """

    def __init__(
        self,
        topic: str,
        channel: str,
        nsqd_addresses: Sequence[str] = (),
        lookupd_addresses: Sequence[str] = (),
        max_in_flight: int = 200,
        settings: Settings | None = None,
    ) -> None:
        if not nsqd_addresses and not lookupd_addresses:
            raise ValueError("a consumer needs the address of an nsqd or of an nsqlookupd")
        self.topic = topic
        self.channel = channel
        self._max_in_flight = max_in_flight
        self._settings = settings or Settings()
        # messages that came too often are given up on delivery, because `run` may want them
        core_settings = replace(self._settings, max_attempts=0)
        self._core = ConsumerCore(topic, channel, max_in_flight, core_settings, self, monotonic, Random())
        self._core.want(frozenset(map(check_address, nsqd_addresses)))
        self._lookup = Lookup(topic, lookupd_addresses, self._settings) if lookupd_addresses else None
        self._links: dict[Subscription, _SubscriptionStream] = {}
        self._ready: deque[Message] = deque()  # received, not delivered yet
        self._in_work: set[Message] = set()  # with a handler of `run`
        self._maintained_at = self._touched_at = monotonic()
        self._error: ConsumerError | None = None
        self._telemetry = telemetry()
        self._stopped = False
        self._is_open = False
        self._pid = os.getpid()
        self._scopes: set[anyio.CancelScope] = set()  # of the tasks in the background

    # iteration

    def __aiter__(self) -> Consumer:
        return self

    async def __anext__(self) -> Message:
        """Return the next message; end after `stop`. A message that came more often than max_attempts is finished instead.

        Raises ConsumerError if an nsqd refuses the subscription permanently, and in a process that was forked since.
        """
        while self._is_spent(message := await self._take()):
            self._give_up(message)
        return message

    async def _take(self) -> Message:
        """Return the next message, however often it came."""
        if not self._is_open:
            raise RuntimeError("the consumer is not open: use it in `async with`")
        self._require_own()
        ready = self._ready
        while not self._has_ready():
            if self._error is not None:
                raise self._error
            if self._stopped:
                raise StopAsyncIteration
            await self._news.wait()
        message = ready.popleft()
        if self._telemetry is not None:
            message_id = message.id.decode("ascii", "replace")
            message.operation = self._telemetry.process(NSQ, self.topic, message_id, message.headers, self.channel)
        return message

    def _require_own(self) -> None:
        """Raise ConsumerError in a process that was forked since."""
        if os.getpid() != self._pid:
            raise ConsumerError(FORKED)

    def _has_ready(self) -> bool:
        """Return True if a message is ready; those of lost connections are forgotten: their servers deliver them again."""
        ready = self._ready
        while ready and not ready[0].is_pending:
            ready.popleft()
        return bool(ready)

    def _is_spent(self, message: Message) -> bool:
        return 0 < self._settings.max_attempts < message.attempts

    def _give_up(self, message: Message) -> None:
        log.warning("%s: giving up on %r", self.topic, message)
        message.finish()

    def stop(self) -> None:
        """End the iteration, and `run`, after the messages that are in work. Those that wait here are requeued."""
        self._stopped = True
        if os.getpid() != self._pid:
            return
        self._core.limit(0)
        self._requeue_ready()
        if self._is_open:
            self._send_all()
            self._notify()

    # handlers

    async def run(
        self,
        handler: Handler,
        *,
        concurrency: int = 8,
        on_give_up: Callable[[Message], Awaitable[object]] | None = None,
    ) -> None:
        """Call `handler` with each message until `stop`, cancellation or a ConsumerError.

        At most `concurrency` handlers, and at most max_in_flight, run at a time.
        A message is finished when its handler returns, and requeued with a growing delay, and with backoff of the whole
        consumer, when it raises an Exception; unless the handler answered it. It is touched while the handler works. A
        message that came more often than max_attempts of the settings goes to `on_give_up` instead and is then finished.

        Example::

            async def handle(message: Message) -> None:
                print(message.body)
                consumer.stop()

            async with Consumer("orders", "billing", ["127.0.0.1:4150"]) as consumer:
                await consumer.run(handle, concurrency=4)
        """
        if concurrency < 1:
            raise ValueError("concurrency must be at least 1")
        async with anyio.create_task_group() as workers:
            for _ in range(min(concurrency, self._max_in_flight)):
                workers.start_soon(self._work, handler, on_give_up)
        if self._error is not None:
            raise self._error

    async def _work(self, handler: Handler, on_give_up: Handler | None) -> None:
        with suppress(ConsumerError, StopAsyncIteration):  # `run` raises the error, once for all workers
            while True:
                message = await self._take()
                if not self._is_spent(message):
                    await self._handle(handler, message)
                elif on_give_up is not None:
                    await self._handle(on_give_up, message)
                else:
                    self._give_up(message)

    async def _handle(self, handler: Handler, message: Message) -> None:
        self._in_work.add(message)
        try:
            with activated(message.operation):
                await handler(message)
        except (Exception, anyio.get_cancelled_exc_class()):
            try:
                await anyio.lowlevel.checkpoint_if_cancelled()
            except BaseException:  # this task is cancelled, not something that the handler waited for
                message.requeue(0)
                raise
            log.exception("%s: the handler failed with %r", self.topic, message)
            message.requeue(backoff=True)
        except BaseException:
            message.requeue(0)
            raise
        else:
            message.finish()
        finally:
            self._in_work.discard(message)

    # context

    async def __aenter__(self) -> Consumer:
        if self._is_open or self._stopped:
            raise RuntimeError("a consumer is opened once: make another one")
        self._news = anyio.Event()  # set, and replaced, when iterators have something to check
        self._wake = anyio.Event()  # the same for the task that maintains the core
        self._dials = anyio.CapacityLimiter(DIALS_AT_ONCE)
        self._tasks = anyio.create_task_group()
        await self._tasks.__aenter__()
        self._is_open, self._pid = True, os.getpid()
        self._start(self._maintain)
        if self._lookup is not None:
            self._start(self._lookup.run, self._found)
        return self

    async def __aexit__(self, *_: object) -> None:
        """Requeue undelivered messages, send all answers, and leave every nsqd."""
        with anyio.move_on_after(CLOSE_S, shield=True):
            await self._leave()
        self._is_open = False
        for scope in [*self._scopes]:
            scope.cancel()
        await self._tasks.__aexit__(None, None, None)

    def _start(self, run: Callable[..., Awaitable[object]], *arguments: object) -> None:
        """Run a task in the background, which a cancellation around the consumer does not reach: `_leave` needs it."""
        scope = anyio.CancelScope(shield=True)
        self._scopes.add(scope)

        async def shielded() -> None:
            with scope:
                await run(*arguments)
            self._scopes.discard(scope)

        self._tasks.start_soon(shielded)

    def _requeue_ready(self) -> None:
        for message in self._ready:
            message.requeue(0)
        self._ready.clear()

    async def _leave(self) -> None:
        self._stopped = True
        self._core.leave()
        self._requeue_ready()
        self._send_all()
        while not self._core.has_left:
            await self._news.wait()
        for subscription, link in [*self._links.items()]:
            link.is_ending = True
            with suppress(ConnectionLost):
                subscription.end()
            link.output.set()
        while self._links:
            await self._news.wait()

    # decisions of the core

    async def _maintain(self) -> None:
        while True:
            if monotonic() - self._maintained_at > STALE_S:  # the event loop was blocked
                await anyio.sleep(SETTLE_S)  # data that arrived meanwhile is read before a missing heartbeat is judged
            self._maintained_at = monotonic()
            self._wake = anyio.Event()
            seconds = min(self._core.tick(), self._touch_waiting())
            if self._lookup is not None and self._core.ask_at < inf:
                self._lookup.ask(self._core.ask_at)
                self._core.ask_at = inf
            while (address := self._core.take_due()) is not None:
                self._start(self._connect, address)
            self._send_all()
            with anyio.move_on_after(seconds):
                await self._wake.wait()

    def _touch_waiting(self) -> float:
        """Touch the messages that wait here or are in work, if it is time; return the s until it is time again."""
        timeouts = [one.msg_timeout_ms for one in self._core.subscriptions.values()]
        interval = max(min(timeouts, default=1000), SHORTEST_TIMEOUT_MS) / 1000 / TOUCHES
        now = monotonic()
        if now - self._touched_at >= interval:
            self._touched_at = now
            for message in (*self._ready, *self._in_work):
                message.touch()
        return self._touched_at + interval - now

    def _found(self, addresses: dict[str, float]) -> None:
        self._core.found(addresses)
        self._wake.set()

    def has_output(self, subscription: Subscription, is_urgent: bool) -> None:
        """See Sockets: the task that sends runs when those that are ready now have run, so answers leave together.

        Raises ConsumerError after a fork: the message belongs to the parent.
        """
        self._require_own()
        link = self._links.get(subscription)
        if link is not None:
            link.output.set()
        self._deliver_held()

    def _deliver_held(self) -> None:
        if self._core.has_held and (messages := self._core.take_held()):
            self._ready.extend(messages)
            self._notify()

    def lost(self, subscription: Subscription) -> None:
        """Note that the connection of a subscription is lost, as Sockets asks."""
        link = self._links.pop(subscription)
        with suppress(ConnectionLost):
            link.last = subscription.take_output()
        link.tasks.cancel_scope.cancel()
        if self._lookup is not None:
            self._lookup.poll_often()
        self._deliver_held()
        self._wake.set()
        self._notify()

    def _send_all(self) -> None:
        for subscription in self._core.outgoing:
            self._links[subscription].output.set()

    def _notify(self) -> None:
        self._news.set()
        self._news = anyio.Event()

    # one nsqd

    async def _connect(self, address: str) -> None:
        """Dial an nsqd, and receive and send until the connection is lost."""
        try:
            stream = await streams.dial(address, self._settings.dial_timeout_s, self._dials)
        except ConnectionLost as error:
            self._core.failed(address, error)
            self._wake.set()
            return
        subscription = self._core.connected(address)
        link = self._links[subscription] = _SubscriptionStream(stream, anyio.create_task_group())
        try:
            async with link.tasks:
                link.tasks.start_soon(self._send, subscription, link)
                await self._receive(subscription, link)
        finally:
            await streams.close(stream, link.last)

    async def _receive(self, subscription: Subscription, link: _SubscriptionStream) -> None:
        while subscription in self._links:
            try:
                data = await streams.receive(link.stream, subscription.address)
                before = subscription.state
                self._ready.extend(self._core.receive(subscription, data))
                if subscription.state is not before:
                    self._wake.set()  # other nsqds may have got a lower RDY, which settles before the next tick
            except ConnectionLost as error:
                self._core.lose(subscription, error)
            except ConsumerError as error:
                self._error = error
                self._core.lose(subscription, error)
            self._send_all()
            self._notify()

    async def _send(self, subscription: Subscription, link: _SubscriptionStream) -> None:
        while True:
            await link.output.wait()
            link.output = anyio.Event()
            self._core.outgoing.pop(subscription, None)
            try:
                if data := subscription.take_output():
                    await streams.send(link.stream, subscription.address, data, self._settings.write_timeout_s)
                if link.is_ending:
                    await streams.end(link.stream, subscription.address)
                    return
            except ConnectionLost as error:
                self._core.lose(subscription, error)

    def __repr__(self) -> str:
        return f"<Consumer: {self._core!r}, {len(self._ready)} ready>"


class _SubscriptionStream:
    """The socket of one subscription and the tasks that receive and send on it."""

    __slots__ = ("guard", "is_ending", "last", "output", "stream", "tasks")

    def __init__(self, stream: ByteStream, tasks: TaskGroup) -> None:
        self.stream = stream
        self.guard = streams.hold(stream)
        self.tasks = tasks
        self.output = anyio.Event()  # set when the subscription has something to send, as it has at the beginning
        self.output.set()
        self.is_ending = False  # nothing follows what waits to be sent
        self.last = b""  # to be sent when the connection is given up

"""The main loop of nsq_to_nsq and nsq_to_http: messages come from consumers, threads do the work, answers go back.

Invariant: only the Route finishes messages; until then it touches those whose work takes long. When a
signal arrives, the work that has begun gets STOP_S to end; every other message is requeued at once, so that another
consumer gets it.
"""

import selectors
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from time import monotonic
from typing import Protocol

from apps.interrupts import Interrupts
from apps.workers import Waker
from penstock.client import Consumer, Message, Settings

TICK_S = 0.5  # consumers do their timed work when polled: at least once a second
STOP_S = 8.0  # for work in progress after a signal; supervisors often kill after 10 s
TOUCH_S = 2.0  # how long a message waits or is worked on before it is touched, unless -consumer-opt sets msg_timeout
TOUCHES = 3  # how often a message is touched in the msg_timeout that -consumer-opt sets


class Route(Protocol):
    """The work of a program on messages, and the messages that it holds meanwhile."""

    def take(self, topic: str, messages: list[Message], now: float) -> None:
        """Take the messages that have come, and answer those that need no work."""

    def collect(self, now: float) -> None:
        """Answer the messages whose work is done."""

    def dispatch(self, now: float) -> None:
        """Begin as much work as there are free threads."""

    def touch_older(self, than: float, now: float) -> None:
        """Touch the messages that were neither received nor touched since `than`, in monotonic seconds."""

    def give_back(self) -> None:
        """Requeue the messages whose work has not begun."""

    def abandon(self) -> None:
        """Requeue the messages in work, whose results are no longer awaited."""

    @property
    def busy(self) -> bool:
        """Whether any message is in work."""


class Forwarding:
    """The loop over some consumers and one Route. The threads of the Route wake `waker`."""

    def __init__(self, consumers: Sequence[Consumer], route: Route, waker: Waker, touch_s: float = TOUCH_S) -> None:
        self._consumers = consumers
        self._route = route
        self._waker = waker
        self._touch_s = touch_s
        self._touch_at = 0.0  # monotonic s

    def run(self, interrupts: Interrupts) -> None:
        """Forward messages until a signal arrives, then end all work. Raises ConsumerError."""
        with selectors.DefaultSelector() as selector:
            files: tuple[Interrupts | Waker | Consumer, ...] = (interrupts, self._waker, *self._consumers)
            for file in files:
                selector.register(file, selectors.EVENT_READ)
            try:
                while not interrupts.received:
                    self._turn()
                    selector.select(min(TICK_S, self._interval / 2))
                selector.unregister(interrupts)  # it stays readable
                self._stop(selector)
            finally:
                self._route.give_back()
                self._route.abandon()

    def _turn(self) -> None:
        now = monotonic()
        self._waker.clear()
        self._route.collect(now)
        for consumer in self._consumers:
            messages = consumer.poll(0)  # sends the answers of `collect`, too
            if messages:
                self._route.take(consumer.topic, messages, now)
        self._route.dispatch(now)
        self._touch(now)
        self._flush()

    def _stop(self, selector: selectors.BaseSelector) -> None:
        deadline = monotonic() + STOP_S
        for consumer in self._consumers:
            consumer.pause()
        self._route.give_back()
        while self._route.busy and (left := deadline - monotonic()) > 0:
            self._flush()
            selector.select(min(TICK_S, left))
            self._waker.clear()
            self._route.collect(monotonic())
            self._touch(monotonic())
            for consumer in self._consumers:
                for message in consumer.poll(0):
                    message.requeue(0)

    def _touch(self, now: float) -> None:
        if now >= self._touch_at:
            self._touch_at = now + min(TICK_S, self._interval / 2)
            self._route.touch_older(now - self._interval, now)

    @property
    def _interval(self) -> float:
        """Return after how many seconds a message in work is touched: in time for the nsqd that waits least."""
        timeouts = [consumer.msg_timeout_ms / 1000 / TOUCHES for consumer in self._consumers]
        return min([self._touch_s, *(one for one in timeouts if one)])

    def _flush(self) -> None:
        for consumer in self._consumers:
            consumer.flush()


def touch_interval(settings: Settings) -> float:
    """Return after how many seconds a message in work is touched."""
    return max(0.1, settings.msg_timeout_ms / 1000 / TOUCHES) if settings.msg_timeout_ms > 0 else TOUCH_S


def run_consumers(consumers: Iterable[Consumer], route: Route, waker: Waker, touch_s: float) -> None:
    """Run a Forwarding until SIGINT or SIGTERM, and close the consumers and the waker. Raises ConsumerError."""
    with Interrupts() as interrupts, ExitStack() as stack:
        stack.callback(waker.close)
        opened = [stack.enter_context(consumer) for consumer in consumers]
        Forwarding(opened, route, waker, touch_s).run(interrupts)

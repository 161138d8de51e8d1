"""Spans and durations of OpenTelemetry for penstock.client, aio, jobs and the adapters over them.

They exist where the extra `otel` is installed and OTEL_SEMCONV_STABILITY_OPT_IN names `messaging`, because OpenTelemetry's
conventions for messaging are still in development; the names here follow them. Otherwise `telemetry` returns None once, and
clients compare with that.

A publish is a span of kind PRODUCER from the call to the server's answer; its context goes into the headers of its messages. A
delivery is a span of kind CONSUMER from when the application gets it to its answer; its parent is the context in its headers.
Both are counted in the histogram of durations.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from time import perf_counter
from typing import TYPE_CHECKING

from penstock import __version__
from penstock.protocol.headers import Headers, check_headers

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.metrics import Histogram
    from opentelemetry.trace import Span

OPT_IN = "OTEL_SEMCONV_STABILITY_OPT_IN"
NSQ, JOBS = "nsq", "beanstalkd"  # values of messaging.system: the protocol that a client speaks
Attributes = dict[str, str | int]
BOUNDS_S = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10)  # as the conventions have them


@cache
def telemetry() -> Telemetry | None:
    """Return the spans and durations of this process; None if they are not wanted, or OpenTelemetry is not installed."""
    wanted = {word.strip() for word in os.environ.get(OPT_IN, "").split(",")}
    if not wanted & {"messaging", "messaging/dup"}:
        return None
    try:
        import opentelemetry.trace  # noqa: F401 - whether it is there
    except ImportError:
        return None
    return Telemetry()


class Telemetry:
    """Begins the spans of one process, with the providers of OpenTelemetry that the application has set."""

    def __init__(self) -> None:
        from opentelemetry import metrics, propagate, trace

        self._propagate, self._trace = propagate, trace
        self._tracer = trace.get_tracer("penstock", __version__)
        meter = metrics.get_meter("penstock", __version__)
        self._sent = meter.create_histogram(
            "messaging.client.operation.duration",
            "s",
            "Time from a publish to its answer",
            explicit_bucket_boundaries_advisory=BOUNDS_S,
        )
        self._processed = meter.create_histogram(
            "messaging.process.duration",
            "s",
            "Time from a delivery to its answer",
            explicit_bucket_boundaries_advisory=BOUNDS_S,
        )

    def send(self, system: str, destination: str, count: int = 1) -> Operation:
        """Begin a publish of `count` messages. `system`: NSQ or JOBS; `destination`: the topic or tube."""
        attributes = _attributes(system, "publish", "send", destination)
        more: Attributes = {"messaging.batch.message_count": count} if count > 1 else {}
        span = self._tracer.start_span(
            f"publish {destination}", kind=self._trace.SpanKind.PRODUCER, attributes=attributes | more
        )
        operation = Operation(span, self._sent, attributes)
        carrier: dict[str, str] = {}
        self._propagate.inject(carrier, operation.context)
        operation.headers = tuple((name.lower(), value) for name, value in carrier.items())
        return operation

    def process(
        self, system: str, destination: str, message_id: str, headers: Mapping[str, str], group: str = ""
    ) -> Operation:
        """Begin to process a message. `group`: the channel; "": there is none."""
        attributes = _attributes(system, "process", "process", destination)
        if group:
            attributes["messaging.consumer.group.name"] = group
        span = self._tracer.start_span(
            f"process {destination}".rstrip(),
            self._propagate.extract(headers),
            self._trace.SpanKind.CONSUMER,
            attributes | {"messaging.message.id": message_id},
        )
        return Operation(span, self._processed, attributes)


class Operation:
    """A publish, or the processing of a message, until `end`."""

    __slots__ = ("_attributes", "_began_at", "_duration", "_has_ended", "_span", "headers")

    def __init__(self, span: Span, duration: Histogram, attributes: Attributes) -> None:
        self.headers: Headers = ()  # the context of the span, for the messages of a publish
        self._span, self._duration, self._attributes = span, duration, attributes
        self._began_at = perf_counter()
        self._has_ended = False

    @property
    def context(self) -> Context:
        """Return the context in which the span is the current one."""
        from opentelemetry.trace import set_span_in_context

        return set_span_in_context(self._span)

    def join(self, headers: Headers) -> Headers:
        """Return the headers with the context of the span, unless they have one, or there is no room for it."""
        names = dict(headers)
        joined = (*headers, *((name, value) for name, value in self.headers if name not in names))
        try:
            check_headers(joined)
        except ValueError:
            return headers
        return joined

    def end(self, error: BaseException | None = None) -> None:
        """End the span and record its duration. `error`: why the operation failed. Ending again does nothing."""
        if self._has_ended:
            return
        self._has_ended = True
        seconds = perf_counter() - self._began_at
        attributes = self._attributes
        if error is not None:
            from opentelemetry.trace import Status, StatusCode

            kind = getattr(error, "code", "") or type(error).__qualname__
            attributes = attributes | {"error.type": kind}
            self._span.set_attribute("error.type", kind)
            self._span.record_exception(error)
            self._span.set_status(Status(StatusCode.ERROR, str(error)))
        self._span.end()
        self._duration.record(seconds, attributes, self.context)


@contextmanager
def activated(operation: Operation | None) -> Iterator[None]:
    """Make the span of an operation, if there is one, the current one within the block."""
    if operation is None:
        yield
        return
    from opentelemetry.context import attach, detach

    token = attach(operation.context)
    try:
        yield
    finally:
        detach(token)


def _attributes(system: str, name: str, kind: str, destination: str) -> Attributes:
    found: Attributes = {"messaging.system": system, "messaging.operation.name": name, "messaging.operation.type": kind}
    return found | ({"messaging.destination.name": destination} if destination else {})

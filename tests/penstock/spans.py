"""The spans and durations of OpenTelemetry that the clients make, kept in memory."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from opentelemetry import metrics, propagate, trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from penstock.telemetry import OPT_IN, telemetry


class Recorded:
    def __init__(self) -> None:
        self._spans, self._reader = InMemorySpanExporter(), InMemoryMetricReader()
        self.tracers = TracerProvider()
        self.tracers.add_span_processor(SimpleSpanProcessor(self._spans))
        self.meters = MeterProvider([self._reader])

    @property
    def spans(self) -> list[ReadableSpan]:
        return list(self._spans.get_finished_spans())

    def durations(self) -> dict[tuple[str, str], int]:
        """Return the number of recorded durations, by the metric's name and error.type."""
        data = self._reader.get_metrics_data()
        found: dict[tuple[str, str], int] = {}
        for metric in data.resource_metrics[0].scope_metrics[0].metrics if data is not None else ():
            points: Any = metric.data.data_points
            for point in points:
                found[metric.name, point.attributes.get("error.type", "")] = point.count
        return found


@contextmanager
def recording(patch: pytest.MonkeyPatch) -> Iterator[Recorded]:
    recorded = Recorded()
    patch.setenv(OPT_IN, "http,messaging")
    patch.setattr(trace, "get_tracer", recorded.tracers.get_tracer)
    patch.setattr(metrics, "get_meter", recorded.meters.get_meter)
    propagator = TraceContextTextMapPropagator()
    patch.setattr(propagate, "inject", propagator.inject)
    patch.setattr(propagate, "extract", propagator.extract)
    telemetry.cache_clear()
    try:
        yield recorded
    finally:
        telemetry.cache_clear()

"""The results of one run of a row, and the medians of several runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from statistics import median
from typing import TypeVar

from bench.load import Sample

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class RowStats:
    """The results of one run or, field by field, the median of several. None: not measured in this row."""

    rate: float  # messages/s
    cpu: float  # ns of the server's CPU time for each message
    p50: float | None  # ns, as is p99
    p99: float | None
    rss: float  # bytes at the end
    growth: float  # bytes of RSS for each message
    server_share: float  # of a core
    load_share: float  # of a core

    @property
    def client_bound(self) -> bool:
        """Return True if the load was busier than the server, so that throughput says little of the server."""
        return self.load_share >= self.server_share


def stats_of(sample: Sample) -> RowStats:
    """Return the results of one run."""
    outcome = sample.outcome
    messages, ns = max(1, outcome.messages), outcome.seconds * 1e9
    return RowStats(
        rate=outcome.messages / outcome.seconds,
        cpu=sample.server_cpu / messages,
        p50=outcome.p50,
        p99=outcome.p99,
        rss=sample.rss,
        growth=(sample.rss - sample.rss_before) / messages,
        server_share=sample.server_cpu / ns,
        load_share=outcome.cpu / ns,
    )


def medians(runs: Sequence[T]) -> T:
    """Return the median of each field of dataclasses; None if no run has a value."""
    columns = ([getattr(run, field.name) for run in runs] for field in fields(runs[0]))  # type: ignore[arg-type]
    known = ([value for value in column if value is not None] for column in columns)
    return type(runs[0])(*(median(values) if values else None for values in known))

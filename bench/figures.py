"""The figures of one run of a row, and the median of several runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from bench.load import Sample


@dataclass(frozen=True, slots=True)
class Figures:
    """The figures of one run or, field by field, the median of several. None: the row has no such figure."""

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


def figures(sample: Sample) -> Figures:
    """Compute the figures of one run."""
    outcome = sample.outcome
    messages, ns = max(1, outcome.messages), outcome.seconds * 1e9
    return Figures(
        rate=outcome.messages / outcome.seconds,
        cpu=sample.server_cpu / messages,
        p50=outcome.p50,
        p99=outcome.p99,
        rss=sample.rss,
        growth=(sample.rss - sample.rss_before) / messages,
        server_share=sample.server_cpu / ns,
        load_share=outcome.cpu / ns,
    )


def medians(runs: Sequence[Figures]) -> Figures:
    """Return the median of each field."""
    return Figures(
        rate=median(run.rate for run in runs),
        cpu=median(run.cpu for run in runs),
        p50=_median([run.p50 for run in runs]),
        p99=_median([run.p99 for run in runs]),
        rss=median(run.rss for run in runs),
        growth=median(run.growth for run in runs),
        server_share=median(run.server_share for run in runs),
        load_share=median(run.load_share for run in runs),
    )


def _median(times: list[float | None]) -> float | None:
    known = [time for time in times if time is not None]
    return median(known) if known else None

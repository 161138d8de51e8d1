"""The tables as text, with readable numbers and aligned columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bench.stats import RowStats

HEADER = (
    "row", "server", "messages/s", "CPU ns/msg", "p50", "p99", "RSS MB", "B/msg", "server", "load", "vs Go", "aim",
)  # fmt: skip
LINE_HEADER = ("row", "what", "measured", "compared", "aim")


@dataclass(frozen=True, slots=True)
class Line:
    """A line in the table of LINE_HEADER."""

    row: str
    what: str
    measured: str
    compared: str = ""
    aim: str = ""


def table(header: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """Format lines below a header, in columns; the second one and those of LINE_HEADER are aligned to the left."""
    widths = [max(map(len, column)) for column in zip(header, *lines, strict=True)]
    left = [name in LINE_HEADER or place == 1 for place, name in enumerate(header)]

    def line(cells: Sequence[str]) -> str:
        padded = [c.ljust(w) if is_left else c.rjust(w) for c, w, is_left in zip(cells, widths, left, strict=True)]
        return "  ".join(padded).rstrip()

    return "\n".join([line(header), line(["-" * width for width in widths]), *map(line, lines)])


def cells(row: str, server: str, got: RowStats, original: RowStats | None, aim: str) -> list[str]:
    """Format one line of the main table. `original`: the Go nsqd's results of the same row, for comparison."""
    return [
        row, server, number(got.rate), f"{got.cpu:.0f}", duration(got.p50), duration(got.p99), megabytes(got.rss),
        f"{got.growth:.0f}", share(got.server_share), share(got.load_share), versus(got, original), aim,
    ]  # fmt: skip


def versus(stats: RowStats, original: RowStats | None) -> str:
    """Compare throughputs, if both servers were busier than their loads, and CPU time per message."""
    if original is None:
        return "client-bound" if stats.client_bound else ""
    bound = stats.client_bound or original.client_bound
    cpu = f"{stats.cpu / original.cpu:.2f} CPU" if original.cpu else ""
    return ("client-bound" if bound else f"{stats.rate / original.rate:.2f}x") + f", {cpu}"


def number(value: float) -> str:
    """Format with three significant digits: 1.23M, 45.6k, 789."""
    for unit, size in (("M", 1e6), ("k", 1e3)):
        if value >= size:
            scaled = value / size
            return f"{scaled:.{2 if scaled < 10 else 1 if scaled < 100 else 0}f}{unit}"
    return f"{value:.0f}"


def duration(ns: float | None) -> str:
    """Format a time in ns as us, ms or s; - for None."""
    if ns is None:
        return "-"
    for unit, size in (("s", 1e9), ("ms", 1e6)):
        if ns >= size:
            return f"{ns / size:.1f} {unit}"
    return f"{ns / 1e3:.0f} us"


def megabytes(size: float | None) -> str:
    """Format bytes as MB of 10^6; - for None."""
    return "-" if size is None else f"{size / 1e6:.0f}"


def share(value: float) -> str:
    """Format a share of a core as a percentage."""
    return f"{value * 100:.0f}%" if value >= 0.1 else f"{value * 100:.1f}%"

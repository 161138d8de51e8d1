"""`penstock pipeline report`: one HTML file about a period, from the rollups, with plots and without external resources.

It reads Parquet with pyarrow, without Spark.
"""

from __future__ import annotations

import argparse
import html
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import pairwise
from typing import Any

from penstock.lake.location import DELIVERIES, MESSAGES, ROLLUP, LakeError, lake_at
from penstock.lake.table import missing_messages, open_table
from pipeline.counts import COUNTED
from pipeline.rollup import BASE
from pipeline.rollups import STEPS, bounds, read_rows
from pipeline.saying import say
from shared.counted import counted

MOST_POINTS = 400  # of a plot; a longer period gets a coarser grain


@dataclass(slots=True)
class Sum:
    """Counts of messages, and a histogram of their sizes."""

    messages: int = 0
    size: int = 0  # bytes of all messages
    largest: int = 0
    sizes: Counter[int] = field(default_factory=Counter)  # messages by bucket of size

    def add(self, row: dict[str, Any]) -> None:
        """Add one row of a rollup."""
        self.messages += row["messages"]
        self.size += row["bytes"]
        self.largest = max(self.largest, row["largest"])
        self.sizes.update(dict(row["sizes"] or ()))

    def percentile(self, share: float) -> int:
        """Return the size in bytes that this share of the messages does not exceed, within 4 %."""
        return min(self.largest, round(float(BASE ** (_bucket_at(self.sizes, share) + 0.5))))


def run(given: argparse.Namespace) -> int:
    """Write the page and return the exit code. Raises LakeError."""
    lake, out, since, until = lake_at(given.lake), given.out, given.since, given.until
    messages, period = open_table(lake, MESSAGES), bounds(lake, since, until)
    if period is None:
        when = f"from {since or 'the beginning'} to {until or 'the end'}"
        raise LakeError(f"no messages {when} are rolled up: run penstock pipeline rollup --lake {given.lake}")
    grain = next((name for name, step in STEPS.items() if (period[1] - period[0]) / step < MOST_POINTS), "day")
    rows = read_rows(lake, ROLLUP, grain, since, until)
    archived, rolled = messages.count(), sum(row["messages"] for row in read_rows(lake, ROLLUP, "day"))
    delivered = read_rows(lake, DELIVERIES, grain, since, until)
    out.write_text(_page(rows, grain, missing_messages(messages), archived, rolled, delivered))
    count, topics = sum(row["messages"] for row in rows), {row["topic"] for row in rows}
    say(f"{counted(count, 'message')} of {counted(len(topics), 'topic')}, written to {out}")
    return 0


def _page(
    rows: list[dict[str, Any]],
    grain: str,
    missing: list[str],
    archived: int,
    rolled: int,
    delivered: list[dict[str, Any]],
) -> str:
    topics = _sums(rows, "topic")
    total = _sums(rows, None)[""]
    producers = _sums(rows, "producer")
    nodes = _sums(rows, "node")
    begin, end = min(row["at"] for row in rows), max(row["at"] for row in rows)
    parts = [
        f"<h1>Messages from {_time(begin)} to {_time(end + STEPS[grain])}</h1>",
        f"<p class=lead><b>{total.messages:,}</b> messages, <b>{_bytes(total.size)}</b>,"
        f" {counted(len(topics), 'topic')}, {counted(len(nodes), 'node')}</p>",
        *(f"<p class=bad>Missing: {html.escape(gap)}</p>" for gap in missing),
        f"<p class=bad>{archived - rolled:,} archived messages are not rolled up yet</p>" if archived > rolled else "",
        _plot(f"Messages per {grain}, by topic", _series(rows, "messages"), "{:,.0f}".format),
        _plot(f"Bytes per {grain}, by topic", _series(rows, "bytes"), _bytes),
        "<h2>Topics</h2>",
        _table("topic", topics),
        "<h2>Nodes</h2>",
        _table("node", nodes),
    ]
    if any(producers):
        parts += ["<h2>Producers</h2>", _table("producer", producers)]
    if delivered:
        series = _series([{**row, "topic": f"{row['topic']}/{row['channel']}"} for row in delivered], "finished")
        parts += ["<h2>Deliveries</h2>", _plot(f"Finished messages per {grain}, by channel", series, "{:,.0f}".format)]
        parts.append(_deliveries(delivered, "channel"))
        if any(row["producer"] for row in delivered):
            parts += ["<h2>Deliveries by producer</h2>", _deliveries(delivered, "producer")]
    title = f"Penstock report, {_time(begin)}"
    return _HTML.format(title=html.escape(title), body="\n".join(parts))


def _sums(rows: Iterable[dict[str, Any]], key: str | None) -> dict[str, Sum]:
    found: dict[str, Sum] = defaultdict(Sum)
    for row in rows:
        found[row[key] if key else ""].add(row)
    return dict(sorted(found.items(), key=lambda item: -item[1].messages))


def _table(name: str, sums: dict[str, Sum]) -> str:
    lines = []
    for key, one in sums.items():
        cells = [f"{one.messages:,}", _bytes(one.size), *(f"{one.percentile(p):,}" for p in (0.5, 0.95, 0.99))]
        cells.append(f"{one.largest:,}")
        lines.append(_row([key or "(none)"], cells))
    return _html_table(f"{name.capitalize()}, Messages, Bytes, Size p50, Size p95, Size p99, Max. size", lines)


@dataclass(slots=True)
class Delivered:
    """The deliveries of a channel's messages."""

    finished: int = 0
    attempts: int = 0  # deliveries of the finished messages
    requeued: int = 0
    timed_out: int = 0
    buried: int = 0
    depth: int = 0  # the maximum
    longest: int = 0  # ns
    latencies: Counter[int] = field(default_factory=Counter)  # finished messages by bucket (ns)

    def add(self, row: dict[str, Any]) -> None:
        """Add one row of the deliveries' rollup."""
        for name in COUNTED:
            setattr(self, name, getattr(self, name) + (row[name] or 0))
        self.depth = max(self.depth, row["depth"] or 0)
        self.longest = max(self.longest, row["latency_max"] or 0)
        self.latencies.update(dict(row["latencies"] or []))

    def percentile(self, share: float) -> int:
        """Return the latency in ns that this share of the messages does not exceed, within 2 %."""
        return min(self.longest, _bucket_at(self.latencies, share))


def _bucket_at(counts: Counter[int], share: float) -> int:
    """Return the lowest bucket up to which at least that share of all counts lies; 0 without any."""
    rank = share * counts.total()
    for bucket, count in sorted(counts.items()):
        rank -= count
        if rank <= 0:
            return bucket
    return max(counts, default=0)


def _deliveries(rows: list[dict[str, Any]], key: str) -> str:
    """Make a table by topic, and by channel or producer."""
    found: dict[tuple[str, str], Delivered] = defaultdict(Delivered)
    for row in rows:
        found[row["topic"], row[key]].add(row)
    head = f"Topic, {key.capitalize()}, Finished, Attempts per message, Requeued, Timed out, Buried, Max. depth"
    head += ", Latency p50, Latency p95, Latency p99, Max. latency"
    lines = []
    for (topic, name), one in sorted(found.items(), key=lambda item: -item[1].finished):
        counts = (one.requeued, one.timed_out, one.buried, one.depth)
        times = (*(one.percentile(share) for share in (0.5, 0.95, 0.99)), one.longest)
        each = f"{one.attempts / one.finished:.2f}" if one.finished else "-"
        cells = [f"{one.finished:,}", each, *(f"{count:,}" for count in counts), *map(_duration, times)]
        lines.append(_row([topic, name or "(none)"], cells))
    return _html_table(head, lines)


def _row(names: Sequence[str], cells: Sequence[str]) -> str:
    return "<tr><td>" + "<td>".join(map(html.escape, names)) + "".join(f"<td class=n>{cell}" for cell in cells)


def _html_table(head: str, lines: Sequence[str]) -> str:
    """Return a table. `head`: the names of the columns, separated by commas."""
    names = "".join(f"<th>{name}" for name in head.split(", "))
    return f"<table><thead><tr>{names}</thead><tbody>{''.join(lines)}</tbody></table>"


def _duration(ns: int) -> str:
    for unit, size in (("s", 1_000_000_000), ("ms", 1_000_000), ("us", 1000)):
        if ns >= size:
            return f"{ns / size:,.1f} {unit}"
    return f"{ns} ns"


def _series(rows: list[dict[str, Any]], value: str) -> dict[str, dict[datetime, int]]:
    found: dict[str, dict[datetime, int]] = defaultdict(lambda: defaultdict(int))
    for row in rows:
        found[row["topic"]][row["at"]] += row[value]
    largest = sorted(found, key=lambda topic: -sum(found[topic].values()))
    kept = {topic: found[topic] for topic in largest[:_MOST_SERIES]}
    for topic in largest[_MOST_SERIES:]:
        others = kept.setdefault("(others)", defaultdict(int))
        for at, count in found[topic].items():
            others[at] += count
    return kept


_MOST_SERIES = 7
_WIDTH, _HEIGHT, _LEFT, _BOTTOM = 960, 260, 80, 30
_COLOURS = ("#4269d0", "#efb118", "#ff725c", "#6cc5b0", "#3ca951", "#ff8ab7", "#a463f2", "#9c6b4e")


def _plot(title: str, series: dict[str, dict[datetime, int]], format_value: Any) -> str:
    """Draw stacked bars over time as SVG; each bar shows its values under the pointer."""
    moments = sorted({at for points in series.values() for at in points})
    first, last = moments[0], moments[-1]
    step = min((b - a for a, b in pairwise(moments)), default=STEPS["minute"])
    slots = int((last - first) / step) + 1
    totals: dict[datetime, int] = defaultdict(int)
    for points in series.values():
        for at, value in points.items():
            totals[at] += value
    most = max(totals.values()) or 1
    width, height = (_WIDTH - _LEFT) / slots, _HEIGHT - _BOTTOM
    shapes, floors = [], dict.fromkeys(moments, 0.0)
    for colour, (name, points) in zip(_COLOURS, series.items(), strict=False):
        for at, value in sorted(points.items()):
            tall = value / most * (height - 10)
            x, y = _LEFT + int((at - first) / step) * width, height - floors[at] - tall
            floors[at] += tall
            tip = f"{name}, {_time(at)}: {format_value(value)}"
            shapes.append(
                f'<rect x="{x:.1f}" y="{y:.1f}" width="{max(0.6, width - 0.4):.1f}" height="{tall:.1f}" fill="{colour}">'
                f"<title>{html.escape(tip)}</title></rect>"
            )
    for share in (0.0, 0.5, 1.0):
        y = height - share * (height - 10)
        shapes.append(f'<line x1="{_LEFT}" x2="{_WIDTH}" y1="{y:.1f}" y2="{y:.1f}" class=grid />')
        shapes.append(f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{format_value(most * share)}</text>')
    for at, anchor, x in ((first, "start", _LEFT), (last, "end", _WIDTH)):
        shapes.append(f'<text x="{x}" y="{_HEIGHT - 8}" text-anchor="{anchor}">{_time(at)}</text>')
    keys = "".join(
        f'<span><i style="background:{colour}"></i>{html.escape(name)}</span>'
        for colour, name in zip(_COLOURS, series, strict=False)
    )
    label = html.escape(title)
    return (
        f"<figure><figcaption>{label}</figcaption><div class=keys>{keys}</div>"
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{label}">{"".join(shapes)}</svg></figure>'
    )


def _time(at: datetime) -> str:
    return at.strftime("%Y-%m-%d %H:%M UTC")


def _bytes(count: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:,.0f} {unit}" if unit == "B" else f"{count:,.1f} {unit}"
        count /= 1000
    return f"{count:,.1f} TB"


_HTML = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>
:root {{ color-scheme: light dark; --line: #8884; --bad: #c22; }}
body {{ font: 15px/1.5 system-ui, sans-serif; max-width: 1000px; margin: 2em auto; padding: 0 1em; }}
h1 {{ font-size: 1.5em; }} h2 {{ font-size: 1.15em; margin-top: 2em; }}
.lead {{ font-size: 1.1em; }} .bad {{ color: var(--bad); font-weight: 600; }}
figure {{ margin: 2em 0; overflow-x: auto; }} figcaption {{ font-weight: 600; }}
svg {{ width: 100%; height: auto; }} text {{ font-size: 12px; fill: currentColor; }} .grid {{ stroke: var(--line); }}
.keys span {{ margin-right: 1em; }} .keys i {{ display: inline-block; width: .8em; height: .8em; margin-right: .3em; }}
table {{ border-collapse: collapse; width: 100%; display: block; overflow-x: auto; }}
th, td {{ text-align: left; padding: .3em .8em; border-bottom: 1px solid var(--line); white-space: nowrap; }}
th:not(:first-child), .n {{ text-align: right; font-variant-numeric: tabular-nums; }}
</style></head><body>
{body}
</body></html>
"""

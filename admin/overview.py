"""All topics of all nodes, as far as an overview needs them: sums, names, and the columns to sort by. Pure.

This is how ten thousand topics on ten nodes are listed: every node returns names and the column of the order, which are
sorted and cut into pages here; then only the rows of one page are requested.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from admin.cluster import PartialResult
from admin.merge import JsonObject, number, text
from admin.views import Row, topic_row

TOTALS = ("channels", "depth", "in_flight", "deferred", "buried", "clients", "messages")
COLUMNS: dict[str, tuple[str, ...]] = {  # the columns that an order needs
    "name": (),
    "depth": ("depth",),
    "in_flight": ("in_flight",),
    "deferred": ("deferred",),
    "buried": ("buried",),
    "messages": ("messages",),
    "channels": ("channels",),
    "clients": ("clients",),
    "oldest": ("oldest",),
    "rate_in": ("messages",),
    "rate_out": ("messages", "held", "channels"),
}
MOST_NAMES = 100  # names shown of paused topics and channels, or of channels without clients

Values = dict[str, int]  # by topic


@dataclass(slots=True)
class Overview(PartialResult):
    """The overview of some nodes together."""

    totals: Values = field(default_factory=lambda: dict.fromkeys(TOTALS, 0))
    oldest: int = 0  # ns since the epoch when the longest waiting message was published; 0: none, or unknown
    paused: set[str] = field(default_factory=set)  # "topic" or "topic/channel"; the first ones
    idle: set[str] = field(default_factory=set)  # "topic/channel" with messages and without clients; the first ones
    idle_count: int = 0  # number of such channels, at least
    unwell: dict[str, str] = field(default_factory=dict)  # by node: what is wrong with it, in the node's own words
    names: set[str] = field(default_factory=set)
    columns: dict[str, Values] = field(default_factory=dict)


def overview_of(data: Mapping[str, JsonObject], originals: Iterable[JsonObject], columns: tuple[str, ...]) -> Overview:
    """Return the overview of all nodes.

    `data` has /topics/figures of Penstock's nodes, by address; `originals` has topics of the others, in the form of
    admin.merge.
    """
    found = Overview(columns={column: {} for column in columns})
    for address, one in data.items():
        _add_node(found, address, one, columns)
    for topic in originals:
        _add_topic(found, topic, columns)
    return found


def _add_node(found: Overview, address: str, data: JsonObject, columns: tuple[str, ...]) -> None:
    totals = data.get("totals")
    if isinstance(totals, dict):
        for name in TOTALS:
            found.totals[name] += number(totals.get(name))
    found.oldest = older(found.oldest, number(data.get("oldest")))
    found.paused.update(_texts(data.get("paused"))[:MOST_NAMES])
    idle = data.get("idle")
    if isinstance(idle, dict):
        found.idle.update(_texts(idle.get("names"))[:MOST_NAMES])
        # Nodes have the same channels.
        found.idle_count = max(found.idle_count, number(idle.get("count")), len(found.idle))
    health = text(data.get("health")) or "OK"
    if health != "OK":
        found.unwell[address] = health[:200]
    names = _texts(data.get("names"))
    found.names.update(names)
    given = data.get("columns")
    for column in columns:
        values = given.get(column) if isinstance(given, dict) else None
        if isinstance(values, list) and len(values) == len(names):
            _add_column(found.columns[column], column, names, values)


def _add_column(sums: Values, column: str, names: list[str], values: list[object]) -> None:
    """Add a node's column to the sums of the nodes before."""
    numbers = [number(value) for value in values]
    if not sums:
        sums.update(zip(names, numbers, strict=True))
    elif column == "channels":
        sums.update((name, max(sums.get(name, 0), value)) for name, value in zip(names, numbers, strict=True))
    elif column == "oldest":
        sums.update((name, older(sums.get(name, 0), value)) for name, value in zip(names, numbers, strict=True))
    else:
        sums.update((name, sums.get(name, 0) + value) for name, value in zip(names, numbers, strict=True))


def _add_topic(found: Overview, topic: JsonObject, columns: tuple[str, ...]) -> None:
    row = topic_row(topic["topic_name"], [topic])
    found.names.add(row.name)
    for name in TOTALS:
        found.totals[name] += getattr(row, name)
    if topic["paused"]:
        found.paused.add(row.name)
    for channel in topic["channels"] or ():
        name = f"{row.name}/{channel['channel_name']}"
        if channel["paused"]:
            found.paused.add(name)
        if channel["depth"] and not channel["client_count"]:
            found.idle.add(name)
            found.idle_count = max(found.idle_count, len(found.idle))
    for column in columns:
        _add_column(found.columns[column], column, [row.name], [getattr(row, column)])


def older(one: int, other: int) -> int:
    """Return the earlier of two times, where 0 means none."""
    return min(one, other) if one and other else one or other


def ordered(
    names: Iterable[str], now: Overview, before: Overview | None, seconds: float, having: str, sort: str
) -> list[str]:
    """Return the names that contain `having`: the largest value first, or the oldest first, or by name."""
    wanted = having.lower()
    chosen = sorted(name for name in names if wanted in name.lower())
    ranks = _ranks(now, before, seconds, sort)
    return sorted(chosen, key=lambda name: -ranks.get(name, 0.0)) if ranks else chosen


def rates(now: Overview, before: Overview | None, seconds: float, sort: str) -> Mapping[str, float]:
    """Return the rates per second by topic, if the topics are sorted by rate; empty if they are unknown."""
    if sort not in ("rate_in", "rate_out") or seconds <= 0:
        return {}
    return {name: value / seconds for name, value in _ranks(now, before, seconds, sort).items()}


def in_order(rows: list[Row], sort: str) -> list[Row]:
    """Sort rows, which are nearly in order, as `ordered` sorts names."""
    if sort == "name":
        return rows
    if sort == "oldest":
        return sorted(rows, key=lambda row: row.oldest or 1 << 63)
    return sorted(rows, key=lambda row: -(getattr(row, sort) or 0))


def _ranks(now: Overview, before: Overview | None, seconds: float, sort: str) -> Mapping[str, float]:
    if sort in ("rate_in", "rate_out"):
        if before is None or seconds <= 0 or not all(column in before.columns for column in COLUMNS[sort]):
            return {}
        came = _gained(now, before, "messages")
        if sort == "rate_in":
            return came
        held, channels = _gained(now, before, "held"), now.columns["channels"]
        return {name: came[name] * max(1, channels.get(name, 1)) - held.get(name, 0) for name in came}
    values = now.columns.get(sort, {})
    return {name: -value if value else -(1 << 63) for name, value in values.items()} if sort == "oldest" else values


def _gained(now: Overview, before: Overview, column: str) -> Values:
    known = before.columns[column]
    return {name: value - known.get(name, value) for name, value in now.columns[column].items()}


def rows_of(data: Iterable[JsonObject], originals: Iterable[Row]) -> dict[str, Row]:
    """Return rows by name, merged over nodes. `data` has the "topics" of /topics/rows, `originals` rows of other nodes."""
    found: dict[str, Row] = {}
    rows = [*(_row(one) for one in data), *originals]
    for row in rows:
        known = found.get(row.name)
        found[row.name] = row if known is None else _together(known, row)
    return found


def _row(data: JsonObject) -> Row:
    counts = (number(data.get(name)) for name in Row.COUNTS)
    return Row(text(data.get("topic_name")), data.get("paused") is True, *counts)


def _together(one: Row, other: Row) -> Row:
    counts = [getattr(one, name) + getattr(other, name) for name in Row.COUNTS]
    counts[Row.COUNTS.index("channels")] = max(one.channels, other.channels)
    counts[Row.COUNTS.index("oldest")] = older(one.oldest, other.oldest)
    return Row(one.name, one.paused or other.paused, *counts)


def _texts(value: object) -> list[str]:
    return [text(one) for one in value] if isinstance(value, list) else []

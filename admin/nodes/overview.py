"""All topics of all nodes, as far as an overview needs them: sums, names, and the columns to sort by. Pure.

This is how ten thousand topics on ten nodes are listed: every node returns names and the column of the order, which are
sorted and cut into pages here; then only the rows of one page are requested.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from admin.nodes.backlogs import UNKNOWN_DRAIN, PartBacklog, add_backlogs, rank_of, slower, slowest
from admin.nodes.cluster import PartialResult
from admin.nodes.merge import fields, items, texts
from admin.nodes.sorting import arranged
from admin.nodes.views import Row, absent_row, drain_rank, topic_row, with_rates
from shared.json_fields import JsonObject, all_texts, number, numbers, text

TOTALS = ("channels", "depth", "in_flight", "deferred", "buried", "clients", "messages")
_NEEDED: dict[str, tuple[str, ...]] = {  # the columns that an order needs, unless it is the column of its name
    "name": (),
    "rate_in": ("messages",),
    "rate_out": ("messages", "held", "buried", "channels"),
    "drain": ("depth", "held", "drain"),
}
RATES = {"rate_in": "rate_in", "rate_out": "rate_out", "drain": "gain"}  # the attribute of a row, by order
_COUNTS = ("messages", "held", "buried")  # that the rates of a row are made of
MOST_NAMES = 100  # names shown of paused topics and channels

Values = dict[str, int]  # by topic


def columns_for(order: str) -> tuple[str, ...]:
    """Return the columns to ask nodes for, to list topics in an order: see nsqd/http/overview.py."""
    return _NEEDED.get(order, (order,))


@dataclass(slots=True)
class Overview(PartialResult):
    """The overview of some nodes together."""

    totals: Values = field(default_factory=lambda: dict.fromkeys(TOTALS, 0))
    at: int = 0  # ns since the epoch when the nodes were asked; 0: unknown
    oldest: int = 0  # ns since the epoch when the longest waiting message was published; 0: none, or unknown
    paused: set[str] = field(default_factory=set)  # "topic" or "topic/channel"; the first ones
    names: set[str] = field(default_factory=set)
    answered: set[str] = field(default_factory=set)  # addresses of the nodes whose counts are in here
    columns: dict[str, Values] = field(default_factory=dict)


class Rows(dict[str, Row]):
    """Rows of topics by name, and the nodes that they are from."""

    answered: frozenset[str] = frozenset()  # addresses
    # By address: the _COUNTS of each topic that was asked for, in the order of the names. Without them there are no rates if
    # other nodes answered before.
    counts: dict[str, array[float]]

    def __init__(self) -> None:
        super().__init__()
        self.counts = {}


def overview_of(data: Mapping[str, JsonObject], originals: Iterable[JsonObject], columns: tuple[str, ...]) -> Overview:
    """Return the overview of all nodes.

    `data` has /topics/figures of Penstock's nodes, by address; `originals` has topics of the others, in the form of
    admin.nodes.merge.
    """
    found = Overview(columns={column: {} for column in columns}, answered=set(data))
    for one in data.values():
        _add_node(found, one, columns)
    for topic in originals:
        _add_topic(found, topic, columns)
    return found


def _add_node(found: Overview, data: JsonObject, columns: tuple[str, ...]) -> None:
    totals, given = fields(data.get("totals")), fields(data.get("columns"))
    for name in TOTALS:
        found.totals[name] += number(totals.get(name))
    found.oldest = older(found.oldest, number(data.get("oldest")))
    found.paused.update(texts(data.get("paused"))[:MOST_NAMES])
    names = all_texts(items(data.get("names")))
    found.names.update(names)
    for column in columns:
        values = items(given.get(column))
        if len(values) == len(names):
            _add_column(found.columns[column], column, names, values)


def _add_column(sums: Values, column: str, names: list[str], values: list[object]) -> None:
    """Add a node's column to the sums of the nodes before."""
    merges: dict[str, Callable[[int, int], int]] = {"channels": max, "drain": slower, "oldest": older}
    merge, counts = merges.get(column, int.__add__), numbers(values)
    if list(sums) == names:  # nodes usually have the same topics: no step in Python for each
        sums.update(zip(names, list(map(merge, sums.values(), counts)), strict=True))
        return
    for name, value in zip(names, counts, strict=True):
        sums[name] = merge(sums[name], value) if name in sums else value


def _add_topic(found: Overview, topic: JsonObject, columns: tuple[str, ...]) -> None:
    row = topic_row(topic["topic_name"], [topic])
    found.names.add(row.name)
    found.answered.add(topic["node"])
    for name in TOTALS:
        found.totals[name] += getattr(row, name)
    if topic["paused"]:
        found.paused.add(row.name)
    found.paused.update(f"{row.name}/{one['channel_name']}" for one in topic["channels"] or () if one["paused"])
    for column in columns:
        value = getattr(row, column) if column != "drain" else UNKNOWN_DRAIN
        _add_column(found.columns[column], column, [row.name], [value])


def older(one: int, other: int) -> int:
    """Return the earlier of two times, where 0 means none."""
    return min(one, other) if one and other else one or other


def ordered(
    names: Iterable[str], now: Overview, before: Overview | None, seconds: float, having: str, sort: str,
    is_descending: bool = True,
) -> list[str]:  # fmt: skip
    """Return the names that contain `having`, in that order: by value, equal ones by name, unknown ones last."""
    wanted = having.lower()
    chosen = sorted(name for name in names if wanted in name.lower())
    if sort == "name":
        return chosen[::-1] if is_descending else chosen
    return arranged(chosen, _ranks(now, before, seconds, sort).get, is_descending)


def rates(now: Overview, before: Overview | None, seconds: float, sort: str) -> Mapping[str, float]:
    """Return the value of RATES[sort] by topic, per second; empty if the order is another one, or if they are unknown."""
    if sort not in RATES or before is None or not _is_comparable(now, before, seconds, sort):
        return {}
    if sort == "drain":
        return {name: -value / seconds for name, value in _gained(now, before, "held").items()}
    return _ranks(now, before, seconds, sort)


def _is_comparable(now: Overview, before: Overview, seconds: float, sort: str) -> bool:
    """Return whether rates can be computed: the same nodes answered both times, with the columns that are needed."""
    if seconds <= 0 or now.answered != before.answered:
        return False
    return all(column in before.columns and column in now.columns for column in columns_for(sort) if column != "drain")


def _ranks(now: Overview, before: Overview | None, seconds: float, sort: str) -> Mapping[str, float]:
    """Return the values by which topics are sorted, where they are known."""
    if sort == "drain":
        gains, drains = rates(now, before, seconds, sort), now.columns.get("drain", {})
        ranks = dict[str, float]()
        for name, depth in now.columns.get("depth", {}).items():
            rank = rank_of(drains.get(name, UNKNOWN_DRAIN))
            rank = drain_rank(depth, gains.get(name)) if rank is None else rank
            if rank is not None:
                ranks[name] = rank
        return ranks
    if sort in RATES:
        if before is None or not _is_comparable(now, before, seconds, sort):
            return {}
        came = {name: float(value) for name, value in _gained(now, before, "messages").items()}
        if sort == "rate_out":
            came = {name: _finished(name, value, now, before) for name, value in came.items()}
        return {name: value / seconds for name, value in came.items()}
    values = now.columns.get(sort, {})
    return {name: -value for name, value in values.items() if value} if sort == "oldest" else values


def _finished(name: str, came: float, now: Overview, before: Overview) -> float:
    """Return the number of messages that left, mean over the topic's channels. Buried ones are still there."""
    held = 0
    for column in ("held", "buried"):
        value = now.columns[column].get(name, 0)
        held += value - before.columns[column].get(name, value)
    return max(0.0, came - held / max(1, now.columns["channels"].get(name, 1)))


def _gained(now: Overview, before: Overview, column: str) -> Values:
    known = before.columns[column]
    return {name: value - known.get(name, value) for name, value in now.columns[column].items()}


def rows_of(data: Iterable[JsonObject], originals: Iterable[Row], backlogs: Iterable[JsonObject] = ()) -> Rows:
    """Return rows by name, merged over nodes. `data` has the "topics" of /topics/rows, `originals` rows of other nodes.

    `backlogs` are objects with `topic_name` and `backlogs` of the other nodes.
    """
    found, parts = Rows(), dict[str, dict[str, PartBacklog]]()
    listed = list(data)
    for one in (*listed, *backlogs):
        add_backlogs(parts.setdefault(text(one.get("topic_name")), {}), one.get("backlogs"))
    for row in (*map(_row, listed), *originals):
        known = found.get(row.name)
        found[row.name] = row if known is None else _together(known, row)
    for name, channels in parts.items():
        if (worst := slowest(channels.values())) is not None:
            found[name] = replace(found[name], slowest=worst.depth, gain=worst.gain)
    return found


def rated(names: Sequence[str], now: Rows, before: Rows | None, seconds: float) -> list[Row]:
    """Return the rows of these topics, with rates if all nodes that answer now have answered `seconds` before, too.

    The topics must be those that both were asked for.
    """
    rows = [now.get(name) or absent_row(name) for name in names]
    if before is None or not now.answered or not now.answered <= before.answered:
        return rows
    if now.answered == before.answered:
        return [with_rates(row, before.get(row.name), seconds) for row in rows]
    then, later = (_sums(sorted(names), one.counts, now.answered) for one in (before, now))
    return [_with_rates_of(row, later.get(row.name), then.get(row.name), seconds) for row in rows]


def node_counts(names: Iterable[str], rows: Iterable[JsonObject]) -> array[float]:
    """Return the counts of Rows for one node. `rows`: the node's answer of /topics/rows."""
    places = {name: len(_COUNTS) * place for place, name in enumerate(sorted(names))}
    counts = array("d", bytes(8 * len(_COUNTS) * len(places)))
    for row in rows:
        place = places.get(text(row.get("topic_name")))
        if place is not None:
            counts[place : place + len(_COUNTS)] = array("d", (number(row.get(name)) for name in _COUNTS))
    return counts


def counts_row(row: Row) -> JsonObject:
    """Return the row of an original node in the form that `node_counts` takes."""
    return {"topic_name": row.name, "messages": row.messages, "held": row.held, "buried": row.buried}


def _sums(names: Sequence[str], counts: Mapping[str, array[float]], nodes: Iterable[str]) -> dict[str, Row]:
    """Return rows of the topics with the counts of these nodes only; none if they are not known of each of them."""
    parts = [counts.get(node) for node in nodes]
    sums = [sum(column) for column in zip(*(one for one in parts if one is not None), strict=True)]
    if None in parts or len(sums) != len(_COUNTS) * len(names):
        return {}
    columns = (map(int, sums[place :: len(_COUNTS)]) for place in range(len(_COUNTS)))
    return {
        name: replace(absent_row(name), messages=messages, depth=held, buried=buried)
        for name, messages, held, buried in zip(names, *columns, strict=True)
    }


def _with_rates_of(row: Row, now: Row | None, before: Row | None, seconds: float) -> Row:
    """Return the row with the rates between two rows of fewer nodes. A `gain` over a longer time, if it is known, stays."""
    if now is None:
        return row
    one = with_rates(replace(now, channels=row.channels, gain=row.gain), before, seconds)
    return replace(row, rate_in=one.rate_in, rate_out=one.rate_out, gain=one.gain)


def _row(data: JsonObject) -> Row:
    counts = {name: number(data.get(name)) for name in (*Row.COUNTS, "paused_channels")}
    return Row(text(data.get("topic_name")), data.get("topic_paused") is True, **counts)


def _together(one: Row, other: Row) -> Row:
    counts = {name: getattr(one, name) + getattr(other, name) for name in Row.COUNTS}
    for name in ("channels", "paused_channels"):  # nodes have the same channels
        counts[name] = max(getattr(one, name), getattr(other, name))
    counts["oldest"] = older(one.oldest, other.oldest)
    return Row(one.name, one.paused or other.paused, **counts)

"""All topics of all nodes, as far as an overview needs them: sums, names, and the columns to sort by. Pure.

This is how ten thousand topics on ten nodes are listed: every node returns names and the column of the order, which are
sorted and cut into pages here; then only the rows of one page are requested.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from admin.nodes.backlogs import UNKNOWN_DRAIN, Backlog, add_backlogs, rank_of, slower, slowest
from admin.nodes.cluster import PartialResult
from admin.nodes.sorting import arranged
from admin.nodes.views import Row, absent_row, drain_rank, topic_row, with_rates
from shared.json_fields import JsonObject, number, text

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
    "requeued": ("requeued",),
    "timed_out": ("timed_out",),
    "oldest": ("oldest",),
    "rate_in": ("messages",),
    "rate_out": ("messages", "held", "buried", "channels"),
    "drain": ("depth", "held", "drain"),
}
RATES = {"rate_in": "rate_in", "rate_out": "rate_out", "drain": "gain"}  # the attribute of a row, by order
_COUNTS = ("messages", "held", "buried")  # that the rates of a row are made of
MOST_NAMES = 100  # names shown of paused topics and channels

Values = dict[str, int]  # by topic


@dataclass(slots=True)
class Overview(PartialResult):
    """The overview of some nodes together."""

    totals: Values = field(default_factory=lambda: dict.fromkeys(TOTALS, 0))
    oldest: int = 0  # ns since the epoch when the longest waiting message was published; 0: none, or unknown
    paused: set[str] = field(default_factory=set)  # "topic" or "topic/channel"; the first ones
    names: set[str] = field(default_factory=set)
    answered: set[str] = field(default_factory=set)  # addresses of the nodes whose figures are in here
    columns: dict[str, Values] = field(default_factory=dict)


class Rows(dict[str, Row]):
    """Rows of topics by name, and which nodes they are of."""

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
    totals = data.get("totals")
    if isinstance(totals, dict):
        for name in TOTALS:
            found.totals[name] += number(totals.get(name))
    found.oldest = older(found.oldest, number(data.get("oldest")))
    found.paused.update(_texts(data.get("paused"))[:MOST_NAMES])
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
    elif column == "drain":
        sums.update((name, slower(sums.get(name, value), value)) for name, value in zip(names, numbers, strict=True))
    elif column == "oldest":
        sums.update((name, older(sums.get(name, 0), value)) for name, value in zip(names, numbers, strict=True))
    else:
        sums.update((name, sums.get(name, 0) + value) for name, value in zip(names, numbers, strict=True))


def _add_topic(found: Overview, topic: JsonObject, columns: tuple[str, ...]) -> None:
    row = topic_row(topic["topic_name"], [topic])
    found.names.add(row.name)
    found.answered.add(topic["node"])
    for name in TOTALS:
        found.totals[name] += getattr(row, name)
    if topic["paused"]:
        found.paused.add(row.name)
    for channel in topic["channels"] or ():
        name = f"{row.name}/{channel['channel_name']}"
        if channel["paused"]:
            found.paused.add(name)
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
    gain = sort == "drain"
    if sort not in RATES or not _is_comparable(now, before, seconds, sort) or before is None:
        return {}
    if gain:
        return {name: -value / seconds for name, value in _gained(now, before, "held").items()}
    return _ranks(now, before, seconds, sort)


def _is_comparable(now: Overview, before: Overview | None, seconds: float, sort: str) -> bool:
    """Return whether rates can be computed: the same nodes answered both times, with the columns that are needed."""
    if before is None or seconds <= 0 or now.answered != before.answered:
        return False
    return all(column in before.columns and column in now.columns for column in COLUMNS[sort] if column != "drain")


def _ranks(now: Overview, before: Overview | None, seconds: float, sort: str) -> Mapping[str, float]:
    """Return what topics are sorted by, as far as it is known."""
    if sort == "drain":
        gains = rates(now, before, seconds, sort)
        depths, told = now.columns.get("depth", {}), now.columns.get("drain", {})
        ranks = {name: rank_of(told.get(name, UNKNOWN_DRAIN)) for name in depths}
        for name, depth in depths.items():
            if ranks[name] is None:
                ranks[name] = drain_rank(depth, gains.get(name))
        return {name: rank for name, rank in ranks.items() if rank is not None}
    if sort in RATES:
        if not _is_comparable(now, before, seconds, sort) or before is None:
            return {}
        came = {name: float(value) for name, value in _gained(now, before, "messages").items()}
        if sort == "rate_out":
            came = {name: _finished(name, value, now, before) for name, value in came.items()}
        return {name: value / seconds for name, value in came.items()}
    values = now.columns.get(sort, {})
    return {name: -value for name, value in values.items() if value} if sort == "oldest" else values


def _finished(name: str, came: float, now: Overview, before: Overview) -> float:
    """Return how many messages left, mean over the topic's channels. Buried ones are still there."""
    channels = max(1, now.columns["channels"].get(name, 1))
    held = sum(
        now.columns[column].get(name, 0) - before.columns[column].get(name, now.columns[column].get(name, 0))
        for column in ("held", "buried")
    )
    return max(0.0, came - held / channels)


def _gained(now: Overview, before: Overview, column: str) -> Values:
    known = before.columns[column]
    return {name: value - known.get(name, value) for name, value in now.columns[column].items()}


def rows_of(data: Iterable[JsonObject], originals: Iterable[Row], backlogs: Iterable[JsonObject] = ()) -> Rows:
    """Return rows by name, merged over nodes. `data` has the "topics" of /topics/rows, `originals` rows of other nodes.

    `backlogs` are objects with `topic_name` and `backlogs` of the other nodes.
    """
    found, parts = Rows(), dict[str, dict[str, Backlog]]()
    told = list(data)
    for one in (*told, *backlogs):
        add_backlogs(parts.setdefault(text(one.get("topic_name")), {}), one.get("backlogs"))
    for row in (*(_row(one) for one in told), *originals):
        known = found.get(row.name)
        found[row.name] = row if known is None else _together(known, row)
    # nodes of earlier versions, which may have the slowest part, do not tell of it
    silent = {text(one.get("topic_name")) for one in told if not isinstance(one.get("backlogs"), list)}
    for name, channels in parts.items():
        worst = slowest(channels.values())
        if worst is not None and name not in silent:
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
    """Return the counts of Rows for one node. `rows`: those of /topics/rows that the node tells."""
    places = {name: len(_COUNTS) * place for place, name in enumerate(sorted(names))}
    counts = array("d", bytes(8 * len(_COUNTS) * len(places)))
    for row in rows:
        place = places.get(text(row.get("topic_name")))
        if place is not None:
            counts[place : place + len(_COUNTS)] = array("d", (number(row.get(name)) for name in _COUNTS))
    return counts


def counts_row(row: Row) -> JsonObject:
    """Return what `node_counts` needs of a row of an original node."""
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
    counts = (number(data.get(name)) for name in Row.COUNTS)
    # An nsqd of an earlier version tells only whether the topic is paused, or one of its channels.
    paused = data.get("topic_paused", data.get("paused")) is True
    row = Row(text(data.get("topic_name")), paused, *counts)
    return replace(row, paused_channels=number(data.get("paused_channels")))


def _together(one: Row, other: Row) -> Row:
    counts = [getattr(one, name) + getattr(other, name) for name in Row.COUNTS]
    counts[Row.COUNTS.index("channels")] = max(one.channels, other.channels)
    counts[Row.COUNTS.index("oldest")] = older(one.oldest, other.oldest)
    paused_channels = max(one.paused_channels, other.paused_channels)  # nodes have the same channels
    return replace(Row(one.name, one.paused or other.paused, *counts), paused_channels=paused_channels)


def _texts(value: object) -> list[str]:
    return [text(one) for one in value] if isinstance(value, list) else []

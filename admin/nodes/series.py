"""The time series of a topic or a channel, summed over several nodes, including nodes that are gone.

A restarted node has no series of the time before, so nsqadmin keeps its *lives*: the series of each time that the node ran. A
life contributes to the sums from its first step to its last. A level is continued over a few steps that are missing, and no
further: another node may have promoted the messages, and reports them. Pure; nodes may lie.
"""

from __future__ import annotations

from collections.abc import Iterable

from shared.json_fields import JsonObject

LEVELS = ("depth", "in_flight", "buried", "deferred")
NAMES = (*LEVELS, "published", "finished", "requeued", "timed_out")
LENGTHS = {"hour": 3600, "day": 86_400}  # s of each span that nodes report
QUARTER = 900  # s of the shortest span
MOST_STEPS = 1000
MOST_LIVES = 8  # of one node that are kept
MOST_CARRIED = 3  # steps over which a level is continued
FARTHEST = 86_400  # s by which series that are summed may begin before or after the one in their middle

Lives = dict[str, list[JsonObject]]  # by the name of a span: valid series that do not overlap, the oldest first


def spans(nodes: Iterable[Lives]) -> JsonObject:
    """Return the sums of all spans of a topic or a channel, each None if nothing is known. `nodes`: the lives of each node."""
    every = list(nodes)
    found = {
        name: _last(summed(life for lives in every for life in lives.get(name, ())), seconds)
        for name, seconds in LENGTHS.items()
    }
    return {"quarter": _last(found["hour"], QUARTER), **found}


def recent(lives: Lives, now: int) -> Lives:
    """Return the lives within each span before `now`, s since the epoch."""
    return {
        name: [cut for one in lives.get(name, ()) if (cut := _between(one, now - seconds, _end(one))) is not None]
        for name, seconds in LENGTHS.items()
    }


def extended(known: Lives, answer: JsonObject) -> Lives:
    """Return the lives of a node with its answer of /topic/series."""
    return {name: _with(known.get(name, []), answer.get(name), seconds) for name, seconds in LENGTHS.items()}


def _with(lives: list[JsonObject], part: object, seconds: int) -> list[JsonObject]:
    """Return the lives of one span with a series that the node reports now, as far back as the span reaches."""
    latest = _valid_series(part)
    if latest is None:
        return lives
    first, step = latest["from"], latest["step"]
    before = [cut for one in lives if one["step"] == step and (cut := _between(one, 0, first)) is not None]
    if before and _end(before[-1]) == first:
        one = before.pop()
        latest = {"step": step, "from": one["from"]} | {name: one[name] + latest[name] for name in NAMES}
    oldest = _end(latest) - min(seconds, MOST_STEPS * step)
    kept = [cut for one in (*before, latest) if (cut := _between(one, oldest, _end(one))) is not None]
    return kept[-MOST_LIVES:]


def _end(series: JsonObject) -> int:
    """Return the time at which the last step ended, s since the epoch."""
    end: int = series["from"] + len(series["depth"]) * series["step"]
    return end


def _between(series: JsonObject, begin: int, end: int) -> JsonObject | None:
    """Return the steps that begin at `begin` or later and before `end`, s since the epoch; None if there are none."""
    step, first = series["step"], series["from"]
    low, high = max(0, -((first - begin) // step)), max(0, -((first - end) // step))
    lists = {name: series[name][low:high] for name in NAMES}
    return {"step": step, "from": first + low * step, **lists} if lists["depth"] else None


def _last(series: JsonObject | None, seconds: int) -> JsonObject | None:
    """Return the latest steps of a series, `seconds` together."""
    return series and _between(series, _end(series) - seconds // series["step"] * series["step"], _end(series))


def summed(parts: Iterable[object]) -> JsonObject | None:
    """Return {"step", "from", and a list for each of NAMES}: the sum at each step, None where no node has a value.

    Returns None if no node has a series. A node whose step differs from the first one's is left out.
    """
    data = [one for part in parts if (one := _valid_series(part)) is not None]
    if not data:
        return None
    step, middle = data[0]["step"], sorted(one["from"] for one in data)[len(data) // 2]
    data = [one for one in data if one["step"] == step and abs(one["from"] - middle) <= FARTHEST]
    if not data:
        return None
    first, end = min(one["from"] for one in data), max(map(_end, data))
    count = min(MOST_STEPS, (end - first) // step)
    sums: JsonObject = {"step": step, "from": end - count * step}
    for name in NAMES:
        values: list[int | None] = [None] * count
        for one in data:
            offset = (one["from"] - sums["from"]) // step
            for place, value in enumerate(_carried(one[name]) if name in LEVELS else one[name], offset):
                if value is not None and 0 <= place < count:
                    values[place] = (values[place] or 0) + value
        sums[name] = values
    return sums


def _carried(values: list[int | None]) -> list[int | None]:
    """Fill gaps of up to MOST_CARRIED steps in a level with the value before them.

    So the sum does not fall where a node recorded nothing in time.
    """
    carried, at = list(values), -MOST_CARRIED - 2
    for place, value in enumerate(values):
        if value is None:
            continue
        if place - at - 1 <= MOST_CARRIED:
            carried[at + 1 : place] = [values[at]] * (place - at - 1)
        at = place
    return carried


def _valid_series(part: object) -> JsonObject | None:
    if not isinstance(part, dict) or type(part.get("step")) is not int or type(part.get("from")) is not int:
        return None
    if not 0 < part["step"] <= 86_400 or part["from"] % part["step"] or not 0 <= part["from"] < 1 << 40:
        return None
    lists = {name: values if isinstance(values := part.get(name), list) else [] for name in NAMES}
    count = len(lists["depth"])
    if any(len(values) != count for values in lists.values()) or not 0 < count <= MOST_STEPS:
        return None
    sound = all(
        value is None or (type(value) is int and abs(value) < 1 << 63) for values in lists.values() for value in values
    )
    return {"step": part["step"], "from": part["from"], **lists} if sound else None

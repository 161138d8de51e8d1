"""The time series of a topic or a channel, summed over several nodes. Pure; nodes may lie."""

from __future__ import annotations

from collections.abc import Iterable

from admin.merge import JsonObject

OLD_NAMES = ("published", "finished", "depth", "in_flight")  # those that older nodes tell, too
NAMES = (*OLD_NAMES, "requeued", "timed_out", "buried", "deferred")
LEVELS = ("depth", "in_flight", "buried", "deferred")
MOST_STEPS = 1000
QUARTER = 900  # s of the shortest span


def spans(answers: Iterable[JsonObject], channel: str) -> JsonObject:
    """Return the sums of all spans of a topic, or of its channel if there is a name, each None if nothing is known.

    `answers` are those of /topic/series. A node that does not know channels answers for the topic, and is left out.
    """
    own = [one for one in answers if not channel or one.get("channel") == channel]
    hour = summed(one.get("hour") for one in own)
    return {"quarter": _last(hour, QUARTER), "hour": hour, "day": summed(one.get("day") for one in own)}


def _last(series: JsonObject | None, seconds: int) -> JsonObject | None:
    """Return the latest steps of a series, of so many seconds together."""
    if series is None:
        return None
    count = len(series["depth"])
    first = max(0, count - seconds // series["step"])
    lists = {name: series[name][first:] for name in NAMES}
    return {"step": series["step"], "from": series["from"] + first * series["step"], **lists}


def summed(parts: Iterable[object]) -> JsonObject | None:
    """Return {"step", "from", and a list for each of NAMES}: the sum at each step, None where no node has a value.

    Returns None if no node has a series. A node whose step differs from the first one's is left out. What no node tells of
    NAMES is None everywhere.
    """
    data = [one for part in parts if (one := _valid_series(part)) is not None]
    data = [one for one in data if one["step"] == data[0]["step"] and abs(one["from"] - data[0]["from"]) < 86_400]
    if not data:
        return None
    step = data[0]["step"]
    first = min(one["from"] for one in data)
    end = max(one["from"] + len(one["depth"]) * step for one in data)
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
    """Fill gaps in a level with the value before, so that the sum does not fall where a node recorded nothing in time."""
    last = max((place for place, value in enumerate(values) if value is not None), default=-1)
    known: int | None = None
    carried = []
    for value in values[: last + 1]:
        known = known if value is None else value
        carried.append(known)
    return carried


def _valid_series(part: object) -> JsonObject | None:
    if not isinstance(part, dict) or type(part.get("step")) is not int or type(part.get("from")) is not int:
        return None
    if not 0 < part["step"] <= 86_400 or part["from"] % part["step"] or not 0 <= part["from"] < 1 << 40:
        return None
    lists = {name: values if isinstance(values := part.get(name), list) else [] for name in NAMES}
    count = len(lists["depth"])
    lists |= {name: [None] * count for name in NAMES if name not in OLD_NAMES and name not in part}
    if any(len(values) != count for values in lists.values()) or not 0 < count <= MOST_STEPS:
        return None
    sound = all(
        value is None or (type(value) is int and abs(value) < 1 << 63) for values in lists.values() for value in values
    )
    return {"step": part["step"], "from": part["from"], **lists} if sound else None

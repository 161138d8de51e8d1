"""The time series of a topic, summed over several nodes. Pure; nodes may lie."""

from __future__ import annotations

from collections.abc import Iterable

from admin.merge import JsonObject

NAMES = ("published", "finished", "depth", "in_flight")
LEVELS = ("depth", "in_flight")
MOST_STEPS = 1000


def summed(parts: Iterable[object]) -> JsonObject | None:
    """Return {"step", "from", and a list for each of NAMES}: the sum at each step, None where no node has a value.

    Returns None if no node has a series. A node whose step differs from the first one's is left out.
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
    lists = [values if isinstance(values := part.get(name), list) else [] for name in NAMES]
    if len({len(values) for values in lists}) > 1 or not 0 < len(lists[0]) <= MOST_STEPS:
        return None
    sound = all(value is None or (type(value) is int and abs(value) < 1 << 63) for values in lists for value in values)
    return part if sound else None

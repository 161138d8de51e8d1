"""What nodes report of their disks and logs, and the progress of a drain, in words. Pure; nodes may lie."""

from __future__ import annotations

from collections.abc import Iterable

from admin.users.roles import Who
from shared.json_fields import JsonObject, number, objects, text

MOST_FILES, MOST_TOPICS = 200, 100  # of a node: nsqd reports no more
MOST_PROMOTED = 100  # logs of a node
_NUMBERS = (
    "log_bytes", "live_bytes", "segments", "memory_bytes", "unsynced_bytes", "checkpoints", "damage", "torn", "retries",
    "syncs", "disk_free", "disk_total",
)  # fmt: skip
_FRACTIONS = ("replay_seconds", "sync_p50_ms", "sync_p99_ms")
_FILE = ("number", "bytes", "live_bytes")
_PROMOTED = ("node", "log_bytes", "live_bytes", "segments", "memory_bytes", "damage")
_TOPIC = {"live_bytes", "messages", "retained"}


def storage_view(data: JsonObject, who: Who) -> JsonObject:
    """Return a node's storage as the page shows it, with the topics that the user sees."""
    view: JsonObject = _numbers(data, _NUMBERS) | {name: _fraction(data.get(name)) for name in _FRACTIONS}
    view |= {"path": text(data.get("path")), "refusal": text(data.get("refusal"))[:200]}
    view["live_share"] = share(view["live_bytes"], view["log_bytes"])
    view["disk_share"] = share(view["disk_free"], view["disk_total"])
    files = [_numbers(one, _FILE) for one in objects(data.get("files"))[:MOST_FILES]]
    view["files"] = [one | {"live_share": share(one["live_bytes"], one["bytes"])} for one in files]
    view["promoted"] = [
        {"log": text(one.get("log"))[:32]} | _numbers(one, _PROMOTED)
        for one in objects(data.get("promoted"))[:MOST_PROMOTED]
    ]
    view["topics"] = [
        {"topic": text(one.get("topic"))} | _numbers(one, _TOPIC & one.keys())
        for one in objects(data.get("topics"))[:MOST_TOPICS]
        if who.sees(text(one.get("topic")))
    ]
    return view


def drain_view(data: JsonObject) -> JsonObject:
    """Return the progress of a node's drain."""
    names = ("since", "depth", "in_flight", "deferred", "buried", "jobs", "schedules", "batches")
    return _numbers(data, names) | {name: data.get(name) is True for name in ("draining", "done")}


def _numbers(data: JsonObject, names: Iterable[str]) -> JsonObject:
    return {name: number(data.get(name)) for name in names}


def share(part: int, whole: int) -> float:
    """Return `part` in percent of `whole`; 100 if `whole` is 0."""
    return 100.0 * part / whole if whole > 0 else 100.0


def _fraction(value: object) -> float:
    return float(value) if isinstance(value, int | float) and abs(value) < 1e15 else 0.0

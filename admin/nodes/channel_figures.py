"""Statistics of a channel for its page: rates between two answers, the failure share, clients, and pauses. Pure.

A message counts as finished when it is no longer ready, in flight, deferred or buried: burying is not finishing, and emptying
is. A restarted node counts from 0 and has no rates until the next answer. The rates of the channel are known only if all nodes
that answer have answered before; until then the latest step of the series stands for them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass
from math import inf

from admin.nodes.merge import fields
from admin.nodes.views import UNKNOWN
from shared.json_fields import JsonObject

MOST_BEHIND = 60  # s by which the latest step may be in the past
SHARE_SECONDS = 300  # s of the latest steps over which the failure share is taken
_HELD = ("depth", "in_flight_count", "deferred_count")
_GROWING = ("message_count", "requeue_count", "timeout_count")  # counters; lower than before: the node was restarted


@dataclass(frozen=True, slots=True)
class Rates:
    """Messages per second, of one node or of all. None: not known."""

    published: float | None = None  # that came to the channel
    finished: float | None = None
    requeued: float | None = None
    timed_out: float | None = None
    gain: float | None = None  # decrease of the messages that are ready, in flight or deferred


UNKNOWN_RATES = Rates()


def rates_of(now: JsonObject, before: JsonObject | None, seconds: float) -> Rates:
    """Return the rates of a channel on one node, in the form of `merge`, between two answers that are `seconds` apart.

    With `topic_messages` and `topic_depth` in both, published is limited to the topic's messages: the channel also counts
    those of a log that the node promotes.
    """
    if before is None or seconds <= 0 or any(now[name] < before[name] for name in _GROWING):
        return UNKNOWN_RATES
    gained = {name: now[name] - before[name] for name in _GROWING}
    held = sum(now[name] - before[name] for name in _HELD)
    buried = now.get("buried_count", 0) - before.get("buried_count", 0)
    return Rates(
        min(gained["message_count"], _from_topic(now, before)) / seconds,
        max(0, gained["message_count"] - held - buried) / seconds,
        gained["requeue_count"] / seconds,
        gained["timeout_count"] / seconds,
        -held / seconds,
    )


def _from_topic(now: JsonObject, before: JsonObject) -> float:
    """Return the most messages that the topic gave to its channels between two answers; infinity if unknown."""
    if "topic_messages" not in now or "topic_messages" not in before:
        return inf
    came: int = now["topic_messages"] - before["topic_messages"]
    return float(max(0, came + max(0, before["topic_depth"] - now["topic_depth"])))


def rates_by_node(
    now: Iterable[JsonObject], before: Iterable[JsonObject], seconds: float
) -> tuple[dict[str, Rates], Rates]:
    """Return the rates of each node by its address, and those of all together, unknown unless each of them answered before."""
    known = {one["node"]: one for one in before}
    rates = {one["node"]: rates_of(one, known.get(one["node"]), seconds) for one in now}
    if not rates or not rates.keys() <= known.keys():
        return rates, UNKNOWN_RATES
    columns = zip(*map(astuple, rates.values()), strict=True)
    return rates, Rates(*(None if None in column else sum(column) for column in columns))


def current(series: JsonObject | None, now: int) -> JsonObject | None:
    """Return the series if it reaches `now` (s since the epoch), or None."""
    if series is None or series["from"] + len(series["depth"]) * series["step"] < now - MOST_BEHIND:
        return None
    return series


def latest_rates(series: JsonObject | None) -> Rates:
    """Return the rates of the latest step that is known. `series`: an hour as `series` has it; None: not known."""
    if series is None:
        return UNKNOWN_RATES
    names = ("published", "finished", "requeued", "timed_out")
    for values in zip(*(reversed(series[name]) for name in names), strict=True):
        if None not in values:
            return Rates(*(value / series["step"] for value in values))
    return UNKNOWN_RATES


def share(failed: int, deliveries: int) -> str:
    """Return a share in percent as text; - if there was no delivery."""
    if deliveries <= 0:
        return UNKNOWN
    percent = failed / deliveries * 100
    return f"{percent:.1f} %" if 0 < percent < 10 else f"{percent:.0f} %"


def failures_of(series: JsonObject | None) -> tuple[int, int] | None:
    """Return the number of deliveries that failed in the latest SHARE_SECONDS, and that ended in any way; None if unknown.

    `series`: an hour in the form of admin.nodes.series. A delivery after which nsqd buries the message is one of the failed.
    """
    if series is None:
        return None
    steps = max(1, SHARE_SECONDS // series["step"])
    finished, requeued, timed_out = (
        [value for value in series[name][-steps:] if value is not None]
        for name in ("finished", "requeued", "timed_out")
    )
    if not finished or not requeued:
        return None
    failed = sum(requeued) + sum(timed_out)
    return failed, failed + sum(finished)


def client_shares(client: JsonObject) -> dict[str, str]:
    """Return shares in percent as text: of requeues among a client's responses, and of what it has in flight in its RDY."""
    return {
        "failure_share": share(client["requeue_count"], client["requeue_count"] + client["finish_count"]),
        "saturation": share(client["in_flight_count"], client["ready_count"]),
    }


def pauses_of(pauses: Sequence[JsonObject], topic: str, channel: str) -> list[JsonObject]:
    """Return the pauses, in the form of Queries.pauses, that hold messages of the channel back: its own and the topic's."""
    return [one for one in pauses if one["name"] in (f"{topic}/{channel}", topic)]


def oldest_of(ages: Mapping[str, JsonObject], channel: str) -> dict[str, int]:
    """Return by node the publish time of the longest waiting message, ns since the epoch. `ages`: responses of /topic/ages."""
    found: dict[str, int] = {}
    for node, answer in ages.items():
        then = fields(answer.get("channels")).get(channel)
        found[node] = then if type(then) is int and 0 < then < 1 << 63 else 0
    return found

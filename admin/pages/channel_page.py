"""The page of one channel, which an operator opens first when something is broken, and its series.

State comes first (a line of figures), then charts, then the channel on each node, then its clients. What original nodes do not
tell (buried messages, ages, series, messages) is left out.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from starlette.requests import Request
from starlette.responses import Response

from admin.nodes.channel_figures import (
    UNKNOWN_RATES,
    Rates,
    client_share,
    current,
    drain_words,
    failures_of,
    latest_rates,
    oldest_of,
    pauses_of,
    rates_by_node,
    share,
)
from admin.nodes.cluster import Producer, Stats
from admin.nodes.merge import merged_channel
from admin.nodes.queries import SELDOM
from admin.nodes.series_past import summed_up
from admin.nodes.views import count, left_out, rate
from admin.output.layout import Fields, parameters
from admin.output.site import Site
from admin.output.tables import CHANNEL_NODES, CLIENTS, OF_PENSTOCK
from shared.http.api import json_response, query
from shared.http.errors import HttpError
from shared.json_fields import JsonObject
from shared.values import SECOND

MOST_CLIENTS = 2000  # clients of one page
STATES = (
    ("ready", "depth"),
    ("in_flight", "in_flight_count"),
    ("deferred", "deferred_count"),
    ("buried", "buried_count"),
)
Figure = tuple[str, str, bool]  # label, value, and whether it is a sign of trouble


@dataclass(frozen=True, slots=True)
class NodeRow:
    """The channel on one node, or on all of them."""

    node: str  # address; "": all nodes
    channel: JsonObject
    rates: Rates
    oldest: int  # ns since the epoch; 0: no message waits, or unknown
    is_penstock: bool  # it tells what is buried and since when messages wait


@dataclass(slots=True)
class ChannelPage:
    """The view of a channel. It returns the fields of its template."""

    site: Site

    async def channel(self, request: Request) -> Fields:
        """Return the fields of the page of a channel. Raises HttpError if no node has it: 404, or 502 if one may have it."""
        _, topic, name = parameters(request, self.site.options, 3)
        producers, errors, cached = await self.site.queries.topic(topic, name, clients=True)
        parts = _parts(cached.now, name)
        if not parts:
            raise self._absent(topic, name)
        rates, total_rates = rates_by_node(parts, _parts(cached.before, name), cached.seconds)
        merged = merged_channel(topic, name, parts)
        penstock_nodes = await self.site.queries.penstock_nodes(producers)
        ages = await self.site.queries.ask_nodes(penstock_nodes, "/topic/ages", {"topic": topic})
        oldest = oldest_of(ages.answers, name)
        rows = _node_rows(merged["nodes"], rates, oldest, {one.address for one in penstock_nodes})
        total = NodeRow("", merged, total_rates, min(filter(None, oldest.values()), default=0), bool(penstock_nodes))
        hour = await self._hour(penstock_nodes, topic, name)
        gain = (await self.site.queries.gains(producers, topic, cached.now)).get(name)
        known = hour if len(penstock_nodes) == len(producers) else None  # original nodes have no series
        total = replace(total, rates=_rates(total_rates, known, gain))
        asked = query(request)
        clients = CLIENTS.sorted(merged["clients"] or [], asked)
        return {
            "page_of": "channel",
            "title": f"Channel {name}",
            "nav_path": "",
            "topic_name": topic,
            "name": name,
            "figures": _figures(total, _failure_share(hour)),
            "oldest": total.oldest,
            "rows": [*CHANNEL_NODES.sorted(rows, asked), total],
            "node_heads": [one for one in CHANNEL_NODES.heads(asked) if penstock_nodes or one.key not in OF_PENSTOCK],
            "client_heads": CLIENTS.heads(asked),
            "states": _states(rows),
            "clients": [one | {"failure_share": client_share(one)} for one in clients[:MOST_CLIENTS]],
            "errors": [*errors, *left_out(clients, MOST_CLIENTS, "clients")],
            "is_paused": merged["paused"],
            "coverage": self.site.queries.coverage(topic),
            "missing": self.site.queries.missing_past(topic, name),
            "paused_on": sum(one["paused"] for one in parts),
            "pauses": pauses_of(await self.site.queries.pauses(), topic, name),
            "timed": len(penstock_nodes) == len(producers),
            "charted": bool(penstock_nodes),
            "extended": bool(penstock_nodes),
            "table": [{key: one[key] for key in one if not isinstance(one[key], dict | list)} for one in clients],
        }

    def _absent(self, topic: str, name: str) -> HttpError:
        """Return the error of a channel that no node which answers has."""
        down = [one.address for one in self.site.queries.down() if one.producer.carries(topic)]
        if not down:
            return HttpError(404, f"Topic {topic} has no channel {name}.")
        return HttpError(
            502, f"No node that answers has channel {name}. Nodes with topic {topic} are down: {', '.join(down[:5])}."
        )

    async def series(self, request: Request) -> Response:
        """Answer the recent series of a topic or a channel, summed over all nodes.

        See admin.nodes.series for the form; `missing` is that of SeriesPast.missing.
        """
        _, topic, *channels = parameters(request, self.site.options)
        channel = channels[0] if channels else ""
        producers = (await self.site.queries.producers_of(topic)).producers
        found = await self._spans(await self.site.queries.penstock_nodes(producers), topic, channel)
        return json_response(found | {"missing": self.site.queries.missing_past(topic, channel)})

    async def _hour(self, penstock_nodes: list[Producer], topic: str, name: str) -> JsonObject | None:
        """Return the series of the last hour, if it goes on up to now."""
        hour = (await self._spans(penstock_nodes, topic, name))["hour"] if penstock_nodes else None
        return current(hour, self.site.queries.clock() // SECOND)

    async def _spans(self, penstock_nodes: list[Producer], topic: str, channel: str) -> JsonObject:
        """Return all spans of the series. They are summed once in SELDOM s, however many pages show them."""
        asked = {"topic": topic} | ({"channel": channel} if channel else {})
        past = self.site.queries.past

        async def question() -> JsonObject:
            gathered = await self.site.queries.ask_nodes(penstock_nodes, "/topic/series", asked, SELDOM)
            silent, now = self.site.queries.fallback.stale(), self.site.queries.clock() // SECOND
            answers = {address: one for address, one in gathered.answers.items() if address not in silent}
            kept = past.find(topic, channel)
            found, kept = await self.site.queries.direct.answer_budget.run_in_thread(
                gathered.memory + kept.memory, lambda: summed_up(kept, answers, now)
            )
            past.keep(topic, channel, kept)
            return found

        return (await self.site.queries.cache.get(("spans", topic, channel), question, SELDOM)).now


def _parts(stats: Stats | None, name: str) -> list[JsonObject]:
    """Return the channel on each node that answered, with the counts of its topic there."""
    topics = stats.topics if stats is not None else ()
    return [
        one | {"topic_messages": node["message_count"], "topic_depth": node["depth"]}
        for node in topics
        for one in node["channels"] or ()
        if one["channel_name"] == name
    ]


def _node_rows(
    nodes: Iterable[JsonObject], rates: Mapping[str, Rates], oldest: Mapping[str, int], browsable: Collection[str]
) -> list[NodeRow]:
    return [
        NodeRow(one["node"], one, rates[one["node"]], oldest.get(one["node"], 0), one["node"] in browsable)
        for one in nodes
    ]


def _failure_share(hour: JsonObject | None) -> str:
    known = failures_of(hour)
    return share(*known) if known is not None else ""


def _rates(rates: Rates, hour: JsonObject | None, gain: float | None) -> Rates:
    """Return the rates of the channel on all nodes, those of the latest step if there was no look before.

    `gain`: that of the last minutes; None: not known.
    """
    found = latest_rates(hour) if rates == UNKNOWN_RATES else rates
    return replace(found, gain=rates.gain if gain is None else gain)


def _figures(total: NodeRow, failure_share: str) -> list[Figure]:
    """Return the line of figures at the top, except for the age of the oldest message, which a template words."""
    one, rates = total.channel, total.rates
    buried = one.get("buried_count", 0)
    return [
        ("Depth", count(one["depth"]), one["depth"] > 0 and not one["client_count"]),
        ("In flight", count(one["in_flight_count"]), False),
        ("Deferred", count(one["deferred_count"]), False),
        *([("Buried", count(buried), buried > 0)] if total.is_penstock else []),
        ("Published/s", rate(rates.published), False),
        ("Finished/s", rate(rates.finished), False),
        ("Requeued/s", rate(rates.requeued), bool(rates.requeued)),
        ("Timed out/s", rate(rates.timed_out), bool(rates.timed_out)),
        *([("Failure share, 5 min", failure_share, failure_share not in ("-", "0 %"))] if failure_share else []),
        ("Time to drain", drain_words(one["depth"], rates.gain), bool(one["depth"]) and (rates.gain or 0) < 0),
        ("Clients", count(one["client_count"]), one["depth"] > 0 and not one["client_count"]),
    ]


def _states(rows: Sequence[NodeRow]) -> list[tuple[str, int]]:
    """Return the states of messages that can be listed, and how many messages of the nodes that list them are in each."""
    nodes = [row.channel for row in rows if row.is_penstock]
    return [(state, sum(one.get(key, 0) for one in nodes)) for state, key in STATES] if nodes else []

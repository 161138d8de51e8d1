"""The page of one channel, which an operator opens first when something is broken, and its series.

State comes first (a line of counts), then charts, then the channel on each node, then its clients. Data that original nodes do
not report (buried messages, ages, series, messages) is left out.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from starlette.requests import Request
from starlette.responses import Response

from admin.nodes import channel_figures
from admin.nodes.channel_figures import UNKNOWN_RATES, Rates
from admin.nodes.cluster import Producer, Stats
from admin.nodes.merge import merged_channel
from admin.nodes.queries import SELDOM
from admin.nodes.series_past import summed_up
from admin.nodes.views import count, left_out, rate, time_to_drain
from admin.output.layout import Fields, parameters
from admin.output.site import Site
from admin.output.tables import CHANNEL_NODES, CLIENTS
from admin.users.access import place_of
from shared.http.api import json_response, query
from shared.http.errors import HttpError
from shared.json_fields import JsonObject
from shared.values import SECOND

MOST_CLIENTS = 2000  # clients of one page
# States of messages, and the counts of a channel that have them.
STATES = {"ready": "depth", "in_flight": "in_flight_count", "deferred": "deferred_count", "buried": "buried_count"}
Figure = tuple[str, str, bool]  # label, value, and whether it is a sign of a problem


@dataclass(frozen=True, slots=True)
class NodeRow:
    """The channel on one node, or on all of them."""

    node: str  # address; "": all nodes
    channel: JsonObject
    rates: Rates
    oldest: int  # ns since the epoch; 0: no message waits, or unknown
    is_penstock: bool  # it reports buried messages, and since when messages wait


@dataclass(slots=True)
class ChannelPage:
    """The view of a channel. It returns the fields of its template."""

    site: Site

    async def channel(self, request: Request) -> Fields:
        """Return the fields of the page of a channel. Raises HttpError if no node has it: 404, or 502 if one may have it."""
        queries, asked, (topic, name) = self.site.queries, query(request), place_of(request)
        producers, errors, cached = await queries.topic(topic, name, clients=True)
        parts = _parts(cached.now, name)
        if not parts:
            raise self._absent(topic, name)
        rates, total_rates = channel_figures.rates_by_node(parts, _parts(cached.before, name), cached.seconds)
        merged = merged_channel(topic, name, parts)
        penstock_nodes = await queries.penstock_nodes(producers)
        ages = await queries.ask_nodes(penstock_nodes, "/topic/ages", {"topic": topic})
        oldest = channel_figures.oldest_of(ages.answers, name)
        addresses = {one.address for one in penstock_nodes}
        rows = [
            NodeRow(node := one["node"], one, rates[node], oldest.get(node, 0), node in addresses)
            for one in merged["nodes"]
        ]
        hour = await self._hour(penstock_nodes, topic, name)
        if total_rates == UNKNOWN_RATES and len(penstock_nodes) == len(producers):  # original nodes have no series
            total_rates = channel_figures.latest_rates(hour)
        gain = (await queries.gains(producers, topic, cached.now)).get(name, total_rates.gain)
        total_oldest = min(filter(None, oldest.values()), default=0)
        total = NodeRow("", merged, replace(total_rates, gain=gain), total_oldest, bool(penstock_nodes))
        clients = CLIENTS.sorted(merged["clients"] or [], asked)
        return {
            "page_of": "channel", "title": f"Channel {name}", "topic_name": topic, "name": name,
            "figures": _figures(total, hour), "oldest": total.oldest, "states": _states(rows),
            "rows": [*CHANNEL_NODES.sorted(rows, asked), total],
            "clients": [one | channel_figures.client_shares(one) for one in clients[:MOST_CLIENTS]],
            "errors": [*errors, *left_out(clients, MOST_CLIENTS, "client")],
            "is_paused": merged["paused"], "paused_on": sum(one["paused"] for one in parts),
            "pauses": channel_figures.pauses_of(await queries.pauses(), topic, name),
            "coverage": queries.coverage(topic), "missing": queries.missing_past(topic, name),
            "extended": bool(penstock_nodes), "timed": len(penstock_nodes) == len(producers),
            "table": (nodes := [_exported(row) for row in rows]),
            "exports": {"nodes": nodes, "clients": [_plain(one) for one in clients]},
        }  # fmt: skip

    def _absent(self, topic: str, name: str) -> HttpError:
        """Return the error of a channel that no node which answers has."""
        down = [one.address for one in self.site.queries.down() if one.producer.carries(topic)]
        if not down:
            return HttpError(404, f"Topic {topic} has no channel {name}.")
        text = f"No node that answers has channel {name}. Nodes with topic {topic} are down: {', '.join(down[:5])}."
        return HttpError(502, text)

    async def series(self, request: Request) -> Response:
        """Answer the recent series of a topic or a channel, summed over all nodes.

        See admin.nodes.series for the form; `missing` is that of SeriesPast.missing.
        """
        _, topic, *channels = parameters(request, self.site.options)
        channel = "".join(channels)
        producers = (await self.site.queries.producers_of(topic)).producers
        found = await self._spans(await self.site.queries.penstock_nodes(producers), topic, channel)
        return json_response(found | {"missing": self.site.queries.missing_past(topic, channel)})

    async def _hour(self, penstock_nodes: list[Producer], topic: str, name: str) -> JsonObject | None:
        """Return the series of the last hour, if it ends now."""
        hour = (await self._spans(penstock_nodes, topic, name))["hour"] if penstock_nodes else None
        return channel_figures.current(hour, self.site.queries.clock() // SECOND)

    async def _spans(self, penstock_nodes: list[Producer], topic: str, channel: str) -> JsonObject:
        """Return all spans of the series. They are summed once in SELDOM s, however many pages show them."""
        asked = {"topic": topic} | ({"channel": channel} if channel else {})
        queries = self.site.queries

        async def ask() -> JsonObject:
            gathered = await queries.ask_nodes(penstock_nodes, "/topic/series", asked, SELDOM)
            silent, now = queries.fallback.stale(), queries.clock() // SECOND
            answers = {address: one for address, one in gathered.answers.items() if address not in silent}
            kept = queries.past.find(topic, channel)
            found, kept = await queries.direct.answer_budget.run_in_thread(
                gathered.memory + kept.memory, lambda: summed_up(kept, answers, now)
            )
            queries.past.keep(topic, channel, kept)
            return found

        return (await queries.cache.get(("spans", topic, channel), ask, SELDOM)).now


def _parts(stats: Stats | None, name: str) -> list[JsonObject]:
    """Return the channel on each node that answered, with the counts of its topic there."""
    topics = stats.topics if stats is not None else ()
    return [
        one | {"topic_messages": node["message_count"], "topic_depth": node["depth"]}
        for node in topics
        for one in node["channels"] or ()
        if one["channel_name"] == name
    ]


def _plain(data: JsonObject) -> JsonObject:
    """Return the values that are no objects and lists."""
    return {key: value for key, value in data.items() if not isinstance(value, dict | list)}


def _exported(row: NodeRow) -> JsonObject:
    """Return the channel on one node as an export has it."""
    rates = {"rate_in": row.rates.published, "rate_out": row.rates.finished}
    return {**_plain(row.channel), "node": row.node, "oldest": row.oldest, **rates}


def _figures(total: NodeRow, hour: JsonObject | None) -> list[Figure]:
    """Return the line of counts at the top, without the age of the oldest message, which a template formats."""
    one, rates = total.channel, total.rates
    is_unread = one["depth"] > 0 and not one["client_count"]
    buried, failures = one.get("buried_count", 0), channel_figures.failures_of(hour)
    share = channel_figures.share(*failures) if failures is not None else ""
    drain = time_to_drain(one["depth"], rates.gain)
    return [
        ("Depth", count(one["depth"]), is_unread),
        ("In flight", count(one["in_flight_count"]), False),
        ("Deferred", count(one["deferred_count"]), False),
        *([("Buried", count(buried), buried > 0)] if total.is_penstock else []),
        ("Published/s", rate(rates.published), False),
        ("Finished/s", rate(rates.finished), False),
        ("Requeued/s", rate(rates.requeued), bool(rates.requeued)),
        ("Timed out/s", rate(rates.timed_out), bool(rates.timed_out)),
        *([("Failure share, 5 min", share, share not in ("-", "0 %"))] if share else []),
        ("Time to drain", drain, bool(one["depth"]) and (rates.gain or 0) < 0),
        ("Clients", count(one["client_count"]), is_unread),
    ]


def _states(rows: list[NodeRow]) -> list[tuple[str, int]]:
    """Return the states of messages that can be listed, and how many messages of the nodes that list them are in each."""
    nodes = [row.channel for row in rows if row.is_penstock]
    return [(state, sum(one.get(key, 0) for one in nodes)) for state, key in STATES.items()] if nodes else []

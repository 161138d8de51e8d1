"""The pages of topics: the list of all, one topic, and the counter. The page of a channel is in `channel_page`."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, replace

from starlette.requests import Request
from starlette.responses import Response

from admin.alarms.book import topics_in_trouble
from admin.alarms.pages import AlarmPages
from admin.alarms.rules import Severity
from admin.nodes.cluster import AllFailed, Stats
from admin.nodes.merge import merged_topic
from admin.nodes.overview import RATES, Overview, columns_for, ordered, rated, rates
from admin.nodes.response_cache import CachedAnswer
from admin.nodes.upstreams import UpstreamError
from admin.nodes.views import Row, age, channel_row, count, left_out, page_of, reader_rows, whole, with_rate, with_rates
from admin.output import tables
from admin.output.layout import Fields, View
from admin.output.site import Site
from admin.pages.channel_page import ChannelPage
from admin.times import clock, is_old
from admin.users.access import place_of, who_asks
from shared.http.api import json_response, query
from shared.json_fields import objects

MOST_EXPORTED = 10_000  # topics
MOST_NAMES = 20  # topics that the command palette offers
MOST_ROWS = 2000  # channels of one page


@dataclass(slots=True)
class TopicPages:
    """The views of the topic pages. They return the fields of their templates."""

    site: Site
    alarms: AlarmPages

    def views(self) -> Mapping[str, View]:
        """Return the view function of each path."""
        return {
            "/": self.topics, "/topics": self.topics, "/topics/{topic}": self.topic,
            "/topics/{topic}/{channel}": ChannelPage(self.site).channel, "/counter": self.counter,
        }  # fmt: skip

    async def topics(self, request: Request) -> Fields:
        queries, asked, who = self.site.queries, query(request), who_asks(request)
        having, order = asked.get("q", "")[:64], tables.TOPICS.order(asked)
        sort = order.key
        registered = await self._registered()
        # With the names from nsqlookupd not every node has to be asked; unless it is down, or was just restarted.
        has_names = sort == "name" and bool(registered) and queries.is_all_registered()
        columns = None if has_names else columns_for(sort)
        overview = await queries.overview_or_stale(columns)
        is_pending = overview is None and has_names  # names and rows are known; sums follow with the next refresh
        cached = overview or (CachedAnswer(Overview()) if is_pending else await queries.overview(columns))
        own = who.visible({*cached.now.names, *registered})
        chosen = ordered(own, cached.now, cached.before, cached.seconds, having, sort, order.is_descending)
        alarms = topics_in_trouble(self.alarms.visible(who))
        if not asked.get("sort"):  # topics with alarms come first
            chosen.sort(key=lambda name: alarms[name].subject.severity if name in alarms else len(Severity))
        shown, page, pages = page_of(chosen, whole(asked.get("page", "1")))
        overview_rates = rates(cached.now, cached.before, cached.seconds, sort)
        wanted = chosen[:MOST_EXPORTED] if "format" in asked else list(shown)
        # sorted once more: the rows are newer than what the order was made of
        listed = tables.TOPICS.sorted(await self._rows(wanted, RATES.get(sort, ""), overview_rates), asked)
        totals = [("Topics", count(len(own)))]
        if who.sees_all:
            totals += [("Totals", "loading")] if is_pending else _totals(cached.now)
            totals += self.alarms.totals()
        return {
            "page_of": "topics", "title": "Topics", "rows": listed, "page": page, "pages": pages, "q": having,
            "totals": totals, "errors": cached.now.errors, "alarms": alarms,
            # a node that is down has a banner on every page already
            "alarm_groups": [one for one in self.alarms.groups(who) if one.rule.name != "node-down"],
            "table": [asdict(row) for row in listed],
        }  # fmt: skip

    async def names(self, request: Request) -> Response:
        """Return {"topics": [...]}: MOST_NAMES that the user sees and that contain ?q, those that begin with it first."""
        wanted = query(request).get("q", "")[:64].lower()
        known = await self._registered() or (await self.site.queries.overview(())).now.names
        found = who_asks(request).visible(name for name in known if wanted in name.lower())
        found.sort(key=lambda name: (not name.lower().startswith(wanted), name))
        return json_response({"topics": found[:MOST_NAMES]})

    async def _registered(self) -> Collection[str]:
        """Return the topics that nsqlookupd knows; none without nsqlookupd, or if none answers."""
        if not self.site.settings.lookupds:
            return ()
        try:
            return (await self.site.queries.cache.get("topics", self.site.queries.cluster.topics)).now.names
        except (AllFailed, UpstreamError):
            return ()  # the nodes that are remembered are asked for theirs

    async def _rows(self, names: list[str], attribute: str, overview_rates: Mapping[str, float]) -> list[Row]:
        """Return the rows of these topics with their rates. They are newer than the data of the order.

        `overview_rates`: the rates by which topics are sorted, for the `attribute` of topics that are new on the page.
        """
        cached = await self.site.queries.rows(names)
        rows = rated(names, cached.now, cached.before, cached.seconds)
        for place, row in enumerate(rows):
            if row.name in overview_rates and getattr(row, attribute) is None:
                rows[place] = with_rate(row, attribute, overview_rates[row.name])
        return rows

    async def topic(self, request: Request) -> Fields:
        queries, [name], asked = self.site.queries, place_of(request), query(request)
        producers, errors, cached = await queries.topic(name)
        merged, penstock_nodes = merged_topic(name, cached.now.topics), await queries.penstock_nodes(producers)
        ages, _ = await queries.ages(producers, name)
        [row] = await self._rows([name], "", {})
        cursors = await queries.ask_nodes(penstock_nodes, "/topic/cursors", {"topic": name})
        readers = reader_rows({node: objects(one.get("cursors")) for node, one in cursors.answers.items()}, name)
        gains = await queries.gains(producers, name, cached.now)
        publishers = tables.PUBLISHERS.sorted(await queries.publishers(name), asked)
        channels = tables.CHANNELS.sorted(_channels_of(cached, ages, gains), asked)
        return {
            "page_of": "topic", "title": f"Topic {name}", "name": name, "row": row, "ages": ages,
            "topic": merged | {"nodes": tables.TOPIC_NODES.sorted(merged["nodes"] or (), asked)},
            "is_paused": merged["paused"], "coverage": queries.coverage(name), "missing": queries.missing_past(name, ""),
            "channels": channels[:MOST_ROWS], "errors": [*errors, *left_out(channels, MOST_ROWS, "channel")],
            "readers": tables.READERS.sorted(readers, asked), "publishers": publishers,
            "nodes": [one.address for one in producers], "tube_nodes": [one.address for one in penstock_nodes],
            "extended": bool(penstock_nodes), "timed": len(penstock_nodes) == len(producers),
            "lookups": bool(self.site.settings.lookupds), "has_lake": bool(self.site.options.lake),
            "table": (table := [asdict(row) for row in channels]),
            "exports": {
                "channels": table, "readers": readers, "publishers": [asdict(one) for one in publishers],
                "nodes": [
                    {key: value for key, value in one.items() if not isinstance(value, dict | list)}
                    for one in merged["nodes"] or ()
                ],
            },
        }  # fmt: skip

    async def counter(self, request: Request) -> Fields:
        cached = await self.site.queries.overview()
        now, before, rate = cached.now, cached.before, None
        total = now.totals["messages"]
        if before is not None and before.answered == now.answered and cached.seconds:
            grown = total - before.totals["messages"]
            rate = grown / cached.seconds if grown >= 0 else None
        return {"page_of": "counter", "title": "Counter", "total": total, "rate_in": rate, "errors": now.errors}


def _totals(overview: Overview) -> list[tuple[str, str]]:
    labels = {"depth": "Depth", "in_flight": "In flight", "deferred": "Deferred", "clients": "Clients"}
    labels |= {"buried": "Buried"} if overview.totals["buried"] else {}
    labeled = [(label, count(overview.totals[name])) for name, label in labels.items()]
    now = time.time_ns()
    labeled += [("Oldest message", age(overview.oldest, now))] if overview.oldest else []
    return labeled + ([("Totals as of", clock(overview.at))] if is_old(overview.at, now) else [])


def _channels_of(cached: CachedAnswer[Stats], ages: Mapping[str, int], gains: Mapping[str, float]) -> list[Row]:
    """Return the rows of the channels by name.

    `ages`: when each channel's oldest message was published, ns since the epoch; `gains`: see Queries.gains. The channels have
    rates if all nodes that answer have answered before.
    """
    nodes = _nodes_of(cached.now)
    before = cached.before if cached.before is not None and nodes <= _nodes_of(cached.before) else Stats()
    same = Stats([], [one for one in before.topics if one["node"] in nodes])
    earlier = {channel: channel_row(data) for (_, channel), data in same.channels().items()}
    rows = []
    for (_, name), data in sorted(cached.now.channels().items()):
        row = replace(channel_row(data), oldest=ages.get(name, 0), gain=gains.get(name))
        rows.append(with_rates(row, earlier.get(name), cached.seconds))
    return rows


def _nodes_of(stats: Stats) -> set[str]:
    return {one["node"] for one in stats.topics}

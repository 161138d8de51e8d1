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
from admin.nodes.overview import COLUMNS, RATES, Overview, ordered, rated, rates
from admin.nodes.response_cache import CachedAnswer
from admin.nodes.upstreams import UpstreamError
from admin.nodes.views import (
    Row,
    age,
    channel_row,
    count,
    left_out,
    page_of,
    reader_rows,
    whole,
    with_rate,
    with_rates,
)
from admin.output.form_answers import done_of
from admin.output.layout import Fields, View, parameters
from admin.output.site import Site
from admin.output.tables import CHANNELS, READERS, TOPIC_NODES, TOPICS
from admin.pages.channel_page import ChannelPage
from admin.users.access import who_asks
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
            "/": self.topics,
            "/topics": self.topics,
            "/topics/{topic}": self.topic,
            "/topics/{topic}/{channel}": ChannelPage(self.site).channel,
            "/counter": self.counter,
        }

    async def topics(self, request: Request) -> Fields:
        asked, who = query(request), who_asks(request)
        having, order = asked.get("q", "")[:64], TOPICS.order(asked)
        sort = order.key
        registered = await self._registered()
        # nsqlookupd knows the names, so not every node has to be asked; unless it is down, or was just restarted
        knows = bool(registered) and self.site.queries.is_all_registered()
        columns = COLUMNS[sort] if sort != "name" or not knows else None
        overview = await self.site.queries.overview_or_stale(columns)
        # Names and rows are known; sums follow with the next refresh.
        is_pending = overview is None and knows and sort == "name"
        cached = overview or (CachedAnswer(Overview()) if is_pending else await self.site.queries.overview(columns))
        own = who.visible({*cached.now.names, *registered})
        chosen = ordered(own, cached.now, cached.before, cached.seconds, having, sort, order.is_descending)
        trouble = topics_in_trouble(self.alarms.visible(who))
        if not asked.get("sort"):  # trouble comes first, whatever its name
            chosen.sort(key=lambda name: trouble[name].subject.severity if name in trouble else len(Severity))
        shown, page, pages = page_of(chosen, whole(asked.get("page", "1")))
        overview_rates = rates(cached.now, cached.before, cached.seconds, sort)
        wanted = chosen[:MOST_EXPORTED] if "format" in asked else list(shown)
        # sorted once more: the rows are newer than what the order was made of
        listed = TOPICS.sorted(await self._rows(wanted, RATES.get(sort, ""), overview_rates), asked)
        totals = [("Topics", count(len(own)))]
        if who.sees_all:
            totals += [("Totals", "loading")] if is_pending else _totals(cached.now)
            totals += self.alarms.totals()
        return {
            "page_of": "topics",
            "title": "Topics",
            "nav_path": "/",
            "rows": listed,
            "page": page,
            "pages": pages,
            "q": having,
            "sort": sort if asked.get("sort") else "",
            "order": "desc" if order.is_descending else "asc",
            "totals": totals,
            "heads": TOPICS.heads(asked),
            "errors": cached.now.errors,
            # a node that is down has a banner on every page already
            "alarm_groups": [one for one in self.alarms.groups(who) if one.rule.name != "node-down"],
            "trouble": trouble,
            "table": [asdict(row) for row in listed],
        }

    async def names(self, request: Request) -> Response:
        """Return {"topics": [...]}: MOST_NAMES that the user sees and that contain ?q, those that begin with it first."""
        wanted = query(request).get("q", "")[:64].lower()
        known = await self._registered() or (await self.site.queries.overview(())).now.names
        found = [name for name in known if wanted in name.lower()]
        shown = sorted(who_asks(request).visible(found), key=lambda name: (not name.lower().startswith(wanted), name))
        return json_response({"topics": shown[:MOST_NAMES]})

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

        `overview_rates` has the rates of all topics by which they are sorted: it fills in that attribute of topics that
        were not on the page before.
        """
        cached = await self.site.queries.rows(names)
        rows = rated(names, cached.now, cached.before, cached.seconds)
        return [
            with_rate(row, attribute, overview_rates[row.name])
            if row.name in overview_rates and getattr(row, attribute) is None
            else row
            for row in rows
        ]

    async def topic(self, request: Request) -> Fields:
        name, asked, done = parameters(request, self.site.options, 2)[1], query(request), done_of(request)
        producers, errors, cached = await self.site.queries.topic(name)
        merged, penstock_nodes = (
            merged_topic(name, cached.now.topics),
            await self.site.queries.penstock_nodes(producers),
        )
        ages, _ = await self.site.queries.ages(producers, name)
        [row] = await self._rows([name], "", {})
        readers = await self.site.queries.ask_nodes(penstock_nodes, "/topic/cursors", {"topic": name})
        gains = await self.site.queries.gains(producers, name, cached.now)
        channels = CHANNELS.sorted(_channels_of(cached, ages, gains), asked)
        return {
            "page_of": "topic",
            "title": f"Topic {name}",
            "nav_path": "",
            "name": name,
            "topic": merged | {"nodes": TOPIC_NODES.sorted(merged["nodes"] or (), asked)},
            "node_heads": TOPIC_NODES.heads(asked),
            "channel_heads": CHANNELS.heads(asked),
            "reader_heads": READERS.heads(asked),
            "errors": [*errors, *left_out(channels, MOST_ROWS, "channels")],
            "is_paused": merged["paused"],
            "coverage": self.site.queries.coverage(name),
            "missing": self.site.queries.missing_past(name, ""),
            "timed": len(penstock_nodes) == len(producers),
            "channels": channels[:MOST_ROWS],
            "ages": ages,
            "readers": READERS.sorted(
                reader_rows({node: objects(one.get("cursors")) for node, one in readers.answers.items()}, name), asked
            ),
            "nodes": [one.address for one in producers],
            "published": done.get("published", ""),
            "at": done.get("at", ""),
            "key": done.get("key", ""),
            "row": row,
            "jobs": row.jobs,
            "tube_nodes": [one.address for one in penstock_nodes],
            "lookups": bool(self.site.settings.lookupds),
            "charted": bool(penstock_nodes),
            "has_lake": bool(self.site.options.lake),
            "extended": bool(penstock_nodes),
            "table": [asdict(row) for row in channels],
        }

    async def counter(self, request: Request) -> Fields:
        cached = await self.site.queries.overview()
        total, earlier = cached.now.totals["messages"], cached.before
        same = earlier is not None and earlier.answered == cached.now.answered
        before = earlier.totals["messages"] if earlier is not None and same else None
        speed = (total - before) / cached.seconds if before is not None and cached.seconds and total >= before else None
        return {
            "page_of": "counter",
            "title": "Counter",
            "nav_path": "/counter",
            "total": total,
            "rate_in": speed,
            "errors": cached.now.errors,
        }


def _totals(overview: Overview) -> list[tuple[str, str]]:
    names = (
        ("Depth", "depth"),
        ("In flight", "in_flight"),
        ("Deferred", "deferred"),
        ("Clients", "clients"),
    )
    labeled = [(words, count(overview.totals[name])) for words, name in names]
    if overview.totals["buried"]:
        labeled.append(("Buried", count(overview.totals["buried"])))
    if overview.oldest:
        labeled.append(("Oldest message", age(overview.oldest, time.time_ns())))
    return labeled


def _channels_of(cached: CachedAnswer[Stats], ages: Mapping[str, int], gains: Mapping[str, float]) -> list[Row]:
    """Return the rows of the channels by name.

    `ages`: when each channel's oldest message was published, ns since the epoch; `gains`: see Queries.gains. The channels have
    rates if all nodes that answer have answered before.
    """
    nodes = _nodes_of(cached.now)
    before = cached.before if cached.before is not None and nodes <= _nodes_of(cached.before) else Stats()
    same = Stats([], [one for one in before.topics if one["node"] in nodes])
    earlier = {channel: channel_row(data) for (_, channel), data in same.channels().items()}
    rows = (channel_row(data) for _, data in sorted(cached.now.channels().items()))
    return [
        with_rates(
            replace(row, oldest=ages.get(row.name, 0), gain=gains.get(row.name)), earlier.get(row.name), cached.seconds
        )
        for row in rows
    ]


def _nodes_of(stats: Stats) -> set[str]:
    return {one["node"] for one in stats.topics}

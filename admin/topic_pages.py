"""The pages of topics: the list of all, one topic, and the counter. The page of a channel is in `channel_page`."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace

from starlette.requests import Request

from admin.access import who_asks
from admin.alarm_book import topics_in_trouble
from admin.alarm_pages import AlarmPages
from admin.alarm_rules import Severity
from admin.api import Settings, parameters
from admin.channel_page import ChannelPage
from admin.cluster import Stats
from admin.form_answers import done_of
from admin.layout import Fields, View
from admin.merge import merged_topic, objects
from admin.options import AdminOptions
from admin.overview import COLUMNS, Overview, in_order, ordered, rates
from admin.queries import Queries
from admin.response_cache import CachedAnswer
from admin.views import (
    Row,
    absent_row,
    age,
    channel_row,
    count,
    page_of,
    reader_rows,
    whole,
    with_rate,
    with_rates,
)
from shared.http.api import query

MOST_EXPORTED = 10_000  # topics
MOST_ROWS = 2000  # channels, or clients, of one page
_COLUMNS = (
    ("name", "Topic", ""), ("rate_in", "Published/s", "n"), ("rate_out", "Finished/s", "n"), ("depth", "Depth", "n"),
    ("oldest", "Oldest message", "n"), ("in_flight", "In flight", "n"), ("deferred", "Deferred", "n"),
    ("buried", "Buried", "n"), ("messages", "Messages", "n"), ("channels", "Channels", "n"), ("clients", "Clients", "n"),
    ("depth", "Time to drain", "n"),
)  # fmt: skip


@dataclass(slots=True)
class TopicPages:
    """The views of the topic pages. They return the fields of their templates."""

    options: AdminOptions
    settings: Settings
    queries: Queries
    alarms: AlarmPages

    def views(self) -> Mapping[str, View]:
        """Return the view function of each path."""
        return {
            "/": self.topics,
            "/topics": self.topics,
            "/topics/{topic}": self.topic,
            "/topics/{topic}/{channel}": ChannelPage(self.options, self.queries).channel,
            "/counter": self.counter,
        }

    async def topics(self, request: Request) -> Fields:
        asked, who = query(request), who_asks(request)
        having, sort = asked.get("q", "")[:64], asked.get("sort", "name")
        sort = sort if sort in COLUMNS else "name"
        knows = bool(self.settings.lookupds)  # nsqlookupd knows the names, so not every node has to be asked
        columns = COLUMNS[sort] if sort != "name" or not knows else None
        overview = await self.queries.overview_or_stale(columns)
        # Names and rows are known; sums follow with the next refresh.
        is_pending = overview is None and knows and sort == "name"
        cached = overview or (CachedAnswer(Overview()) if is_pending else await self.queries.overview(columns))
        names = set(cached.now.names)
        if knows:
            names.update((await self.queries.cache.get("topics", self.queries.cluster.topics)).now.names)
        own = who.visible(names)
        chosen = ordered(own, cached.now, cached.before, cached.seconds, having, sort)
        trouble = topics_in_trouble(self.alarms.visible(who))
        if "sort" not in asked:  # trouble comes first, whatever its name
            chosen.sort(key=lambda name: trouble.get(name, Severity.INFO + 1))
        shown, page, pages = page_of(chosen, whole(asked.get("page", "1")))
        overview_rates = rates(cached.now, cached.before, cached.seconds, sort)
        listed = await self._rows(chosen[:MOST_EXPORTED] if "format" in asked else list(shown), sort, overview_rates)
        totals = [("Topics", count(len(own)))]
        if who.sees_all:
            totals += [("Totals", "loading")] if is_pending else _totals(cached.now)
            coverage = self.queries.coverage()
            totals += [("In these sums", coverage)] if coverage else []
        return {
            "page_of": "topics",
            "title": "Topics",
            "nav_path": "/",
            "rows": listed,
            "page": page,
            "pages": pages,
            "q": having,
            "sort": sort,
            "totals": totals,
            "columns": _COLUMNS,
            "errors": cached.now.errors,
            "alarm_groups": self.alarms.groups(who),
            "trouble": {name: severity.word for name, severity in trouble.items()},
            "table": [asdict(row) for row in listed],
        }

    async def _rows(self, names: list[str], sort: str, overview_rates: Mapping[str, float]) -> list[Row]:
        """Return the rows of these topics with their rates, sorted again, because they are newer than the data of the order.

        `overview_rates` has the rates of all topics if the order is by rate: it fills in topics that were not on the page
        before.
        """
        cached = await self.queries.rows(names)
        before = cached.before or {}
        rows = [
            _with_rate(cached.now.get(name) or absent_row(name), before.get(name), cached.seconds, per_channel=True)
            for name in names
        ]
        if overview_rates:
            rows = [
                with_rate(row, sort, max(0.0, overview_rates.get(row.name, 0.0))) if getattr(row, sort) is None else row
                for row in rows
            ]
        return in_order(rows, sort)

    async def topic(self, request: Request) -> Fields:
        name, done = parameters(request, self.options, 2)[1], done_of(request)
        producers, errors, cached = await self.queries.topic(name)
        merged, rows = merged_topic(name, cached.now.topics), _channel_rows(cached.now)
        penstock_nodes = await self.queries.penstock_nodes(producers)
        ages, buried = await self.queries.ages(producers, name)
        own = (await self.queries.rows([name])).now.get(name) if penstock_nodes else None
        jobs = own.jobs if own is not None else 0
        readers = await self.queries.ask_nodes(penstock_nodes, "/topic/cursors", {"topic": name})
        channels = _with_rates(rows, _channel_rows(cached.before), cached.seconds)
        channels = [replace(row, buried=buried.get(row.name, 0)) for row in channels]
        return {
            "page_of": "topic",
            "title": f"Topic {name}",
            "nav_path": "",
            "name": name,
            "topic": merged,
            "errors": [*errors, *_left_out(channels, "channels")],
            "is_paused": merged["paused"],
            "timed": len(penstock_nodes) == len(producers),
            "channels": channels[:MOST_ROWS],
            "ages": ages,
            "readers": reader_rows({node: objects(one.get("cursors")) for node, one in readers.answers.items()}, name),
            "nodes": [one.address for one in producers],
            "published": done.get("published", ""),
            "at": done.get("at", ""),
            "key": done.get("key", ""),
            "jobs": jobs,
            "tube_nodes": [one.address for one in penstock_nodes],
            "lookups": bool(self.settings.lookupds),
            "charted": bool(penstock_nodes),
            "has_lake": bool(self.options.lake),
            "extended": bool(penstock_nodes),
            "table": [asdict(row) | {"oldest": ages.get(row.name, 0)} for row in channels],
        }

    async def counter(self, request: Request) -> Fields:
        cached = await self.queries.overview()
        total, before = cached.now.totals["messages"], cached.before.totals["messages"] if cached.before else None
        speed = (total - before) / cached.seconds if before is not None and cached.seconds and total >= before else None
        return {
            "page_of": "counter",
            "title": "Counter",
            "nav_path": "/counter",
            "total": total,
            "rate_in": speed,
            "errors": cached.now.errors,
        }


def _left_out(rows: Sequence[object], what: str) -> list[str]:
    """Return what to say of rows that the page cannot show."""
    return (
        [f"{len(rows) - MOST_ROWS} more {what} are not shown. Export the table to see all of them."]
        if len(rows) > MOST_ROWS
        else []
    )


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


def _channel_rows(stats: Stats | None) -> list[Row]:
    return [channel_row(data) for _, data in sorted(stats.channels().items())] if stats else []


def _with_rates(rows: Iterable[Row], before: list[Row], seconds: float) -> list[Row]:
    known = {row.name: row for row in before}
    return [_with_rate(row, known.get(row.name), seconds) for row in rows]


def _with_rate(row: Row, before: Row | None, seconds: float, *, per_channel: bool = False) -> Row:
    return with_rates(row, before, seconds, max(1, row.channels) if per_channel else 1)

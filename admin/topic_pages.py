"""The pages of topics and channels: the list of all, one topic, one channel, a topic's time series, and the counter."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace

from starlette.requests import Request
from starlette.responses import Response

from admin.access import who_asks
from admin.api import Settings, parameters
from admin.cluster import Stats
from admin.layout import Fields, View
from admin.merge import merged_channel, merged_topic, objects
from admin.options import AdminOptions
from admin.overview import COLUMNS, Overview, in_order, ordered, rates
from admin.queries import SELDOM, Queries
from admin.response_cache import Seen
from admin.series import summed
from admin.storage import disks
from admin.views import (
    Row,
    age,
    channel_row,
    count,
    dead_row,
    page_of,
    reader_rows,
    whole,
    with_rate,
    with_rates,
)
from shared.http.api import json_response, query
from shared.http.errors import HttpError

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
    looks: Queries

    def views(self) -> Mapping[str, View]:
        """Return the view function of each path."""
        return {
            "/": self.topics,
            "/topics": self.topics,
            "/topics/{topic}": self.topic,
            "/topics/{topic}/{channel}": self.channel,
            "/counter": self.counter,
        }

    async def topics(self, request: Request) -> Fields:
        asked, who = query(request), who_asks(request)
        having, sort = asked.get("q", "")[:64], asked.get("sort", "name")
        sort = sort if sort in COLUMNS else "name"
        knows = bool(self.settings.lookupds)  # nsqlookupd knows the names, so not every node has to be asked
        columns = COLUMNS[sort] if sort != "name" or not knows else None
        told = await self.looks.overview_soon(columns)
        # Names and rows are known; sums follow with the next refresh.
        is_pending = told is None and knows and sort == "name"
        seen = told or (Seen(Overview()) if is_pending else await self.looks.overview(columns))
        names = set(seen.now.names)
        if knows:
            names.update((await self.looks.watch.ask("topics", self.looks.cluster.topics)).now.names)
        own = who.seen(names)
        chosen = ordered(own, seen.now, seen.before, seen.seconds, having, sort)
        shown, page, pages = page_of(chosen, whole(asked.get("page", "1")))
        told_rates = rates(seen.now, seen.before, seen.seconds, sort)
        listed = await self._rows(chosen[:MOST_EXPORTED] if "format" in asked else list(shown), sort, told_rates)
        totals = [("Topics", count(len(own)))]
        if who.sees_all:
            totals += [("Totals", "loading")] if is_pending else _totals(seen.now)
        return {
            "page_of": "topics",
            "title": "Topics",
            "place": "/",
            "rows": listed,
            "page": page,
            "pages": pages,
            "q": having,
            "sort": sort,
            "totals": totals,
            "columns": _COLUMNS,
            "errors": seen.now.errors,
            "idle": sorted(seen.now.idle)[:5],
            "alarms": await self._alarms(seen.now) if who.sees_all else [],
            "table": [asdict(row) for row in listed],
        }

    async def _rows(self, names: list[str], sort: str, told_rates: Mapping[str, float]) -> list[Row]:
        """Return the rows of these topics with their rates, sorted again, because they are newer than the data of the order.

        `told_rates` has the rates of all topics if the order is by rate: it fills in topics that were not on the page
        before.
        """
        seen = await self.looks.rows(names)
        before = seen.before or {}
        rows = [
            _with_rate(seen.now.get(name) or dead_row(name), before.get(name), seen.seconds, per_channel=True)
            for name in names
        ]
        if told_rates:
            rows = [
                with_rate(row, sort, max(0.0, told_rates.get(row.name, 0.0))) if getattr(row, sort) is None else row
                for row in rows
            ]
        return in_order(rows, sort)

    async def _alarms(self, overview: Overview) -> list[tuple[str, str, str]]:
        """Return what an operator should look at: severity, words, and the page with details."""
        found = [("bad", f"{node}: {health}", f"nodes/{node}") for node, health in overview.unwell.items()]
        ours = await self.looks.all_ours()
        told = await self.looks.soon(ours, "/storage", SELDOM)
        found += [(level, f"{node}: {words}", "storage") for node, level, words in disks(told.answers)]
        if overview.idle_count:
            have = "channel has" if overview.idle_count == 1 else "channels have"
            words = f"{count(overview.idle_count)} {have} messages but no clients: "
            found.append(("warn", words, ""))
        return found

    async def topic(self, request: Request) -> Fields:
        name = parameters(request, self.options, 2)[1]
        producers, errors, seen = await self.looks.topic(name)
        told, rows = merged_topic(name, seen.now.topics), _channel_rows(seen.now)
        ours = await self.looks.ours(producers)
        ages, buried = await self.looks.ages(producers, name)
        own = (await self.looks.rows([name])).now.get(name) if ours else None
        jobs = own.jobs if own is not None else 0
        readers = await self.looks.of(ours, "/topic/cursors", {"topic": name})
        channels = _with_rates(rows, _channel_rows(seen.before), seen.seconds)
        channels = [replace(row, buried=buried.get(row.name, 0)) for row in channels]
        return {
            "page_of": "topic",
            "title": f"Topic {name}",
            "place": "",
            "name": name,
            "topic": told,
            "errors": [*errors, *_left_out(channels, "channels")],
            "is_paused": told["paused"],
            "timed": len(ours) == len(producers),
            "channels": channels[:MOST_ROWS],
            "ages": ages,
            "readers": reader_rows({node: objects(one.get("cursors")) for node, one in readers.answers.items()}, name),
            "nodes": [one.address for one in producers],
            "published": query(request).get("published", "")[:32],
            "at": query(request).get("at", "")[:100],
            "jobs": jobs,
            "tube_nodes": [one.address for one in ours],
            "lookups": bool(self.settings.lookupds),
            "charted": bool(ours),
            "has_lake": bool(self.options.lake),
            "extended": bool(ours),
            "table": [asdict(row) | {"oldest": ages.get(row.name, 0)} for row in channels],
        }

    async def channel(self, request: Request) -> Fields:
        _, topic, name = parameters(request, self.options, 3)
        producers, errors, seen = await self.looks.topic(topic, name, clients=True)
        parts = [one for node in seen.now.topics for one in node["channels"] or () if one["channel_name"] == name]
        if not parts:
            raise HttpError(404, f"Topic {topic} has no channel {name}.")
        told = merged_channel(topic, name, parts)
        ours = await self.looks.ours(producers)
        clients = told["clients"] or []
        return {
            "page_of": "channel",
            "title": f"Channel {name}",
            "place": "",
            "topic_name": topic,
            "name": name,
            "channel": told | {"clients": clients[:MOST_ROWS]},
            "errors": [*errors, *_left_out(clients, "clients")],
            "is_paused": told["paused"],
            "timed": len(ours) == len(producers),
            "oldest": (await self.looks.ages(producers, topic))[0].get(name, 0),
            "browsable": [one.address for one in ours],
            "extended": bool(ours),
            "table": [{key: one[key] for key in one if not isinstance(one[key], dict | list)} for one in clients],
        }

    async def counter(self, request: Request) -> Fields:
        if not who_asks(request).sees_all:
            raise HttpError(403, "Your topics do not allow this: the counter sums up all topics.")
        seen = await self.looks.overview()
        total, before = seen.now.totals["messages"], seen.before.totals["messages"] if seen.before else None
        speed = (total - before) / seen.seconds if before is not None and seen.seconds and total >= before else None
        return {
            "page_of": "counter",
            "title": "Counter",
            "place": "/counter",
            "total": total,
            "rate_in": speed,
            "errors": seen.now.errors,
        }

    async def series(self, request: Request) -> Response:
        """Return a topic's recent series, summed over all nodes, for its charts. See admin.series for the form."""
        name = parameters(request, self.options, 2)[1]
        ours = await self.looks.ours((await self.looks.producers_of(name)).producers)
        told = list((await self.looks.of(ours, "/topic/series", {"topic": name})).answers.values())
        return json_response({span: summed([one.get(span) for one in told]) for span in ("hour", "day")})


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
    told = [(words, count(overview.totals[name])) for words, name in names]
    if overview.totals["buried"]:
        told.append(("Buried", count(overview.totals["buried"])))
    if overview.oldest:
        told.append(("Oldest message", age(overview.oldest, time.time_ns())))
    return told


def _channel_rows(stats: Stats | None) -> list[Row]:
    return [channel_row(told) for _, told in sorted(stats.channels().items())] if stats else []


def _with_rates(rows: Iterable[Row], before: list[Row], seconds: float) -> list[Row]:
    known = {row.name: row for row in before}
    return [_with_rate(row, known.get(row.name), seconds) for row in rows]


def _with_rate(row: Row, before: Row | None, seconds: float, *, per_channel: bool = False) -> Row:
    return with_rates(row, before, seconds, max(1, row.channels) if per_channel else 1)

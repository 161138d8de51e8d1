"""What the pages show: server-rendered, so that they can be read without a script; nothing is changed by looking.

Each view returns the fields of its template (see admin.frame). What somebody may not see is left out here, not there.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import islice

from starlette.requests import Request
from starlette.responses import Response

from admin.access import who_asks
from admin.api import JsonApi, Settings, parameters
from admin.audit import Audit
from admin.cluster import AllFailed, Producer, Stats
from admin.frame import Fields, Frame
from admin.history import GRAINS, History, history_view
from admin.looks import SELDOM, Looks
from admin.merge import Told, merged_channel, merged_topic, number, objects, text
from admin.options import AdminOptions
from admin.overview import COLUMNS, Overview, in_order, ordered, rates
from admin.series import summed
from admin.storage import disks, drain_view, storage_view
from admin.tasks import Tasks
from admin.upstreams import UpstreamError
from admin.views import (
    Row,
    age,
    channel_row,
    count,
    dead_row,
    page_of,
    topic_row,
    whole,
    with_rate,
    with_rates,
)
from admin.watch import Seen
from shared.http.api import Routes, json_response, query
from shared.http.errors import HttpError

MOST_INACTIVE = 1_000  # topics without a node on the lookup page
MOST_LISTED = 100  # records on a page of the audit trail
MOST_EXPORTED = 10_000  # topics
MOST_CURSORS = 1000  # of a node
MOST_ROWS = 2000  # channels, or clients, of one page
_COLUMNS = (
    ("name", "topic", ""), ("rate_in", "published/s", "n"), ("rate_out", "left/s", "n"), ("depth", "waiting", "n"),
    ("oldest", "oldest waits", "n"), ("in_flight", "in flight", "n"), ("deferred", "deferred", "n"), ("buried", "buried", "n"),
    ("messages", "messages", "n"), ("channels", "channels", "n"), ("clients", "clients", "n"), ("depth", "time to drain", "n"),
)  # fmt: skip


@dataclass(slots=True)
class Pages:
    """The functions behind the routes."""

    options: AdminOptions
    settings: Settings
    looks: Looks
    frame: Frame
    api: JsonApi
    tasks: Tasks
    audit_trail: Audit
    past: History

    def routes(self) -> Routes:
        """Every path and its method."""
        shown = {
            "/": self.topics,
            "/topics": self.topics,
            "/topics/{topic}": self.topic,
            "/topics/{topic}/{channel}": self.channel,
            "/nodes": self.nodes,
            "/nodes/{node}": self.node,
            "/storage": self.storage,
            "/readers": self.readers,
            "/tasks": self.all_tasks,
            "/tasks/{task}": self.task,
            "/history": self.all_history,
            "/history/{topic}": self.history,
            "/lookup": self.lookup,
            "/counter": self.counter,
            "/audit": self.audit,
        }
        routes = {path: {"GET": self.frame.shown(view)} for path, view in shown.items()}
        routes["/tasks/{task}"] = {"GET": self.frame.shown(self.task, 0.5)}
        routes["/static/{asset}"] = {"GET": self.frame.asset}
        routes["/series/{topic}"] = {"GET": self.frame.answered(self.series)}
        return routes

    async def banners(self, request: Request) -> Fields:
        """What stands above every page: who does not answer, and what is paused."""
        who = who_asks(request)
        try:
            paused = [one for one in await self.looks.pauses() if who.sees(one["name"].partition("/")[0])]
        except (AllFailed, UpstreamError):
            paused = []  # the page itself says so
        stale = [
            f"{node} gave no sound answer for {seconds:.0f} s" for node, seconds in self.looks.patient.stale().items()
        ]
        return {"paused": paused, "stale": stale}

    async def series(self, request: Request) -> Response:
        """What a topic did lately, of all nodes together: for its charts. Shapes: admin.series."""
        name = parameters(request, self.options, 2)[1]
        ours = await self.looks.ours((await self.looks.producers_of(name)).producers)
        told = list((await self.looks.of(ours, "/topic/series", {"topic": name})).answers.values())
        return json_response({span: summed([one.get(span) for one in told]) for span in ("hour", "day")})

    # topics

    async def topics(self, request: Request) -> Fields:
        asked, who = query(request), who_asks(request)
        having, sort = asked.get("q", "")[:64], asked.get("sort", "name")
        sort = sort if sort in COLUMNS else "name"
        knows = bool(self.settings.lookupds)  # the names, without asking every node for them
        columns = COLUMNS[sort] if sort != "name" or not knows else None
        told = await self.looks.overview_soon(columns)
        is_pending = told is None and knows and sort == "name"  # names and rows are there; sums come with the next look
        seen = told or (Seen(Overview()) if is_pending else await self.looks.overview(columns))
        names = set(seen.now.names)
        if knows:
            names.update((await self.looks.watch.ask("topics", self.looks.cluster.topics)).now.names)
        own = who.seen(names)
        chosen = ordered(own, seen.now, seen.before, seen.seconds, having, sort)
        shown, page, pages = page_of(chosen, whole(asked.get("page", "1")))
        told_rates = rates(seen.now, seen.before, seen.seconds, sort)
        listed = await self._rows(chosen[:MOST_EXPORTED] if "format" in asked else list(shown), sort, told_rates)
        totals = [("topics", count(len(own)))]
        if who.sees_all:
            totals += [("come in a moment", "...")] if is_pending else _totals(seen.now)
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
        """Of these topics, with their rates; in order once more, for they are a moment younger than what ordered them.

        `told_rates`: of all topics, where that is the order: others are on the page each time, and were not asked for before.
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
        """What an operator should look at: how bad, in words, and the page that tells more."""
        found = [("bad", f"{node}: {health}", f"nodes/{node}") for node, health in overview.unwell.items()]
        ours = await self.looks.all_ours()
        told = await self.looks.soon(ours, "/storage", SELDOM)
        found += [(level, f"{node}: {words}", "storage") for node, level, words in disks(told.answers)]
        if overview.idle_count:
            have = "channel has" if overview.idle_count == 1 else "channels have"
            words = f"{count(overview.idle_count)} {have} messages and no client: "
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
            "readers": _readers({node: objects(one.get("cursors")) for node, one in readers.answers.items()}, name),
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
            raise HttpError(404, f"topic {topic} has no channel {name}")
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

    # nodes

    async def nodes(self, request: Request) -> Fields:
        found, stale, who = await self.looks.producers(), self.looks.patient.stale(), who_asks(request)
        topics = {one.address: len(who.seen(dict(one.topics))) for one in found.producers}
        ours = await self.looks.ours(found.producers)
        draining = await self.looks.soon(ours, "/node/drain", SELDOM / 2)
        return {
            "page_of": "nodes",
            "title": "Nodes",
            "place": "/nodes",
            "producers": found.producers,
            "topics_of": topics,
            "ages": stale,
            "draining": {node for node, one in draining.answers.items() if one.get("draining") is True},
            "errors": found.errors,
            "lookupds": len(self.settings.lookupds),
            "table": [
                {"node": one.address, "hostname": one.hostname, "version": one.version, "topics": topics[one.address]}
                for one in found.producers
            ],
        }

    async def node(self, request: Request) -> Fields:
        asked, who = query(request), who_asks(request)
        producer = await self.looks.node(parameters(request, self.options, 2)[1])
        ours = await self.looks.ours([producer])
        names, totals, errors = await self._of_node(producer, is_ours=bool(ours))
        names = [name for name in who.seen(names) if asked.get("q", "").lower() in name.lower()]
        shown, page, pages = page_of(names, whole(asked.get("page", "1")))
        found = await self.looks.rows_at(producer, list(shown), is_ours=bool(ours))
        rows = [found[name] for name in shown if name in found]
        drain = await self.looks.of(ours, "/node/drain")
        return {
            "page_of": "node",
            "title": f"Node {producer.address}",
            "place": "",
            "node": producer.address,
            "rows": rows,
            "page": page,
            "pages": pages,
            "q": asked.get("q", "")[:64],
            "totals": [("version", producer.version), *(totals if who.sees_all else ())],
            "drain": drain_view(drain.answers.get(producer.address, {})),
            "extended": bool(ours),
            "errors": errors,
            "lookupds": self.settings.lookupds,
            "names": names[:1000],
            "table": [asdict(row) for row in rows],
        }

    async def _of_node(
        self, producer: Producer, *, is_ours: bool
    ) -> tuple[list[str], list[tuple[str, str]], list[str]]:
        """Names of its topics, what it has in all, and what went wrong."""
        if is_ours:
            told = await self.looks.of([producer], "/topics/figures", {"columns": ""})
            answer = told.answers.get(producer.address, {})
            totals, names = answer.get("totals"), answer.get("names")
            sums = totals if isinstance(totals, dict) else {}
            pairs = [(name.replace("_", " "), count(number(value))) for name, value in sums.items()]
            return [text(name) for name in names or ()] if isinstance(names, list) else [], pairs, told.errors
        stats = (
            await self.looks.watch.ask(("node", producer.address), lambda: self.looks.cluster.stats([producer]))
        ).now
        rows = [topic_row(one["topic_name"], [one]) for one in stats.topics]
        names = ("channels", "depth", "in_flight", "deferred", "messages", "clients")
        pairs = [(name.replace("_", " "), count(sum(getattr(row, name) for row in rows))) for name in names]
        return [row.name for row in rows], [("topics", count(len(rows))), *pairs], stats.errors

    async def storage(self, request: Request) -> Fields:
        who = who_asks(request)
        ours = await self.looks.all_ours()
        told = await self.looks.of(ours, "/storage")
        node = query(request).get("node", "")
        views = {address: storage_view(one, who) for address, one in told.answers.items()}
        return {
            "page_of": "storage",
            "title": "Storage",
            "place": "/storage",
            "rows": views,
            "node": node if node in views else "",
            "errors": told.errors,
            "table": [
                {"node": address} | {key: value for key, value in view.items() if not isinstance(value, list)}
                for address, view in views.items()
            ],
        }

    async def readers(self, request: Request) -> Fields:
        asked, who = query(request), who_asks(request)
        ours = await self.looks.all_ours()
        arguments = {"limit": str(MOST_CURSORS)} | ({"after": asked["after"]} if asked.get("after") else {})
        told = await self.looks.of(ours, "/cursors", arguments)
        rows = _readers({node: objects(one.get("cursors")) for node, one in told.answers.items()}, "")
        rows = [row for row in rows if who.sees(row["topic"])]
        return {
            "page_of": "readers",
            "title": "Readers",
            "place": "/readers",
            "rows": rows,
            "errors": told.errors,
            "table": rows,
        }

    # the rest

    async def all_history(self, request: Request) -> Fields:
        return await self._history(request, "")

    async def history(self, request: Request) -> Fields:
        return await self._history(request, parameters(request, self.options, 2)[1])

    async def _history(self, request: Request, topic: str) -> Fields:
        if not self.options.lake:
            raise HttpError(404, "no lake was named: -lake, of what penstock pipeline archives")
        if not topic and not who_asks(request).sees_all:
            raise HttpError(403, "the history of everything is for those who see all topics")
        grain = query(request).get("grain", "hour")
        view = history_view(await self.past.told(topic, grain))
        return {
            "page_of": "history",
            "title": f"History of {topic}" if topic else "History",
            "place": "" if topic else "/history",
            "topic": topic,
            "lake": self.options.lake,
            "grains": list(GRAINS),
            "history": view,
            "still": True,
            "table": [{key: bar[key] for key in ("at", "messages", "bytes")} for bar in view["bars"]],
        }

    async def all_tasks(self, request: Request) -> Fields:
        who = who_asks(request)
        tasks = [task for task in self.tasks.all() if who.sees(task.topic)]
        return {"page_of": "tasks", "title": "Tasks", "place": "/tasks", "tasks": tasks}

    async def task(self, request: Request) -> Fields:
        word = parameters(request, self.options, 2)[1]
        task = self.tasks.find(whole(word, 0))
        if task is None or not who_asks(request).sees(task.topic):
            raise HttpError(404, "there is no such task, or it is forgotten: the audit page tells what was done")
        return {"page_of": "task", "title": f"Task {task.number}", "place": "", "task": task}

    async def lookup(self, request: Request) -> Fields:
        who = who_asks(request)
        inactive: dict[str, list[str] | None] = {}
        errors: list[str] = []
        if self.settings.lookupds:
            found = (await self.looks.watch.ask("topics", self.looks.cluster.topics)).now
            errors = found.errors
            question = lambda: self.api.inactive(found.names)  # noqa: E731
            inactive = (await self.looks.watch.ask("inactive", question, SELDOM)).now
        seen = {name: channels for name, channels in inactive.items() if who.sees(name)}
        return {
            "page_of": "lookup",
            "title": "Lookup",
            "place": "/lookup",
            "lookupds": self.settings.lookupds,
            "inactive": dict(islice(seen.items(), MOST_INACTIVE)),
            "inactive_left_out": max(0, len(seen) - MOST_INACTIVE),
            "errors": errors,
        }

    async def counter(self, request: Request) -> Fields:
        if not who_asks(request).sees_all:
            raise HttpError(403, "sums over all topics are for those who see all topics")
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

    async def audit(self, request: Request) -> Fields:
        asked = query(request)
        words, before = asked.get("q", "")[:200], asked.get("before", "")[:40]
        records = await self.audit_trail.search(words, before, MOST_LISTED)
        return {
            "page_of": "audit",
            "title": "Audit",
            "place": "/audit",
            "records": records,
            "q": words,
            "before": before,
            "following": records[-1]["time"] if len(records) == MOST_LISTED else "",
            "path": self.audit_trail.path,
            "still": bool(before),
            "table": records,
        }


def _left_out(rows: Sequence[object], what: str) -> list[str]:
    """What to say of rows that a page has no place for."""
    return [f"{len(rows) - MOST_ROWS} more {what} are not shown: export the table"] if len(rows) > MOST_ROWS else []


def _totals(overview: Overview) -> list[tuple[str, str]]:
    names = (
        ("messages waiting", "depth"),
        ("in flight", "in_flight"),
        ("deferred", "deferred"),
        ("clients", "clients"),
    )
    told = [(words, count(overview.totals[name])) for words, name in names]
    if overview.totals["buried"]:
        told.append(("buried", count(overview.totals["buried"])))
    if overview.oldest:
        told.append(("the oldest waits for", age(overview.oldest, time.time_ns())))
    return told


def _channel_rows(stats: Stats | None) -> list[Row]:
    return [channel_row(told) for _, told in sorted(stats.channels().items())] if stats else []


def _with_rates(rows: Iterable[Row], before: list[Row], seconds: float) -> list[Row]:
    known = {row.name: row for row in before}
    return [_with_rate(row, known.get(row.name), seconds) for row in rows]


def _with_rate(row: Row, before: Row | None, seconds: float, *, per_channel: bool = False) -> Row:
    return with_rates(row, before, seconds, max(1, row.channels) if per_channel else 1)


def _readers(told: dict[str, list[Told]], topic: str) -> list[Told]:
    """Cursors of nodes, those that are the furthest behind first."""
    rows = [
        {
            "topic": topic or text(one.get("topic")),
            "name": text(one.get("name")),
            "node": node,
            "owner": text(one.get("owner")),
            "offset": number(one.get("offset")),
            "lag": number(one.get("lag")),
            "gone": number(one.get("gone")),
            "hold": text(one.get("hold")),
            "updated": number(one.get("updated")),
        }
        for node, cursors in told.items()
        for one in cursors[:MOST_CURSORS]
    ]
    return sorted(rows, key=lambda row: (-row["lag"], row["topic"], row["name"], row["node"]))

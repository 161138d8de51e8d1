"""The pages: server-rendered, so that they can be read without a script; with one, the part that lives comes again by SSE.

Nothing is changed by GET. A POST must come from a page of ours: browsers say where it comes from.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

import jinja2
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response, StreamingResponse

from admin.access import Access
from admin.actions import CHANGES, Actions, Actor
from admin.api import JsonApi, Settings, parameters, warning
from admin.cluster import AllFailed, Cluster, Producer, Stats
from admin.merge import Told, merged_channel, merged_topic, number, objects, text
from admin.options import AdminOptions
from admin.series import summed
from admin.upstreams import UpstreamError
from admin.views import FILTERS, Row, channel_row, chosen, count, message_view, page_of, topic_row, with_rates
from admin.watch import Seen, Watch
from penstock.protocol.names import is_valid_name
from shared.http.api import Handler, Routes, json_response, query, read_body
from shared.http.errors import HttpError
from shared.version import PENSTOCK_VERSION

HERE = Path(__file__).parent
EVERY = 2.0  # s between two times that a page comes again
LONGEST = 3600.0  # s of one stream; then the page connects again
MOST_FORM = 1024 * 1024 + 65536  # bytes
MOST_SHOWN = 20  # messages on a page
PREVIEW = 16 * 1024  # bytes of each
STATES = ("ready", "in_flight", "deferred", "buried")
ON_MESSAGES = ("finish", "requeue", "kick", "bury")
_LOG = "log"  # the capability of a node whose messages can be looked at
_TYPES = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'"
    " data:; form-action 'self'; frame-ancestors 'none'; base-uri 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cache-Control": "no-store",
}
_COLUMNS = (
    ("name", "topic", ""),
    ("rate_in", "published/s", "n"),
    ("rate_out", "finished/s", "n"),
    ("depth", "depth", "n"),
    ("in_flight", "in flight", "n"),
    ("deferred", "deferred", "n"),
    ("messages", "messages", "n"),
    ("channels", "channels", "n"),
    ("clients", "clients", "n"),
    ("depth", "time to drain", "n"),
)

Fields = dict[str, Any]


@dataclass(slots=True)
class Pages:
    """The functions behind the routes."""

    options: AdminOptions
    settings: Settings
    cluster: Cluster
    actions: Actions
    access: Access
    api: JsonApi
    watch: Watch = field(default_factory=Watch)
    _templates: jinja2.Environment = field(init=False)

    def __post_init__(self) -> None:
        self._templates = jinja2.Environment(
            loader=jinja2.FileSystemLoader(HERE / "templates"), autoescape=True, undefined=jinja2.StrictUndefined,
            trim_blocks=True, lstrip_blocks=True,
        )  # fmt: skip
        self._templates.filters |= FILTERS

    def routes(self) -> Routes:
        """Every path and its methods."""
        shown: dict[str, Callable[[Request], Awaitable[Fields]]] = {
            "/": self.topics,
            "/topics": self.topics,
            "/topics/{topic}": self.topic,
            "/topics/{topic}/{channel}": self.channel,
            "/messages/{topic}/{channel}": self.messages,
            "/nodes": self.nodes,
            "/nodes/{node}": self.node,
            "/lookup": self.lookup,
            "/counter": self.counter,
        }
        posted: dict[str, Callable[[Request, dict[str, str]], Awaitable[str]]] = {
            "/topics/{topic}": self.change,
            "/topics/{topic}/{channel}": self.change,
            "/messages/{topic}/{channel}": self.change_message,
            "/nodes/{node}": self.tombstone,
            "/lookup": self.create_or_forget,
        }
        routes: dict[str, dict[str, Handler]] = {path: {"GET": self._shown(view)} for path, view in shown.items()}
        for path, do in posted.items():
            routes[path]["POST"] = self._posted(do)
        routes["/static/{asset}"] = {"GET": self.asset}
        routes["/series/{topic}"] = {"GET": self.series}
        return routes

    async def asset(self, request: Request) -> Response:
        """A file of ours; a name is no path."""
        path = HERE / "static" / request.scope["path"].rpartition("/")[2]
        if path.suffix not in _TYPES or not path.is_file():
            raise HttpError(404, "NOT_FOUND")
        headers = {"Cache-Control": "public, max-age=3600", "X-Content-Type-Options": "nosniff"}
        return Response(path.read_bytes(), media_type=_TYPES[path.suffix], headers=headers)

    async def series(self, request: Request) -> Response:
        """What a topic did lately, of all nodes together: for its charts. Shapes: admin.series."""
        name = parameters(request, self.options, 2)[1]
        producers = (await self.watch.ask(("producers", name), lambda: self.cluster.producers_of(name))).now.producers
        addresses = [one.address for one in producers if await self._is_ours(one, name)]
        ask = partial(self.cluster.upstreams.get_object, path="/topic/series", arguments={"topic": name})
        gathered = await self.cluster.upstreams.all_of(addresses, ask)
        told = list(gathered.answers.values())
        return json_response({span: summed([one.get(span) for one in told]) for span in ("hour", "day")})

    # What is shown

    async def topics(self, request: Request) -> Fields:
        asked = query(request)
        having, sort = asked.get("q", "")[:64], asked.get("sort", "name")
        errors, seen = await self._everything()
        rows = _with_rates(_topic_rows(seen.now), _topic_rows(seen.before), seen.seconds)
        named = {row.name for row in rows}
        names = [] if not self.settings.lookupds else (await self.watch.ask("topics", self.cluster.topics)).now.names
        rows += [Row(name, False, *[0] * 8) for name in names if name not in named]
        shown, page, pages = page_of(chosen(rows, having, sort), _whole(asked.get("page", "1")))
        totals = [
            ("topics", count(len(rows))), ("messages waiting", count(sum(row.depth for row in rows))),
            ("in flight", count(sum(row.in_flight for row in rows))), ("clients", count(sum(row.clients for row in rows))),
        ]  # fmt: skip
        return {
            "page_of": "topics",
            "title": "Topics",
            "place": "/",
            "rows": shown,
            "page": page,
            "pages": pages,
            "q": having,
            "sort": sort,
            "totals": totals,
            "columns": _COLUMNS,
            "errors": errors,
            "paused": [row.name for row in rows if row.paused],
        }

    async def topic(self, request: Request) -> Fields:
        name = parameters(request, self.options, 2)[1]
        producers, errors, seen = await self._of_topic(name)
        told, rows = merged_topic(name, seen.now.topics), _channel_rows(seen.now)
        paused = [*([name] if told["paused"] else []), *(row.name for row in rows if row.paused)]
        return {
            "page_of": "topic",
            "title": f"Topic {name}",
            "place": "",
            "name": name,
            "topic": told,
            "errors": errors,
            "paused": paused,
            "channels": _with_rates(rows, _channel_rows(seen.before), seen.seconds),
            "nodes": [one.address for one in producers],
            "charted": any([await self._is_ours(one, name) for one in producers]),
        }

    async def channel(self, request: Request) -> Fields:
        _, topic, name = parameters(request, self.options, 3)
        producers, errors, seen = await self._of_topic(topic, name, clients=True)
        parts = [one for node in seen.now.topics for one in node["channels"] or () if one["channel_name"] == name]
        if not parts:
            raise HttpError(404, f"topic {topic} has no channel {name}")
        told = merged_channel(topic, name, parts)
        browsable = [one.address for one in producers if await self._is_ours(one, topic)]
        return {
            "page_of": "channel",
            "title": f"Channel {name}",
            "place": "",
            "topic_name": topic,
            "name": name,
            "channel": told,
            "errors": errors,
            "paused": [name] if told["paused"] else [],
            "browsable": browsable,
        }

    async def messages(self, request: Request) -> Fields:
        _, topic, name = parameters(request, self.options, 3)
        asked = query(request)
        state, node = asked.get("state", "ready"), asked.get("node", "")
        if state not in STATES:
            raise HttpError(400, f"there is no state {state[:64]}")
        await self._carrying(topic, node)
        arguments = {"topic": topic, "channel": name, "state": state, "limit": str(MOST_SHOWN), "preview": str(PREVIEW)}
        arguments |= {"after": asked["after"]} if "after" in asked else {}
        told = await self.cluster.upstreams.get_object(node, "/channel/messages", arguments)
        return {
            "page_of": "messages",
            "title": f"Messages of {name}",
            "place": "",
            "topic_name": topic,
            "name": name,
            "state": state,
            "node": node,
            "total": number(told.get("total")),
            "following": text(told.get("next")),
            "errors": [],
            "messages": [message_view(one) for one in objects(told.get("messages"))],
            "still": True,
        }

    async def nodes(self, request: Request) -> Fields:
        found = (await self.watch.ask("producers", self.cluster.producers)).now
        return {
            "page_of": "nodes",
            "title": "Nodes",
            "place": "/nodes",
            "producers": found.producers,
            "errors": found.errors,
            "lookupds": len(self.settings.lookupds),
        }

    async def node(self, request: Request) -> Fields:
        address = parameters(request, self.options, 2)[1]
        found = (await self.watch.ask("producers", self.cluster.producers)).now
        producer = next((one for one in found.producers if one.address == address), None)
        if producer is None:
            raise HttpError(404, f"no nsqd is known at {address}")
        seen = await self.watch.ask(("node", address), lambda: self.cluster.stats([producer]))
        channels = [one for topic in seen.now.topics for one in topic["channels"] or ()]
        totals = [
            ("version", producer.version), ("topics", count(len(seen.now.topics))), ("channels", count(len(channels))),
            ("messages", count(sum(topic["message_count"] for topic in seen.now.topics))),
            ("clients", count(sum(one["client_count"] for one in channels))),
        ]  # fmt: skip
        paused = [one["topic_name"] for one in seen.now.topics if one["paused"]]
        paused += [f"{one['topic_name']}/{one['channel_name']}" for one in channels if one["paused"]]
        return {
            "page_of": "node",
            "title": f"Node {address}",
            "place": "",
            "topics": seen.now.topics,
            "totals": totals,
            "paused": paused,
            "errors": found.errors,
            "lookupds": self.settings.lookupds,
        }

    async def lookup(self, request: Request) -> Fields:
        inactive: dict[str, list[str] | None] = {}
        errors: list[str] = []
        if self.settings.lookupds:
            found = (await self.watch.ask("topics", self.cluster.topics)).now
            errors = found.errors
            inactive = (await self.watch.ask("inactive", lambda: self.api.inactive(found.names))).now
        return {
            "page_of": "lookup",
            "title": "Lookup",
            "place": "/lookup",
            "lookupds": self.settings.lookupds,
            "inactive": inactive,
            "errors": errors,
        }

    async def counter(self, request: Request) -> Fields:
        errors, seen = await self._everything()
        total, before = _received(seen.now), _received(seen.before) if seen.before else None
        speed = (total - before) / seen.seconds if before is not None and seen.seconds and total >= before else None
        return {
            "page_of": "counter",
            "title": "Counter",
            "place": "/counter",
            "total": total,
            "rate_in": speed,
            "errors": errors,
        }

    # What is done: each returns where to go then

    async def change(self, request: Request, form: dict[str, str]) -> str:
        _, topic, *rest = parameters(request, self.options)
        channel, action, actor = "".join(rest), form.get("action", ""), self.access.actor(request)
        if action == "publish" and not channel:
            return await self._publish(topic, form, actor)
        if action not in (*CHANGES, "delete"):
            raise HttpError(400, "no such action")
        if action in ("empty", "delete") and form.get("confirm") != (channel or topic):
            raise HttpError(400, f"type the name {channel or topic} to confirm: nothing was done")
        if action == "delete":
            errors = await self.actions.delete(topic, channel, actor)
        else:
            errors = await self.actions.change(action, topic, channel, actor)
        if errors:
            raise HttpError(502, warning(errors))
        if action == "delete":
            return self._url("topics", topic) if channel else self._url()
        return self._url("topics", topic, *rest)

    async def _publish(self, topic: str, form: dict[str, str], actor: Actor) -> str:
        node, body = form.get("node", ""), form.get("body", "").encode()
        await self._carrying(topic, node)
        await self.actions.publish(node, topic, body, actor)
        return self._url("topics", topic)

    async def change_message(self, request: Request, form: dict[str, str]) -> str:
        _, topic, channel = parameters(request, self.options, 3)
        action, node, state = form.get("action", ""), form.get("node", ""), form.get("state", "")
        if action not in ON_MESSAGES or state not in STATES:
            raise HttpError(400, "no such action")
        await self._carrying(topic, node)
        asked = {"topic": topic, "channel": channel, "offset": form.get("offset", "")}
        await self.actions.change_messages(action, node, asked, self.access.actor(request))
        return f"{self._url('messages', topic, channel)}?{FILTERS['arguments']({'node': node, 'state': state})}"

    async def tombstone(self, request: Request, form: dict[str, str]) -> str:
        node = parameters(request, self.options, 2)[1]
        topic = form.get("topic", "")
        if not is_valid_name(topic) or form.get("confirm") != topic:
            raise HttpError(400, f"type the name {topic} to confirm: nothing was done")
        errors = await self.actions.tombstone(topic, node, self.access.actor(request))
        if errors:
            raise HttpError(502, warning(errors))
        return self._url("nodes", node)

    async def create_or_forget(self, request: Request, form: dict[str, str]) -> str:
        topic, channel, actor = form.get("topic", ""), form.get("channel", ""), self.access.actor(request)
        if not is_valid_name(topic) or (channel and not is_valid_name(channel)):
            raise HttpError(400, "a name has 1 to 64 of the characters . a-z A-Z 0-9 _ -")
        if form.get("action") == "delete":
            errors = await self.actions.delete(topic, "", actor)
        else:
            errors = await self.actions.create(topic, channel, actor)
        if errors:
            raise HttpError(502, warning(errors))
        return self._url("lookup")

    # What all of it needs

    async def _everything(self) -> tuple[list[str], Seen[Stats]]:
        found = (await self.watch.ask("producers", self.cluster.producers)).now
        if not found.producers:
            return found.errors, Seen(Stats())
        seen = await self.watch.ask("stats", lambda: self.cluster.stats(found.producers))
        return found.errors + seen.now.errors, seen

    async def _of_topic(
        self, topic: str, channel: str = "", *, clients: bool = False
    ) -> tuple[list[Producer], list[str], Seen[Stats]]:
        found = (await self.watch.ask(("producers", topic), lambda: self.cluster.producers_of(topic))).now
        if not found.producers:
            return [], found.errors, Seen(Stats())
        question = lambda: self.cluster.stats(found.producers, topic, channel, clients=clients)  # noqa: E731
        seen = await self.watch.ask(("stats", topic, channel), question)
        return found.producers, found.errors + seen.now.errors, seen

    async def _carrying(self, topic: str, node: str) -> None:
        """The node is one of the cluster, and has the topic: nobody makes us ask anybody else. HttpError 404 if not."""
        found = (await self.watch.ask(("producers", topic), lambda: self.cluster.producers_of(topic))).now
        if node not in [one.address for one in found.producers]:
            raise HttpError(404, f"no nsqd at {node[:100]} has the topic {topic}")

    async def _is_ours(self, producer: Producer, topic: str) -> bool:
        """It can do what an original cannot: nsqlookupd says so, or, where nodes were named by hand, it does."""
        if self.settings.lookupds:
            return _LOG in producer.capabilities
        address = producer.address
        question = lambda: self.cluster.upstreams.get_object(address, "/topic/offsets", {"topic": topic})  # noqa: E731
        try:
            return "log" in (await self.watch.ask(("log", address, topic), question)).now
        except UpstreamError:
            return False

    def _shown(self, view: Callable[[Request], Awaitable[Fields]]) -> Handler:
        """A page, or with ?live the part of it that lives, again and again."""

        async def handler(request: Request) -> Response:
            if "live" in query(request):
                stream = self._stream(request, view)
                return StreamingResponse(stream, media_type="text/event-stream", headers=_HEADERS)
            status, fields = await self._fields(request, view)
            return self._page(request, fields, status)

        return handler

    async def _fields(self, request: Request, view: Callable[[Request], Awaitable[Fields]]) -> tuple[int, Fields]:
        """What the view has, or a page that says why it has nothing."""
        try:
            return 200, await view(request)
        except HttpError as error:
            return error.status, _wrong(error.text, "")
        except (AllFailed, UpstreamError) as failed:
            words = str(failed)
            if "TOPIC_NOT_FOUND" in words:  # of every nsqlookupd
                return 404, _wrong("No nsqlookupd knows such a topic.", "It may have been deleted.")
            return 502, _wrong(words, "This page asks again every two seconds.")

    async def _stream(self, request: Request, view: Callable[[Request], Awaitable[Fields]]) -> AsyncIterator[str]:
        left = LONGEST
        while left > 0 and not await request.is_disconnected():
            await asyncio.sleep(EVERY)
            left -= EVERY
            _, fields = await self._fields(request, view)
            html = self._templates.get_template(f"{fields['page_of']}_live.html").render(
                **self._common(request), **fields
            )
            yield "".join(f"data: {line}\n" for line in html.splitlines()) + "\n"

    def _page(self, request: Request, fields: Fields, status: int = 200) -> Response:
        live = "" if fields.get("still") else "?" + FILTERS["arguments"]({**query(request), "live": 1})
        name = fields["page_of"] if (HERE / "templates" / f"{fields['page_of']}.html").exists() else "plain"
        name_of = f"{fields['page_of']}_live.html"
        common = self._common(request) | {"content": name_of, "live": live, "charted": False}
        html = self._templates.get_template(f"{name}.html").render(**common | fields)
        return Response(html, status, _HEADERS, "text/html; charset=utf-8")

    def _common(self, request: Request) -> Fields:
        here = (
            self.options.base_path.rstrip("/")
            + "/"
            + "/".join(FILTERS["segment"](part) for part in parameters(request, self.options))
        )
        base = self.options.base_path.rstrip("/")
        may = self.access.may_change(request)
        return {"base": base, "here": here, "may_change": may, "version": f"penstock {PENSTOCK_VERSION}"}

    def _url(self, *parts: str) -> str:
        return self.options.base_path.rstrip("/") + "/" + "/".join(map(FILTERS["segment"], parts))

    def _posted(self, do: Callable[[Request, dict[str, str]], Awaitable[str]]) -> Handler:
        async def handler(request: Request) -> Response:
            try:
                self.access.check_change(request)
                _check_origin(request)
                form = dict(
                    parse_qsl((await read_body(request, MOST_FORM, "too much")).decode(), keep_blank_values=True)
                )
                where = await do(request, form)
            except (HttpError, AllFailed, UpstreamError, ValueError) as error:
                status = error.status if isinstance(error, HttpError) else 400 if isinstance(error, ValueError) else 502
                words = error.text if isinstance(error, HttpError) else str(error)
                return self._page(request, _wrong(words, "Go back, and try again.") | {"still": True}, status)
            finally:
                self.watch.forget()
            return RedirectResponse(where, 303, _HEADERS)

        return handler


def _check_origin(request: Request) -> None:
    """403 if no browser says that a page of ours has sent it. A foreign Origin was refused before."""
    if "origin" not in request.headers and request.headers.get("sec-fetch-site") != "same-origin":
        raise HttpError(403, "a form must be sent by a page of nsqadmin: scripts find the API below /api")


def _wrong(words: str, advice: str) -> Fields:
    return {"page_of": "error", "title": "That went wrong", "place": "", "words": words, "advice": advice}


def _whole(value: str) -> int:
    return int(value) if value.isascii() and value.isdigit() and len(value) < 9 else 1


def _topic_rows(stats: Stats | None) -> list[Row]:
    parts: dict[str, list[Told]] = {}
    for one in stats.topics if stats else ():
        parts.setdefault(one["topic_name"], []).append(one)
    return [topic_row(name, same) for name, same in parts.items()]


def _channel_rows(stats: Stats | None) -> list[Row]:
    return [channel_row(told) for _, told in sorted(stats.channels().items())] if stats else []


def _with_rates(rows: list[Row], before: list[Row], seconds: float) -> list[Row]:
    known = {row.name: row for row in before}
    return [with_rates(row, known.get(row.name), seconds, max(1, row.channels)) for row in rows]


def _received(stats: Stats) -> int:
    return sum(channel["message_count"] for topic in stats.topics for channel in topic["channels"] or ())

"""The original's JSON API: its routes, shapes, words and quirks.

If no node answers, the API answers 502 UPSTREAM_ERROR. If some nodes do not, or a command fails, it answers 200 with a WARNING.

See docs/contributing/design/nsq-http.md#nsqadmins-json-api.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

import httpx
from starlette.requests import Request
from starlette.responses import Response

from admin.messages.actions import CHANGES, Actions
from admin.nodes.cluster import AllFailed, Cluster, Producers, Stats
from admin.nodes.inactive import channels_of
from admin.nodes.merge import merged_topic
from admin.nodes.places import Settings
from admin.options import AdminOptions
from admin.output.layout import parameters
from admin.users.access import Access, check_action, place_of, who_asks
from penstock.protocol.names import is_valid_name
from shared.cluster.merge import cluster_states
from shared.http.api import Handler, Routes, json_response, plain, query, read_body
from shared.http.bounded import IDENTITY, AnswerError, parse_json, read_answer
from shared.http.errors import HttpError
from shared.http.options import LOG_LEVEL, go_log_level, option_response, read_addresses, set_log_level
from shared.json_fields import JsonObject
from shared.log import log
from shared.options import specs
from shared.secrets import hide
from shared.text import without_surrogates
from shared.values import SECOND

MOST_BODY = 1024 * 1024  # bytes
MOST_LOOKUPDS = 100
MOST_PICTURE = 16 * 1024 * 1024  # bytes of an answer of graphite
MOST_POINTS = 1024 * 1024  # bytes of graphite's answer with a rate, also of memory once it is parsed
NO_GRAPHITE = (TimeoutError, AnswerError, httpx.HTTPError, httpx.InvalidURL, ValueError)
LOOKUPDS = "nsqlookupd_http_addresses"
_PICTURES = ("image/png", "image/svg+xml", "application/json", "text/csv", "application/pdf")


@dataclass(slots=True)
class JsonApi:
    """The request handlers of the JSON API."""

    options: AdminOptions
    settings: Settings
    cluster: Cluster
    actions: Actions
    access: Access

    def routes(self) -> Routes:
        """Return the handlers of every path, by method."""
        routes: dict[str, dict[str, Handler]] = {
            "/ping": {"GET": self.ping},
            "/api/topics": {"GET": self.topics, "POST": self.create},
            "/api/topics/{topic}": {"GET": self.topic, "POST": self.change, "DELETE": self.delete},
            "/api/topics/{topic}/{channel}": {"GET": self.channel, "POST": self.change, "DELETE": self.delete},
            "/api/nodes": {"GET": self.nodes},
            "/api/nodes/{node}": {"GET": self.node, "DELETE": self.tombstone},
            "/api/cluster": {"GET": self.clusters},
            "/api/counter": {"GET": self.counter},
            "/api/graphite": {"GET": self.graphite},
            "/config/{option}": {"GET": self.get_config, "PUT": self.put_config},
        }
        if self.options.proxy_graphite:
            routes["/render"] = {"GET": self.render}
        return {path: {method: _reporting(one) for method, one in methods.items()} for path, methods in routes.items()}

    # Queries

    async def ping(self, request: Request) -> Response:
        return plain(200, "OK")

    async def topics(self, request: Request) -> Response:
        found = await self.cluster.topics()
        names = who_asks(request).visible(found.names)
        if query(request).get("inactive") != "true":
            return _answer({"topics": names}, found.errors)
        return _answer({"topics": await self.inactive(names) if self.settings.lookupds else {}}, found.errors)

    async def inactive(self, topics: Iterable[str]) -> dict[str, list[str] | None]:
        """Return the topics that no nsqd has, with the channels that nsqlookupd knows of them."""
        nodes = (await self.cluster.producers()).producers
        carried = {name for one in nodes for name, tombstoned in one.topics if not tombstoned}
        left = [topic for topic in topics if topic not in carried]
        return await channels_of(self.cluster.upstreams, self.cluster.lookupds, left)

    async def topic(self, request: Request) -> Response:
        [topic] = place_of(request)
        stats = await self._stats(await self.cluster.producers_of(topic), topic)
        return await self._answer_from(stats, lambda: merged_topic(topic, stats.topics))

    async def channel(self, request: Request) -> Response:
        topic, channel = place_of(request)
        stats = await self._stats(await self.cluster.producers_of(topic), topic, channel, clients=True)
        return await self._answer_from(stats, lambda: stats.channels().get((topic, channel), {}))

    async def nodes(self, request: Request) -> Response:
        found, sees = await self.cluster.producers(), who_asks(request).sees
        visible = (replace(one, topics=tuple(pair for pair in one.topics if sees(pair[0]))) for one in found.producers)
        return _answer({"nodes": [one.json() for one in visible] or None}, found.errors)

    async def node(self, request: Request) -> Response:
        address = parameters(request, self.options, 2)[1]
        found = await self.cluster.producers()
        found.producers = [one for one in found.producers if one.address == address][:1]
        if not found.producers:
            raise HttpError(404, "NODE_NOT_FOUND")
        stats = await self._stats(found, clients=True)
        topics = [topic for topic in stats.topics if who_asks(request).sees(topic["topic_name"])]
        data: JsonObject = {
            "node": address,
            "topics": topics or None,
            "total_messages": sum(topic["message_count"] for topic in topics),
            "total_clients": sum(len(channel["clients"] or ()) for topic in topics for channel in topic["channels"]),
        }
        return await self._answer_from(stats, lambda: data)

    async def clusters(self, request: Request) -> Response:
        """Return the clusters of nodes that copy their logs: the original has no such route."""
        producers = await self.cluster.producers()
        gathered = await self.cluster.cluster_answers(producers.producers)

        def answer() -> Response:
            found = cluster_states(gathered.answers)
            errors = producers.errors + gathered.errors + found.errors
            return _answer({"clusters": [one.json() for one in found.clusters]}, errors)

        return await self.cluster.upstreams.answer_budget.run_in_thread(gathered.memory, answer)

    async def counter(self, request: Request) -> Response:
        stats, who = await self._stats(await self.cluster.producers()), who_asks(request)
        visible = [one for one in stats.topics if who.sees(one["topic_name"])]
        return await self._answer_from(stats, lambda: {"stats": _counts(visible)})

    async def _stats(self, found: Producers, topic: str = "", channel: str = "", *, clients: bool = False) -> Stats:
        """Return the stats of these nodes, with the errors of both requests."""
        stats = await self.cluster.stats(found.producers, topic, channel, clients=clients)
        stats.errors = found.errors + stats.errors
        return stats

    async def _answer_from(self, stats: Stats, make: Callable[[], JsonObject]) -> Response:
        """Return the answer of `make`, which runs in a thread if `stats` is large."""
        budget = self.cluster.upstreams.answer_budget
        return await budget.run_in_thread(stats.memory, lambda: _answer(make(), stats.errors))

    async def graphite(self, request: Request) -> Response:
        """Return the rate of a counter, as graphite has it."""
        arguments = query(request)
        if arguments.get("metric") != "rate":
            raise HttpError(400, "INVALID_ARG_METRIC")
        if "target" not in arguments:
            raise HttpError(400, "INVALID_ARG_TARGET")
        interval = self.options.statsd_interval // SECOND
        asked = {
            "from": f"-{2 * interval}sec",
            "until": f"-{interval}sec",
            "format": "json",
            "target": arguments["target"],
        }
        try:
            content, _ = await self._ask_graphite(f"{self.options.graphite_url}/render", asked, MOST_POINTS)
            rate = float(parse_json(content, MOST_POINTS)[0]["datapoints"][0][0])
        except (*NO_GRAPHITE, LookupError, TypeError) as error:
            self._log_graphite(error)
            raise HttpError(500, "INTERNAL_ERROR") from None
        return json_response({"rate": f"{rate / interval:.2f}" if rate >= 0 else "N/A"})

    async def render(self, request: Request) -> Response:
        """Proxy graphite's picture or JSON, for browsers that cannot reach graphite. Raises HttpError 502 without an answer."""
        asked = request.scope["query_string"].decode("latin-1")
        url = f"{self.options.graphite_url.rstrip('/')}/render?{asked}"
        try:
            content, answer = await self._ask_graphite(url, None, MOST_PICTURE)
        except AnswerError as error:
            raise HttpError(502, f"UPSTREAM_ERROR: graphite {error}") from None
        except NO_GRAPHITE as error:
            self._log_graphite(error)
            raise HttpError(502, "UPSTREAM_ERROR: graphite does not answer") from None
        kind = answer.headers.get("content-type", "")
        # Do not serve a foreign page under nsqadmin's name.
        kind = kind if kind.startswith(_PICTURES) else "application/octet-stream"
        headers = {"Content-Security-Policy": "default-src 'none'; sandbox"}
        return Response(content, answer.status_code, headers, kind)

    def _log_graphite(self, error: Exception) -> None:
        log.error("GRAPHITE: %s: %s", hide(self.options.graphite_url), str(error) or type(error).__name__)

    async def _ask_graphite(
        self, url: str, arguments: dict[str, str] | None, most: int
    ) -> tuple[bytes, httpx.Response]:  # fmt: skip
        """Return graphite's answer of at most `most` bytes. Raises the exceptions in NO_GRAPHITE."""
        timeout = self.options.http_client_request_timeout / SECOND
        async with (
            asyncio.timeout(timeout),
            httpx.AsyncClient(timeout=timeout, trust_env=False) as client,
            client.stream("GET", url, params=arguments, headers=IDENTITY) as answer,
        ):
            if arguments is not None:
                answer.raise_for_status()
            return await read_answer(answer, most), answer

    # Commands

    async def create(self, request: Request) -> Response:
        data = await _body(request)
        topic, channel = _text(data, "topic"), _text(data, "channel")
        if not is_valid_name(topic):
            raise HttpError(400, "INVALID_TOPIC")
        if channel and not is_valid_name(channel):
            raise HttpError(400, "INVALID_CHANNEL")
        check_action(who_asks(request), "create", topic)
        return _answer({}, (await self.actions.create(topic, channel, self.access.actor(request))).errors)

    async def delete(self, request: Request) -> Response:
        topic, *channel = place_of(request)
        return _answer({}, (await self.actions.delete(topic, "".join(channel), self.access.actor(request))).errors)

    async def change(self, request: Request) -> Response:
        topic, *channel = place_of(request)
        action = _text(await _body(request), "action")
        if action not in CHANGES:
            raise HttpError(400, "INVALID_ACTION")
        check_action(who_asks(request), action, topic, *channel)
        outcome = await self.actions.change(action, topic, "".join(channel), self.access.actor(request))
        return _answer({}, outcome.errors)

    async def tombstone(self, request: Request) -> Response:
        node = parameters(request, self.options, 2)[1]
        try:
            topic = _text(await _body(request), "topic")
        except HttpError as error:
            raise HttpError(400, "INVALID_BODY") if error.status == 400 else error from None
        if not is_valid_name(topic):
            raise HttpError(400, "INVALID_TOPIC")
        check_action(who_asks(request), "tombstone", topic)
        return _answer({}, (await self.actions.tombstone(topic, node, self.access.actor(request))).errors)

    # Options

    async def get_config(self, request: Request) -> Response:
        self.access.check_config(request)
        return self._option(parameters(request, self.options, 2)[1])

    async def put_config(self, request: Request) -> Response:
        self.access.check_config(request)
        body = await read_body(request, MOST_BODY, "INVALID_VALUE")
        if not body:
            raise HttpError(413, "INVALID_VALUE")
        key = parameters(request, self.options, 2)[1]
        if key == LOOKUPDS:
            self.settings.lookupds = tuple(read_addresses(body, MOST_LOOKUPDS))
        elif key == LOG_LEVEL:
            set_log_level(body)
        else:
            raise HttpError(400, "INVALID_OPTION")
        self.actions.note("configure", key, self.access.actor(request), value=body.decode("utf-8", "replace")[:200])
        return self._option(key)

    def _option(self, key: str) -> Response:
        names = {spec.key: spec.name for spec in specs(AdminOptions, "nsqadmin") if spec.in_file}
        if key not in names:
            raise HttpError(400, "INVALID_OPTION")
        current: dict[str, object] = {LOOKUPDS: list(self.settings.lookupds), LOG_LEVEL: go_log_level()}
        return option_response(current.get(key, getattr(self.options, names[key])))


def _reporting(handler: Handler) -> Handler:
    """Return the handler with an answer for the case that no node answers."""

    async def handle(request: Request) -> Response:
        try:
            return await handler(request)
        except AllFailed as failed:
            raise HttpError(502, f"UPSTREAM_ERROR: {failed}") from None

    return handle


def _answer(data: JsonObject, errors: Iterable[str]) -> Response:
    """Return an answer with the warning about nodes that it lacks."""
    text = "; ".join(errors)
    return json_response({**data, "message": f"WARNING: {text}" if text else ""})


def _counts(topics: Iterable[JsonObject]) -> JsonObject:
    """Return the number of messages of each channel on each node, by "topic:channel:node"."""
    counts: dict[str, JsonObject] = {}
    for topic in topics:
        for channel in topic["channels"]:
            names = {"node": topic["node"], "topic_name": topic["topic_name"], "channel_name": channel["channel_name"]}
            key = "{topic_name}:{channel_name}:{node}".format_map(names)
            counts[key] = names | {"message_count": channel["message_count"]}
    return dict(sorted(counts.items()))


async def _body(request: Request) -> dict[str, Any]:
    try:
        data = json.loads(await read_body(request, MOST_BODY, "BODY_TOO_BIG") or b"")
    except (ValueError, RecursionError) as error:
        raise HttpError(400, without_surrogates(str(error))[:200]) from None
    if not isinstance(data, dict):
        raise HttpError(400, "expected an object")
    return data


def _text(data: dict[str, Any], key: str) -> str:
    """Return a text in a body, or "" if it is absent. Raises HttpError 400 for another type."""
    value = data.get(key)
    if value is not None and not isinstance(value, str):
        raise HttpError(400, f"{key}: expected a string")
    return value or ""

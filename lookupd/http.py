"""nsqlookupd's HTTP API: which nsqd has which topic, for consumers, nsqd, nsqadmin and operators.

Handlers run in the HTTP thread and touch the registry only through the bridge. The values that come back are immutable and
are turned into JSON here. The API has more than the original: /topics/inactive, /metrics, /livez and /readyz. It lacks the
original's /debug/pprof.

    GET /lookup?topic=t&wait=30s&version=V
        a long poll: answers with another version than V as soon as there is one, otherwise after `wait`. The answer, 404
        TOPIC_NOT_FOUND, too, has a key more, `version`. `wait=0s` answers at once. Without `wait` the answer is NSQ's.
        503 TOO_MANY_POLLS: 5,000 requests wait, or 2,500 of one IP address

See docs/contributing/design/nsqlookupd.md#http-routes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from starlette.requests import Request
from starlette.responses import Response

from lookupd.cluster_nodes import ClusterNode
from lookupd.long_polls import LongPolls
from lookupd.net import ConnectionCounts
from lookupd.producers import Full, PeerInfo
from lookupd.registry import NEVER, Node, Registration, Registry
from shared.auth.verbs import Verb
from shared.http.api import empty_response, json_response, live, plain, raw_json_response
from shared.http.argument import Argument, any_text, bounded, duration, legal_name, short_text
from shared.http.bridge import Bridge
from shared.http.errors import HttpError
from shared.http.extensions import wants_extensions
from shared.http.route import ADMIN, KNOWN, OPEN, STATS, Route, on_channel, on_topic
from shared.log import log
from shared.text import go_json
from shared.tls.dates import CertificateDates
from shared.values import SECOND
from shared.version import NSQ_VERSION, PENSTOCK_VERSION

T = TypeVar("T")

MOST_NAMES = 50_000  # topics and channels in one page of /topics/inactive: 5 MB if all names are long
MOST_WAIT = 60 * SECOND
MOST_VERSION = 64  # characters
GO_ZERO_TIME = -6795364578871345152  # how Go prints the nanoseconds of a time that was never set


def _read_topic(text: str) -> str:
    """Return the name of a topic, legal or not, but not `*`: all topics in the original. Raises ValueError."""
    if text == "*":
        raise ValueError("not a topic")
    return text


_TOPIC = Argument("topic", _read_topic)
_CHANNEL = (legal_name("topic"), legal_name("channel"))


@dataclass(slots=True)
class Handlers:
    """The request handlers of the routes."""

    registry: Registry  # owned by the trio thread: handlers reach it through the bridge only
    bridge: Bridge
    clock: Callable[[], int]  # ns since the epoch
    connection_counts: Callable[[], ConnectionCounts]  # of the TCP port
    obstacle: Callable[[], str]  # the reason why the daemon is not ready, or ""
    cluster_nodes: Callable[[], list[ClusterNode]] = list
    dates: CertificateDates | None = None  # when the certificates end
    metrics_auth: bool = False  # /metrics, which names topics, needs the right STATS
    https_port: int = 0  # 0: no HTTPS
    debugging: asyncio.Lock = field(default_factory=asyncio.Lock)  # held while an answer to /debug is made
    long_polls: LongPolls = field(init=False)

    def __post_init__(self) -> None:
        self.long_polls = LongPolls(self.registry, self.bridge, self.clock)

    def routes(self) -> list[Route]:
        """Return all routes, with handlers that parse the arguments."""
        return [route.parsing() for route in (*self._queries(), *self._commands(), *self._monitoring())]

    def _queries(self) -> list[Route]:
        # consumers look up the topics that they may consume, and nsqd asks for the channels of topics that it registers: any
        # client may that the auth file knows
        return [
            Route("GET /ping", self.ping, OPEN, (), "Answer `OK`"),
            Route("GET /info", self.info, OPEN, (), "Return the version"),
            Route("GET /topics", self.topics, STATS, (), "List the topics"),
            Route("GET /topics/inactive", self.inactive, STATS,
                  (any_text("after", ""), bounded("limit", MOST_NAMES, MOST_NAMES, 1)),
                  "List topics that no nsqd has, with their channels"),
            Route("GET /channels", self.channels, KNOWN, (_TOPIC,), "List the channels of a topic"),
            Route("GET /lookup", self.lookup, KNOWN,
                  (_TOPIC, duration("wait", None, 0, MOST_WAIT), short_text("version", MOST_VERSION, "")),
                  "List the channels of a topic, and the nsqd that have it; with `wait` once they differ from `version`"),
            Route("GET /nodes", self.nodes, KNOWN, (), "List the nsqd, with their topics"),
            Route("GET /debug", self.debug, ADMIN, (), "Return every registration"),
        ]  # fmt: skip

    def _commands(self) -> list[Route]:
        return [
            Route("POST /topic/create", self.create_topic, on_topic(Verb.CREATE), (legal_name("topic"),), "Create a topic"),
            Route("POST /topic/delete", self.delete_topic, on_topic(Verb.DELETE), (_TOPIC,), "Remove a topic and its channels"),
            Route("POST /topic/tombstone", self.tombstone, ADMIN, (_TOPIC, any_text("node")),
                  "Hide an nsqd from consumers of a topic; `node` is its broadcast address and HTTP port"),
            Route("POST /channel/create", self.create_channel, on_channel(Verb.CREATE), _CHANNEL, "Create a channel"),
            Route("POST /channel/delete", self.delete_channel, on_channel(Verb.DELETE), _CHANNEL, "Remove a channel"),
        ]  # fmt: skip

    def _monitoring(self) -> list[Route]:
        needed = STATS if self.metrics_auth else OPEN
        return [
            Route("GET /metrics", self.metrics, needed, (), "Return the [metrics](metrics.md)"),
            Route("GET /livez", self.livez, OPEN, (), "Answer 200 while the daemon runs"),
            Route("GET /readyz", self.readyz, OPEN, (), "Answer 200 while the daemon accepts registrations"),
        ]

    # Queries

    async def ping(self, request: Request) -> Response:
        return plain(200, "OK")

    async def info(self, request: Request) -> Response:
        dates = self.dates.all if self.dates is not None else ()
        certificates = [{"option": one.option, "ends": one.ends} for one in dates]
        additions = {
            "certificates": certificates,
            "https_port": self.https_port,
            "penstock_version": PENSTOCK_VERSION if wants_extensions(request) else "",
        }
        return json_response({"version": NSQ_VERSION} | {key: value for key, value in additions.items() if value})

    async def topics(self, request: Request) -> Response:
        return json_response({"topics": await self.bridge.call(self.registry.topics)})

    async def inactive(self, request: Request, after: str, limit: int) -> Response:
        """List topics that /lookup names no producer of, with their channels, in pages.

        The key `more` says that further topics follow the last one. NSQ has no such path: nsqadmin asks once with it
        instead of once for each topic.
        """
        topics, more = await self.bridge.call(lambda: self.registry.inactive(after, limit, self.clock()))
        rows = [{"topic": topic, "channels": channels} for topic, channels in topics]
        return json_response({"topics": rows, "more": more})

    async def channels(self, request: Request, topic: str) -> Response:
        return json_response({"channels": await self.bridge.call(lambda: self.registry.channels(topic))})

    async def lookup(self, request: Request, topic: str, wait: int | None, version: str) -> Response:
        """Answer as NSQ, or with the version of the answer, for which a long poll waits."""
        if wait is None:
            found = await self.long_polls.lookup(topic)
            extra = {}
        else:
            found = await self.long_polls.poll(request, topic, wait, version)
            extra = {"version": found.version}
        if found.producers is None:
            return json_response({"message": "TOPIC_NOT_FOUND"} | extra, 404)
        extended = wants_extensions(request)
        producers = [_info_json(info, extended) for info in found.producers]
        return json_response({"channels": found.channels, "producers": producers} | extra)

    async def nodes(self, request: Request) -> Response:
        """List the producers. If extensions are wanted, `cluster_nodes` also has those of clusters that are gone."""
        nodes, cluster_nodes = await self.bridge.call(lambda: (self.registry.nodes(self.clock()), self.cluster_nodes()))
        extended = wants_extensions(request)
        answer = {"producers": [_node_json(node, extended) for node in nodes]}
        if extended and cluster_nodes:
            answer["cluster_nodes"] = [_cluster_node_json(node) for node in cluster_nodes]
        return json_response(answer)

    async def debug(self, request: Request) -> Response:
        """Return every registration. With the maximum number of them this takes some 80 MB, so one request runs at a time."""
        async with self.debugging:
            return raw_json_response(_debug_json(await self.bridge.call(self.registry.registrations)))

    # Commands

    async def create_topic(self, request: Request, topic: str) -> Response:
        await self._create(lambda: self.registry.create_topic(topic))
        log.info("DB: adding topic(%s)", topic)
        return empty_response()

    async def delete_topic(self, request: Request, topic: str) -> Response:
        if await self.bridge.call(lambda: self.registry.delete_topic(topic)):
            log.info("DB: removing topic(%s)", topic)
        return empty_response()

    async def create_channel(self, request: Request, topic: str, channel: str) -> Response:
        await self._create(lambda: self.registry.create_channel(topic, channel))
        log.info("DB: adding channel(%s) in topic(%s)", channel, topic)
        return empty_response()

    async def delete_channel(self, request: Request, topic: str, channel: str) -> Response:
        if not await self.bridge.call(lambda: self.registry.delete_channel(topic, channel)):
            raise HttpError(404, "CHANNEL_NOT_FOUND")
        log.info("DB: removing channel(%s) from topic(%s)", channel, topic)
        return empty_response()

    async def _create(self, create: Callable[[], None]) -> None:
        """Call `create` in the trio thread. Raises HttpError 503 at the limit of registrations."""

        def attempt() -> None:
            try:
                create()
            except Full as full:
                raise HttpError(503, f"TOO_MANY_REGISTRATIONS: {full}") from None

        await self.bridge.call(attempt)

    async def tombstone(self, request: Request, topic: str, node: str) -> Response:
        if await self.bridge.call(lambda: self.registry.tombstone(topic, node, self.clock())):
            log.info("DB: setting tombstone for producer@%r of topic(%s)", node, topic)  # %r: a peer chose the text
        return empty_response()

    # For monitoring

    async def metrics(self, request: Request) -> Response:
        from lookupd.metrics import metrics_page  # with prometheus_client, which a start does not need

        counts, connections = await self.bridge.call(lambda: (self.registry.counts(), self.connection_counts()))
        return metrics_page(counts, connections, len(self.long_polls), self.dates)

    async def livez(self, request: Request) -> Response:
        """Answer 200 while the trio thread works."""
        return await live(self.bridge)

    async def readyz(self, request: Request) -> Response:
        """Answer 200 while the daemon accepts new registrations, otherwise 503 with the reason."""
        obstacle = await self.bridge.call(self.obstacle)
        return plain(503, f"NOK - {obstacle}") if obstacle else plain(200, "OK")


def _info_json(info: PeerInfo, extended: bool) -> dict[str, object]:
    """Return the producer as the original shows it; if `extended`, with the keys that only Penstock's nsqd sends."""
    data: dict[str, object] = {
        "remote_address": info.remote_address,
        "hostname": info.hostname,
        "broadcast_address": info.broadcast_address,
        "tcp_port": info.tcp_port,
        "http_port": info.http_port,
        "version": info.version,
        **_topology_json(info),
    }
    if extended and info.node_id is not None:
        data["node_id"] = info.node_id
    if extended and info.https_port:
        data["https_port"] = info.https_port
    if extended and info.cluster_address:
        data |= {"cluster": info.cluster, "cluster_address": info.cluster_address}
    if extended and info.log_id:
        data["log_id"] = info.log_id
    if extended and info.capabilities:
        data["capabilities"] = info.capabilities
    if extended and info.penstock_version:
        data["penstock_version"] = info.penstock_version
    return data


def _topology_json(info: PeerInfo) -> dict[str, object]:
    """Return the keys of NSQ's later master, for nodes that send them. Without them, answers are those of release 1.3.0."""
    topology = {"topology_zone": info.topology_zone, "topology_region": info.topology_region}
    return {key: value for key, value in topology.items() if value}


def _node_json(node: Node, extended: bool) -> dict[str, object]:
    return _info_json(node.info, extended) | {"tombstones": node.tombstones, "topics": node.topics}


def _cluster_node_json(node: ClusterNode) -> dict[str, object]:
    """Return the data of a node of a cluster. `last_contact` is in s ago, to the ms."""
    info = node.info
    return {
        "cluster": info.cluster,
        "node_id": info.node_id,
        "log_id": info.log_id,
        "cluster_address": info.cluster_address,
        "connected": node.connected,
        "last_contact": round(node.last_contact, 3),
    }


def _debug_json(registrations: dict[str, list[Registration]]) -> str:
    """Return the JSON of all registrations, each encoded once for all keys. Keys are legal names, which need no escaping."""
    texts: dict[int, str] = {}
    parts = []
    for key, rows in sorted(registrations.items()):
        data = []
        for row in rows:
            text = texts.get(id(row))
            if text is None:
                text = texts[id(row)] = go_json(_registration_json(row))
            data.append(text)
        parts.append(f'"{key}":[{",".join(data)}]')
    return f"{{{','.join(parts)}}}"


def _registration_json(row: Registration) -> dict[str, object]:
    return {
        "broadcast_address": row.info.broadcast_address,
        "hostname": row.info.hostname,
        "http_port": row.info.http_port,
        "id": row.info.remote_address,
        "last_update": row.last_update,
        "tcp_port": row.info.tcp_port,
        "tombstoned": row.tombstoned_at != NEVER,
        "tombstoned_at": row.tombstoned_at if row.tombstoned_at != NEVER else GO_ZERO_TIME,
        **dict(sorted(_topology_json(row.info).items())),
        "version": row.info.version,
    }

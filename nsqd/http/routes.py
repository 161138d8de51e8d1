"""Collect all routes of nsqd's HTTP API. The debug routes are present only with -debug-routes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.responses import Response

from nsqd.http.all_cursors import AllCursors
from nsqd.http.all_offsets import AllOffsets
from nsqd.http.attention import AttentionRoute
from nsqd.http.backup import BackupRoute
from nsqd.http.batches import BatchRoutes
from nsqd.http.client_actions import ClientActions
from nsqd.http.cluster import ClusterRoute
from nsqd.http.config import Config
from nsqd.http.cursors import Cursors
from nsqd.http.dead_letters import DeadLetters
from nsqd.http.drain import Drain
from nsqd.http.health import HealthRoutes
from nsqd.http.jobs import Jobs
from nsqd.http.logs import ReplicaReader
from nsqd.http.message_actions import MessageActions
from nsqd.http.messages import Messages
from nsqd.http.node import Node
from nsqd.http.overview import Overview
from nsqd.http.pauses import PausesRoute
from nsqd.http.publish import Publishing
from nsqd.http.read_back import ReadBack
from nsqd.http.receive import Receiving
from nsqd.http.schedules import ScheduleRoutes
from nsqd.http.series import SeriesRoute
from nsqd.http.stats import Stats
from nsqd.http.storage import StorageRoute
from nsqd.http.topic_config import TopicConfigRoutes
from nsqd.http.topology import Topology
from nsqd.http.tubes import TubesRoute
from shared.http.route import ADMIN, OPEN, STATS, Route

if TYPE_CHECKING:
    from nsqd.http.metrics import MetricsRoute


def routes(node: Node) -> list[Route]:
    """Return all routes, with handlers that parse the arguments."""
    return [route.parsing() for route in _declared(node)]


def _declared(node: Node) -> list[Route]:
    replicas = ReplicaReader(node)
    observe, config = HealthRoutes(node), Config(node)
    return [
        *Publishing(node).routes(),
        *Receiving(node).routes(),
        Route("GET /ping", observe.ping, OPEN, (), "Answer `OK`, or 500 with the reason"),
        # clients need versions and ports to connect
        Route("GET /info", observe.info, OPEN, (), "Return version, addresses and limits"),
        *Stats(node).routes(),
        Route("GET /config/{option}", config.get, ADMIN, (), "Return the value of an option"),
        Route(
            "PUT /config/{option}",
            config.put,
            ADMIN,
            (),
            "Set `log_level` or `nsqlookupd_tcp_addresses`; the body is the value",
        ),
        *Topology(node, replicas).routes(),
        *TopicConfigRoutes(node).routes(),
        *DeadLetters(node).routes(),
        *ReadBack(node, replicas).routes(),
        *AllOffsets(node).routes(),
        *BackupRoute(node).routes(),
        *Cursors(node, replicas).routes(),
        *Messages(node).routes(),
        *MessageActions(node).routes(),
        *ClientActions(node).routes(),
        *PausesRoute(node).routes(),
        *ScheduleRoutes(node).routes(),
        *BatchRoutes(node).routes(),
        *Drain(node).routes(),
        *SeriesRoute(node).routes(),
        *StorageRoute(node).routes(),
        *AllCursors(node).routes(),
        *Overview(node).routes(),
        *AttentionRoute(node).routes(),
        *TubesRoute(node).routes(),
        *Jobs(node).routes(),
        *ClusterRoute(node).routes(),
        Route(
            "GET /metrics",
            _metrics(node),
            STATS if node.options.metrics_auth else OPEN,
            (),
            "Return the [metrics](metrics.md)",
        ),
        Route("GET /livez", observe.livez, OPEN, (), "Answer 200 while the daemon runs its turns"),
        Route("GET /readyz", observe.readyz, OPEN, (), "Answer 200 while the node takes messages"),
        *_optional(node),
    ]


def _optional(node: Node) -> list[Route]:
    """Return the routes that exist only with an option; only then their modules are imported."""
    found: list[Route] = []
    if node.accounts is not None:
        from nsqd.http.identities import IdentitiesRoute

        found += IdentitiesRoute(node, node.accounts).routes()
    if node.options.debug_routes:
        from nsqd.http.cuts import CutRoutes
        from shared.http.debug import Debug

        found += [*Debug(node.bridge).routes(), *CutRoutes(node).routes()]
    if node.broker.trace is not None:
        from nsqd.http.trace import TraceRoute

        found += TraceRoute(node, node.broker.trace).routes()
    return found


def _metrics(node: Node) -> Callable[[Request], Awaitable[Response]]:
    """Return the handler of /metrics, which imports prometheus_client at the first request: a start does not need it."""
    found: list[MetricsRoute] = []

    async def metrics(request: Request) -> Response:
        if not found:
            from nsqd.http.metrics import MetricsRoute

            found.append(MetricsRoute(node))
        return await found[0].metrics(request)

    return metrics

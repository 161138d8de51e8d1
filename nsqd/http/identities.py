"""GET /identities: what each identity of the auth file uses of this node. There is no such route without an auth file.

    GET /identities[?limit=100]     {"identities": [{...}, ...], "count": all of them}

Those come first whose messages had the most bytes since the start. Each has its name, what it has now: `connections` over TCP,
messages and jobs `in_flight`, bytes of `output`, and the `topics` that it made and that exist; what it has published since
the start: `messages`, and the `bytes` of their bodies; how often (`throttled`), and for how many ms (`throttled_ms`) its
connections were not read; and how many of its connections, requests over HTTP and new topics were `refused` because of its
limits. Names and topics are those since the start.

The same statistics are in /metrics.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.responses import Response

from nsqd.http.figures import FigureRow
from nsqd.http.node import Node
from nsqd.protocols.account import Accounts
from shared.http.api import json_response
from shared.http.argument import bounded
from shared.http.route import STATS, Route

if TYPE_CHECKING:
    from prometheus_client import Metric

LIMIT, MOST = 100, 1000  # identities in an answer
LABELLED = 50  # identities with series of their own in /metrics
_GAUGES = (
    ("connections", "TCP connections of an identity"),
    ("in_flight", "Messages in flight, and jobs reserved, by identity"),
    ("output_bytes", "Bytes in the output buffers of an identity's connections"),
    ("topics", "Topics that an identity has made since the start and that exist"),
)
_COUNTERS = (
    ("messages", "Messages published, by identity"),
    ("message_bytes", "Bytes of published message bodies, by identity"),
    ("throttled", "How often a connection of an identity was not read, because it had published too much"),
    ("throttled_seconds", "Time for which connections of an identity were not read"),
    ("refused", "Connections, HTTP requests and new topics of an identity that its limits did not allow"),
)


class IdentitiesRoute:
    """The route for the use of the node by identities."""

    def __init__(self, node: Node, accounts: Accounts) -> None:
        self._node = node
        self._accounts = accounts

    def routes(self) -> list[Route]:
        return [
            Route("GET /identities", self.identities, STATS, (bounded("limit", MOST, LIMIT),),
                  "Return what each identity of the auth file uses of the node"),
        ]  # fmt: skip

    async def identities(self, request: Request, limit: int) -> Response:
        """Answer the statistics of those that have published the most bytes, and the number of all."""
        found = await self._node.bridge.observe(self._accounts.figures)
        return json_response({"identities": [asdict(one) for one in found[:limit]], "count": len(found)})


def identity_rows(accounts: Accounts) -> list[FigureRow]:
    """Return a row for each identity, whose gauges and counters are those of _GAUGES and _COUNTERS, times in ms."""
    return [
        FigureRow(
            (one.name,),
            (one.connections, one.in_flight, one.output, one.topics),
            (one.messages, one.bytes, one.throttled, one.throttled_ms, one.refused),
        )
        for one in accounts.figures()
    ]


def by_messages(row: FigureRow) -> tuple[int, tuple[str, ...]]:
    """Return a sort key of rows: the most messages first, then by name."""
    return -row.counters[0], row.key


def identity_families(chosen: Sequence[FigureRow], rest: FigureRow | None, other: str) -> Iterator[Metric]:
    """Yield the series: one for each chosen row, and one with the name `other` for the sum of the rest."""
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily  # only /metrics needs it, not the start

    rows = [*chosen, rest._replace(key=(other,))] if rest else chosen
    for place, (name, text) in enumerate(_GAUGES):
        gauge = GaugeMetricFamily(f"nsqd_identity_{name}", text, labels=["identity"])
        for row in rows:
            gauge.add_metric(row.key, row.gauges[place])
        yield gauge
    for place, (name, text) in enumerate(_COUNTERS):
        counter = CounterMetricFamily(f"nsqd_identity_{name}", text, labels=["identity"])
        for row in rows:
            counter.add_metric(row.key, row.counters[place] / (1000 if name.endswith("_seconds") else 1))
        yield counter

"""GET /ping, /info, /metrics, /livez, /readyz: for balancers, clients and machines that watch."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass

from prometheus_client import CONTENT_TYPE_LATEST, Metric, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector
from starlette.requests import Request
from starlette.responses import Response

from nsqd.core.scan import ScanStatistics
from nsqd.http.node import Node
from shared.http.api import json_response
from shared.http.health import live, plain


class Observe:
    """The five routes."""

    def __init__(self, node: Node) -> None:
        self._node = node

    async def ping(self, request: Request) -> Response:
        """OK, or 500 while the disk fails."""
        health = self._node.health()
        return plain(200 if health == "OK" else 500, health)

    async def info(self, request: Request) -> Response:
        """Who this node is, and what it lets clients ask for."""
        options = self._node.options
        return json_response(
            {
                "version": self._node.info.version,
                "broadcast_address": self._node.info.broadcast_address,
                "hostname": self._node.info.hostname,
                "http_port": self._node.info.http_port,
                "tcp_port": self._node.info.tcp_port,
                "start_time": self._node.info.start_time,
                "max_heartbeat_interval": options.max_heartbeat_interval,
                "max_output_buffer_size": options.max_output_buffer_size,
                "max_output_buffer_timeout": options.max_output_buffer_timeout,
                "max_deflate_level": 6,
            }
        )

    async def metrics(self, request: Request) -> Response:
        """Prometheus text. No label but fixed ones: what it costs does not grow with the topics."""
        figures = await self._node.bridge.call(self._figures)
        return Response(generate_latest(Metrics(figures)), media_type=CONTENT_TYPE_LATEST)

    async def livez(self, request: Request) -> Response:
        """200 while the trio thread turns."""
        return await live(self._node.bridge)

    async def readyz(self, request: Request) -> Response:
        """200 while the node takes messages."""
        health = self._node.health()
        return plain(200 if health == "OK" else 503, health)

    def _figures(self) -> "Figures":
        broker = self._node.broker
        channels = [channel for topic in broker.topics.values() for channel in topic.channels.values()]
        return Figures(
            gauges={
                "topics": len(broker.topics),
                "channels": len(channels),
                "connections": len(self._node.peers()),
                "depth": sum(channel.depth for channel in channels),
                "topic_depth": sum(topic.depth for topic in broker.topics.values()),
                "in_flight": sum(channel.in_flight_count for channel in channels),
                "deferred": sum(channel.deferred_count for channel in channels),
            },
            counters={
                "messages": sum(topic.message_count for topic in broker.topics.values()),
                "message_bytes": sum(topic.message_bytes for topic in broker.topics.values()),
                "requeued": sum(channel.requeue_count for channel in channels),
                "timed_out": sum(channel.timeout_count for channel in channels),
                "dropped": sum(channel.dropped_count for channel in channels)
                + sum(topic.dropped_count for topic in broker.topics.values()),
                "turns": self._node.turns(),
            },
            scan=ScanStatistics(**asdict(broker.scan.statistics)),
        )


@dataclass(frozen=True, slots=True)
class Figures:
    """One look at the node."""

    gauges: dict[str, int]
    counters: dict[str, int]
    scan: ScanStatistics


_HELP = {
    "topics": "Topics on this node",
    "channels": "Channels on this node",
    "connections": "TCP connections open",
    "depth": "Messages ready to be delivered, over all channels",
    "topic_depth": "Messages that no channel has been given yet, over all topics",
    "in_flight": "Messages delivered and not finished",
    "deferred": "Messages that wait for their time",
    "messages": "Messages published to the topics there are",
    "message_bytes": "Bytes of body published to the topics there are",
    "requeued": "Messages handed back by consumers",
    "timed_out": "Messages not finished in time",
    "dropped": "Messages that ephemeral topics and channels had no room for",
    "turns": "Passes of the reactor",
}


class Metrics(Collector):
    """One scrape."""

    def __init__(self, figures: Figures) -> None:
        self._figures = figures

    def collect(self) -> Iterator[Metric]:
        for name, value in self._figures.gauges.items():
            yield GaugeMetricFamily(f"nsqd_{name}", _HELP[name], value)
        for name, value in self._figures.counters.items():
            yield CounterMetricFamily(f"nsqd_{name}", _HELP[name], value)
        scan = self._figures.scan
        yield GaugeMetricFamily("nsqd_queue_scan_workers", "Size of the queue-scan worker pool", scan.workers)
        yield CounterMetricFamily("nsqd_queue_scan_passes", "Passes of the queue scan", scan.passes)
        yield CounterMetricFamily("nsqd_queue_scan_selected", "Queues looked at by the queue scan", scan.selected)
        yield CounterMetricFamily("nsqd_queue_scan_dirty", "Of those, the ones that had something due", scan.dirty)
        yield CounterMetricFamily(
            "nsqd_queue_scan_served", "Messages timed out, released or brought near their time", scan.served
        )
        yield GaugeMetricFamily("nsqd_queue_scan_dirty_ratio", "Dirty share of the last pass", scan.last_dirty_share)

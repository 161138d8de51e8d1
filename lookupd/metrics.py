"""nsqlookupd's metrics in Prometheus' format."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import CONTENT_TYPE_LATEST, Metric, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector
from starlette.responses import Response

from lookupd.net import ConnectionCounts
from lookupd.registry import Counts
from shared.http.process_metrics import process_families
from shared.tls.dates import CertificateDates


def metrics_page(
    counts: Counts, connections: ConnectionCounts, long_polls: int, dates: CertificateDates | None
) -> Response:
    """Return the answer to one scrape. `long_polls`: those that wait. `dates`: when the certificates end; None: not known."""
    return Response(generate_latest(Metrics(counts, connections, long_polls, dates)), media_type=CONTENT_TYPE_LATEST)


class Metrics(Collector):
    """The metrics of one scrape. No label holds a name, so the cost does not grow with the number of topics."""

    def __init__(
        self, counts: Counts, connections: ConnectionCounts, long_polls: int = 0, dates: CertificateDates | None = None
    ) -> None:
        self._counts = counts
        self._long_polls = long_polls
        self._dates = dates
        self._connections = connections

    def collect(self) -> Iterator[Metric]:
        yield GaugeMetricFamily("nsqlookupd_topics", "Topics known", self._counts.topics)
        yield GaugeMetricFamily("nsqlookupd_channels", "Channels known", self._counts.channels)
        yield GaugeMetricFamily("nsqlookupd_producers", "nsqd connected and identified", self._counts.producers)
        yield GaugeMetricFamily(
            "nsqlookupd_registrations", "Topics, channels and producers of each", self._counts.entries
        )
        yield GaugeMetricFamily("nsqlookupd_connections", "TCP connections open", self._connections.connections)
        yield GaugeMetricFamily("nsqlookupd_long_polls", "Requests to /lookup that wait for a change", self._long_polls)
        refused = CounterMetricFamily("nsqlookupd_refused", "Refused because of a limit or of TLS", labels=["reason"])
        for reason, count in self._connections.refused.items():
            refused.add_metric([reason], count)
        yield refused
        yield from process_families("nsqlookupd", self._dates)

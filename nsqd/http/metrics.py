"""GET /metrics: write the statistics as Prometheus's text. The names of all series and their meanings are here."""

import asyncio
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from prometheus_client import CONTENT_TYPE_LATEST, Metric, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector
from starlette.requests import Request
from starlette.responses import Response

from nsqd.core.sequence.store import LogFigures
from nsqd.core.timing.scan import ScanStatistics
from nsqd.http.cluster_metrics import cluster_families
from nsqd.http.coalescing import Coalescing
from nsqd.http.figures import (
    CHANNEL_AGES,
    CHANNEL_COUNTERS,
    CHANNEL_GAUGES,
    CURSOR_COUNTERS,
    CURSOR_GAUGES,
    TOPIC_AGES,
    TOPIC_COUNTERS,
    TOPIC_GAUGES,
    TUBE_AGES,
    TUBE_COUNTERS,
    TUBE_GAUGES,
    FigureRow,
    NodeFigures,
    RowChoice,
    add,
    collect_figures,
)
from nsqd.http.identities import LABELLED, by_messages, identity_families, identity_rows
from nsqd.http.node import Node
from shared.audit.trail import TrailFigures
from shared.budget import BudgetFigures
from shared.histogram import Histogram
from shared.http.process_metrics import process_families
from shared.values import SECOND

if TYPE_CHECKING:
    from nsqd.core.spans import Spans

SLOW = 0.5  # s: an answer that took longer to make is reused for a while
OTHER = "(other)"  # topic and channel of the sum over all that have no series of their own; no name can be this
TURN_BOUNDS = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 25, 50, 100, 250, 500, 1e3, 2.5e3)  # ms
SYNC_BOUNDS = (0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100, 500, 1e3, 5e3)  # ms
BOUNDS = (1, 2.5, 5, 10, 25, 50, 100, 250, 500, 1e3, 2.5e3, 5e3, 1e4, 3e4, 6e4, 3e5, 1.8e6, 3.6e6)  # ms, for latencies

_HELP = {
    "depth": "Messages ready to be delivered",
    "in_flight": "Messages in flight: delivered and not yet finished",
    "deferred": "Messages deferred until a later time",
    "buried": "Dead letters: messages buried after too many failures or by an operator",
    "clients": "Consumers",
    "messages": "Messages that came",
    "message_bytes": "Bytes of published message bodies",
    "requeued": "Messages requeued by consumers",
    "timed_out": "Messages that timed out in flight",
    "dropped": "Messages dropped by topics and channels that are ephemeral, or over their length",
    "duplicates": "Duplicate messages that were not published again",
    "ready": "Jobs that can be reserved",
    "reserved": "Jobs reserved by workers",
    "delayed": "Jobs delayed until a later time",
    "urgent": "Ready jobs with a priority below 1024",
    "waiting": "Workers that wait for a job",
    "jobs": "Jobs that came",
    "oldest": "Age of the next message to be delivered, or 0",
    "lag": "Messages that the owner of a cursor has not read yet",
    "read": "Messages before the cursor",
}
_TUBE_HELP = {
    "buried": "Jobs buried until they are kicked",
    "oldest": "Age of the oldest ready job, or 0",
    "oldest_job": "Age of the oldest job in any state, or 0",
}


class MetricsRoute:
    """The route for metrics. It remembers which topics, channels, tubes and cursors have series of their own."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._topics = RowChoice()
        self._channels = RowChoice()
        self._tubes = RowChoice()
        self._cursors = RowChoice()
        self._identities = RowChoice(LABELLED, by_messages)
        self._coalescing: Coalescing[bytes] = Coalescing()
        self._last = b""  # the last answer
        self._made, self._took = 0.0, 0.0  # s: when the last answer was made, by the loop's clock, and how long it took

    async def metrics(self, request: Request) -> Response:
        """Answer all statistics as text.

        An answer that took long to make, as with very many topics, is reused for as long as it took; `Age` is how old it is.
        """
        age = asyncio.get_running_loop().time() - self._made
        if self._took > SLOW and age < self._took:
            return Response(self._last, media_type=CONTENT_TYPE_LATEST, headers={"Age": str(int(age))})
        return Response(await self._coalescing.get("", self._text), media_type=CONTENT_TYPE_LATEST)

    async def _text(self) -> bytes:
        clock = asyncio.get_running_loop().time
        began = clock()
        text = await self._write()
        self._last, self._made = text, clock()
        self._took = self._made - began
        return text

    async def _write(self) -> bytes:
        figures = await collect_figures(self._node)
        cluster, accounts = figures.cluster, self._node.accounts
        identities = await self._node.bridge.observe(lambda: identity_rows(accounts)) if accounts is not None else None
        families = [
            *_totals(figures),
            *_scan(figures.scan),
            *_log(figures.log),
            *_buffers(figures.buffers),
            *(_audit(self._node.audit.figures()) if self._node.audit is not None else ()),
            *(_spans(self._node.spans) if self._node.spans is not None else ()),
            *_labelled("topic", TOPIC_GAUGES, TOPIC_COUNTERS, TOPIC_AGES, *self._topics.choose(figures.topics)),
            *_labelled(
                "channel", CHANNEL_GAUGES, CHANNEL_COUNTERS, CHANNEL_AGES, *self._channels.choose(figures.channels)
            ),
            *_labelled("tube", TUBE_GAUGES, TUBE_COUNTERS, TUBE_AGES, *self._tubes.choose(figures.tubes)),
            *_labelled("cursor", CURSOR_GAUGES, CURSOR_COUNTERS, (), *self._cursors.choose(figures.cursors)),
            *(() if identities is None else identity_families(*self._identities.choose(identities), OTHER)),
            *_latency(figures.latency),
            *process_families("nsqd", self._node.dates),
            *(cluster_families(self._node.options.node_number(), cluster) if cluster is not None else ()),
        ]
        return generate_latest(Families(families))


class Families(Collector):
    """The families of one scrape, for prometheus_client to write."""

    def __init__(self, families: Sequence[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterator[Metric]:
        yield from self._families


def _totals(figures: NodeFigures) -> Iterator[Metric]:
    """Yield the totals of the whole node."""
    (waiting,), (messages, size, dropped_by_topics, duplicates) = _sum(figures.topics, 1, 4)
    (depth, in_flight, deferred, buried, _), (_, requeued, timed_out, dropped) = _sum(figures.channels, 5, 4)
    yield GaugeMetricFamily("nsqd_topics", "Topics on this node", len(figures.topics))
    yield GaugeMetricFamily("nsqd_channels", "Channels on this node", len(figures.channels))
    yield GaugeMetricFamily("nsqd_connections", "TCP connections open", figures.connections)
    yield GaugeMetricFamily("nsqd_depth", "Messages ready to be delivered, over all channels", depth)
    yield GaugeMetricFamily("nsqd_undistributed", "Messages not yet copied to a channel", waiting)
    yield GaugeMetricFamily("nsqd_in_flight", _HELP["in_flight"], in_flight)
    yield GaugeMetricFamily("nsqd_deferred", _HELP["deferred"], deferred)
    yield GaugeMetricFamily("nsqd_buried", _HELP["buried"], buried)
    yield CounterMetricFamily("nsqd_messages", "Messages published to the existing topics", messages)
    yield CounterMetricFamily("nsqd_message_bytes", "Bytes of message bodies published to the existing topics", size)
    yield CounterMetricFamily("nsqd_requeued", _HELP["requeued"], requeued)
    yield CounterMetricFamily("nsqd_timed_out", _HELP["timed_out"], timed_out)
    yield CounterMetricFamily("nsqd_dropped", _HELP["dropped"], dropped + dropped_by_topics)
    yield CounterMetricFamily("nsqd_duplicates", _HELP["duplicates"], duplicates)
    yield CounterMetricFamily(
        "nsqd_jobs_expired", "Jobs that no client finished before their time to live was over", figures.expired_jobs
    )
    receives = GaugeMetricFamily(
        "nsqd_receives", "Requests of /channel/receive that wait, or have messages in flight", labels=["state"]
    )
    for state, count in figures.receives.items():
        receives.add_metric([state], count)
    yield receives
    yield GaugeMetricFamily("nsqd_batches", "Batches, also those that were done in the last day", figures.batches)
    yield GaugeMetricFamily("nsqd_follow_ups", "Messages that wait until a batch is done", figures.follow_ups)
    yield GaugeMetricFamily("nsqd_schedules", "Schedules, also paused ones", figures.schedules)
    ticks = CounterMetricFamily(
        "nsqd_schedule_ticks",
        "Ticks of schedules that were published, skipped, or refused until later",
        labels=["outcome"],
    )
    for outcome, count in figures.schedule_ticks.items():
        ticks.add_metric([outcome], count)
    yield ticks
    yield CounterMetricFamily("nsqd_turns", "Passes of the reactor", figures.turns.count)
    yield _histogram("nsqd_turn_seconds", "Duration of a pass of the reactor", figures.turns, TURN_BOUNDS)
    longest = figures.turns.max / 1e9
    yield GaugeMetricFamily("nsqd_turn_longest_seconds", "Longest pass of the reactor since the start", longest)
    refused = CounterMetricFamily("nsqd_refused", "Requests of clients that were rejected", labels=["reason"])
    for reason, count in sorted(figures.refused.items()):
        refused.add_metric([reason], count)
    yield refused
    errors = CounterMetricFamily(
        "nsqd_client_errors", "Errors that clients were answered over TCP", labels=["protocol", "code"]
    )
    for key, count in sorted(figures.client_errors.items()):
        errors.add_metric(key, count)
    yield errors


def _log(log: LogFigures) -> Iterator[Metric]:
    """Yield the state and the activity of the commit log."""
    yield GaugeMetricFamily("nsqd_log_bytes", "Bytes of the commit log", log.size)
    yield GaugeMetricFamily(
        "nsqd_log_live_bytes",
        "Bytes of the commit log in use: not yet finished, or retained; as of the last scan",
        log.live,
    )
    yield GaugeMetricFamily("nsqd_log_segments", "Files of the commit log", log.segments)
    yield GaugeMetricFamily("nsqd_log_unsynced_bytes", "Bytes written to the log and not synced yet", log.unsynced)
    yield GaugeMetricFamily("nsqd_log_memory_bytes", "Bytes of messages in memory", log.memory)
    yield GaugeMetricFamily("nsqd_log_replay_seconds", "Time to replay the log at startup", log.replay)
    yield CounterMetricFamily("nsqd_log_damage", "Corrupt bytes of the log, and failed reads", log.damage)
    yield CounterMetricFamily(
        "nsqd_log_torn", "Bytes cut off at the end of the log that may have been acknowledged", log.torn
    )
    yield CounterMetricFamily("nsqd_log_read_retries", "Reads of the log that failed and were retried", log.retries)
    yield CounterMetricFamily("nsqd_log_checkpoints", "Checkpoints written since the start", log.checkpoints)
    yield _histogram("nsqd_log_sync_seconds", "Duration of a sync of the log", log.syncs, SYNC_BOUNDS)
    yield CounterMetricFamily(
        "nsqd_log_sync_failures", "Syncs of the log that failed; after one no publish is acknowledged", log.failed_syncs
    )


def _buffers(buffers: BudgetFigures) -> Iterator[Metric]:
    """Yield what clients make the node buffer: half-received requests and unsent answers, on all ports."""
    yield GaugeMetricFamily("nsqd_buffer_budget_bytes", "Limit of the buffer budget", buffers.limit)
    yield GaugeMetricFamily("nsqd_buffer_bytes", "Bytes of incomplete requests and unsent responses", buffers.used)
    yield GaugeMetricFamily("nsqd_buffer_peak_bytes", "Maximum of the used buffer budget since the start", buffers.peak)
    yield CounterMetricFamily(
        "nsqd_buffer_refused", "Requests that found no room in the buffer budget", buffers.refused
    )


def _audit(audit: TrailFigures) -> Iterator[Metric]:
    """Yield what the audit has recorded, and what it could not."""
    yield CounterMetricFamily("nsqd_audit_records", "Records of the audit", audit.records)
    yield CounterMetricFamily("nsqd_audit_left_out", "Events that the audit has no record of", audit.left_out)
    yield CounterMetricFamily(
        "nsqd_audit_unpublished", "Records of the audit that its topic did not get", audit.unpublished
    )


def _spans(spans: "Spans") -> Iterator[Metric]:
    """Yield how many spans were exported, and how many were not."""
    yield CounterMetricFamily("nsqd_spans_exported", "Spans that the collector took", spans.exported)
    yield CounterMetricFamily(
        "nsqd_spans_lost", "Spans that found no room or that the collector did not take", spans.lost
    )


def _scan(scan: ScanStatistics) -> Iterator[Metric]:
    """Yield how busy timeouts and delays keep the node."""
    yield GaugeMetricFamily("nsqd_queue_scan_workers", "Size of the queue-scan worker pool", scan.workers)
    yield CounterMetricFamily("nsqd_queue_scan_passes", "Passes of the queue scan", scan.passes)
    yield CounterMetricFamily("nsqd_queue_scan_selected", "Queues checked by the queue scan", scan.selected)
    yield CounterMetricFamily("nsqd_queue_scan_dirty", "Checked queues that had a message due", scan.dirty)
    yield CounterMetricFamily(
        "nsqd_queue_scan_served", "Messages that timed out, became ready or came close to their time", scan.served
    )
    yield GaugeMetricFamily("nsqd_queue_scan_dirty_ratio", "Dirty share of the last pass", scan.last_dirty_share)


def _labelled(
    kind: str,
    gauges: Sequence[str],
    counters: Sequence[str],
    ages: Sequence[str],
    chosen: Sequence[FigureRow],
    rest: FigureRow | None,
) -> Iterator[Metric]:
    """Yield series for topics, channels, tubes or cursors: one for each chosen row, and one for the rest.

    That of the rest is the sum, or the greatest age.
    """
    labels = ["topic", kind] if kind in ("channel", "cursor") else [kind]
    texts = _HELP | _TUBE_HELP if kind == "tube" else _HELP
    rows = [*chosen, rest._replace(key=(OTHER,) * len(labels))] if rest else chosen
    for place, name in enumerate(gauges):
        gauge = GaugeMetricFamily(f"nsqd_{kind}_{name}", f"{texts[name]}, by {kind}", labels=labels)
        for row in rows:
            gauge.add_metric(row.key, row.gauges[place])
        yield gauge
    for place, name in enumerate(counters):
        counter = CounterMetricFamily(f"nsqd_{kind}_{name}", f"{texts[name]}, by {kind}", labels=labels)
        for row in rows:
            counter.add_metric(row.key, row.counters[place])
        yield counter
    for place, name in enumerate(ages):
        age = GaugeMetricFamily(f"nsqd_{kind}_{name}_age_seconds", f"{texts[name]}, by {kind}", labels=labels)
        for row in rows:
            age.add_metric(row.key, row.ages[place] / SECOND)
        yield age


def _latency(latency: Histogram | None) -> Iterator[Metric]:
    """Yield the latencies over all channels since the process started, only where percentiles are configured."""
    if latency is None:
        return
    name, text = "nsqd_e2e_processing_latency_seconds", "Time from the publish of a message to its FIN"
    yield _histogram(name, text, latency, BOUNDS)


def _histogram(name: str, text: str, histogram: Histogram, bounds: Sequence[float]) -> Metric:
    """Return a histogram of ns as one of seconds; `bounds` are in ms."""
    counts = histogram.cumulative([round(bound * 1e6) for bound in bounds])
    buckets = [(str(bound / 1e3), count) for bound, count in zip(bounds, counts, strict=True)]
    return HistogramMetricFamily(name, text, [*buckets, ("+Inf", histogram.count)], sum_value=histogram.sum / 1e9)


def _sum(rows: Sequence[FigureRow], gauges: int, counters: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the sums over all rows: that many gauges and counters, zeros without rows."""
    return add([row.gauges for row in rows]) or (0,) * gauges, add([row.counters for row in rows]) or (0,) * counters

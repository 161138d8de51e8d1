"""Grafana's dashboards and Prometheus's recording rules for them, written to deploy by `make reference`.

A dashboard is a few variables and rows of panels; each panel has queries in PromQL over the metrics of
docs/reference/metrics.md, scraped with job="nsqd" and job="nsqlookupd" as deploy/alerts.yaml expects. A test holds that each
metric exists with the labels that are used.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import yaml

_SOURCE = {"type": "prometheus", "uid": "${source}"}
_COLUMNS = 24  # of Grafana's grid
_HEIGHT = 8
# histograms whose percentiles dashboards and alerts ask for: of all series of a node only its buckets are many
_HISTOGRAMS = "nsqd_e2e_processing_latency_seconds", "nsqd_log_sync_seconds", "nsqd_turn_seconds"


@dataclass(frozen=True, slots=True)
class Query:
    """One query of a panel, and the legend of its series."""

    expr: str  # PromQL
    legend: str = "{{instance}}"


@dataclass(frozen=True, slots=True)
class Panel:
    """One chart, or one number if `is_number`."""

    title: str
    unit: str  # a unit of Grafana
    queries: tuple[Query, ...]
    help: str = ""
    is_number: bool = False


@dataclass(frozen=True, slots=True)
class Dashboard:
    """A page of panels. `variables`: queries of Prometheus by name, each with all its values chosen at first."""

    name: str
    title: str
    variables: dict[str, str]
    rows: tuple[tuple[Panel, ...], ...]

    def as_json(self) -> str:
        """Return the dashboard as Grafana imports it."""
        page = {
            "uid": f"penstock-{self.name}",
            "title": f"Penstock: {self.title}",
            "tags": ["penstock"],
            "schemaVersion": 39,
            "editable": True,
            "refresh": "10s",
            "time": {"from": "now-1h", "to": "now"},
            "links": [{"type": "dashboards", "tags": ["penstock"], "asDropdown": True, "title": "Penstock"}],
            "templating": {"list": [_SOURCES, *(_variable(*one) for one in self.variables.items())]},
            "panels": list(self._panels()),
        }
        return json.dumps(page, indent=1) + "\n"

    def _panels(self) -> Iterator[dict[str, Any]]:
        number = 0
        for row, panels in enumerate(self.rows):
            width = _COLUMNS // len(panels)
            for place, panel in enumerate(panels):
                number += 1
                grid = {"x": place * width, "y": row * _HEIGHT, "w": width, "h": _HEIGHT}
                yield _panel(panel, number) | {"gridPos": grid}


_SOURCES = {"name": "source", "label": "Data source", "type": "datasource", "query": "prometheus"}


def _variable(name: str, query: str) -> dict[str, Any]:
    return {
        "name": name, "label": name.capitalize(), "type": "query", "datasource": _SOURCE, "query": query, "refresh": 2,
        "sort": 1, "multi": True, "includeAll": True, "allValue": ".*", "current": {"text": "All", "value": "$__all"},
    }  # fmt: skip


def _panel(panel: Panel, number: int) -> dict[str, Any]:
    targets = [
        {"refId": chr(ord("A") + place), "datasource": _SOURCE, "expr": query.expr, "legendFormat": query.legend}
        for place, query in enumerate(panel.queries)
    ]
    drawn = {"custom": {"fillOpacity": 10, "showPoints": "never"}} if not panel.is_number else {}
    legend = {"legend": {"displayMode": "table", "placement": "bottom", "calcs": ["lastNotNull", "max"]}}
    return {
        "id": number, "type": "stat" if panel.is_number else "timeseries", "title": panel.title,
        "description": panel.help, "datasource": _SOURCE, "targets": targets,
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0, **drawn}, "overrides": []},
        "options": {} if panel.is_number else legend,
    }  # fmt: skip


def _number(title: str, unit: str, expr: str, help: str = "") -> Panel:
    return Panel(title, unit, (Query(expr, ""),), help, is_number=True)


def _chart(title: str, unit: str, *queries: tuple[str, str], help: str = "") -> Panel:
    return Panel(title, unit, tuple(Query(*query) for query in queries), help)


def _rate(metric: str, labels: str) -> str:
    return f"rate({metric}{{{labels}}}[$__rate_interval])"


def _quantile(share: float, metric: str, labels: str) -> str:
    return f"histogram_quantile({share}, sum by (le) ({_recorded(metric)}{{{labels}}}))"


def _recorded(metric: str) -> str:
    """Return the name of the recorded rates of a histogram's buckets."""
    return f"instance_le:{metric}_bucket:rate5m"


def recording_rules() -> str:
    """Return Prometheus's rules that record the rates of buckets."""
    words = "# `make reference` writes this file: rates that the dashboards and alerts.yaml ask for.\n"
    rules = [
        {"record": _recorded(name), "expr": f"sum by (instance, le) (rate({name}_bucket[5m]))"} for name in _HISTOGRAMS
    ]
    return words + yaml.safe_dump(
        {"groups": [{"name": "penstock-recorded", "rules": rules}]}, sort_keys=False, width=120
    )


_NODES = 'instance=~"$instance"'
_TOPICS = f'topic=~"$topic", {_NODES}'
_CHANNELS = f'channel=~"$channel", {_TOPICS}'
_INSTANCE = {"instance": "label_values(nsqd_topics, instance)"}
_TOPIC = _INSTANCE | {"topic": "label_values(nsqd_topic_depth, topic)"}
_CHANNEL = _TOPIC | {"channel": 'label_values(nsqd_channel_depth{topic=~"$topic"}, channel)'}

DASHBOARDS = (
    Dashboard(
        "overview",
        "overview",
        _INSTANCE,
        (
            (
                _number("Nodes up", "none", 'sum(up{job="nsqd"})'),
                _number("Ready", "short", f"sum(nsqd_depth{{{_NODES}}})", "messages that no consumer has got yet"),
                _number("In flight", "short", f"sum(nsqd_in_flight{{{_NODES}}})"),
                _number("Dead letters", "short", f"sum(nsqd_buried{{{_NODES}}})"),
                _number("First certificate expires in", "s", f"min(nsqd_certificate_expiry_seconds{{{_NODES}}})"),
            ),
            (
                _chart(
                    "Published", "ops", (f"sum by (instance) ({_rate('nsqd_messages_total', _NODES)})", "{{instance}}")
                ),
                _chart(
                    "Bytes published",
                    "Bps",
                    (f"sum by (instance) ({_rate('nsqd_message_bytes_total', _NODES)})", "{{instance}}"),
                ),
            ),
            (
                _chart(
                    "Messages by state",
                    "short",
                    (f"sum(nsqd_depth{{{_NODES}}})", "ready"),
                    (f"sum(nsqd_in_flight{{{_NODES}}})", "in flight"),
                    (f"sum(nsqd_deferred{{{_NODES}}})", "deferred"),
                    (f"sum(nsqd_buried{{{_NODES}}})", "buried"),
                    (f"sum(nsqd_undistributed{{{_NODES}}})", "not in a channel yet"),
                ),
                _chart(
                    "From publish to FIN",
                    "s",
                    (_quantile(0.5, "nsqd_e2e_processing_latency_seconds", _NODES), "p50"),
                    (_quantile(0.99, "nsqd_e2e_processing_latency_seconds", _NODES), "p99"),
                ),
            ),
            (
                _chart(
                    "Failed deliveries",
                    "ops",
                    (f"sum({_rate('nsqd_requeued_total', _NODES)})", "requeued"),
                    (f"sum({_rate('nsqd_timed_out_total', _NODES)})", "timed out"),
                    (f"sum({_rate('nsqd_dropped_total', _NODES)})", "dropped"),
                ),
                _chart("Refused", "ops", (f"sum by (reason) ({_rate('nsqd_refused_total', _NODES)})", "{{reason}}")),
            ),
        ),
    ),
    Dashboard(
        "topic",
        "topic",
        _TOPIC,
        (
            (
                _chart(
                    "Published", "ops", (f"sum by (topic) ({_rate('nsqd_topic_messages_total', _TOPICS)})", "{{topic}}")
                ),
                _chart(
                    "Bytes published",
                    "Bps",
                    (f"sum by (topic) ({_rate('nsqd_topic_message_bytes_total', _TOPICS)})", "{{topic}}"),
                ),
            ),
            (
                _chart(
                    "Ready in all channels", "short", (f"sum by (topic) (nsqd_topic_depth{{{_TOPICS}}})", "{{topic}}")
                ),
                _chart(
                    "Duplicates refused, and dropped",
                    "ops",
                    (f"sum by (topic) ({_rate('nsqd_topic_duplicates_total', _TOPICS)})", "{{topic}} duplicates"),
                    (f"sum by (topic) ({_rate('nsqd_topic_dropped_total', _TOPICS)})", "{{topic}} dropped"),
                ),
            ),
            (
                _chart(
                    "Not read yet by cursor",
                    "short",
                    (f"nsqd_cursor_lag{{{_TOPICS}}}", "{{topic}} {{cursor}} {{instance}}"),
                ),
            ),
        ),
    ),
    Dashboard(
        "channel",
        "channel",
        _CHANNEL,
        (
            (
                _chart(
                    "Ready",
                    "short",
                    (f"sum by (topic, channel) (nsqd_channel_depth{{{_CHANNELS}}})", "{{topic}}/{{channel}}"),
                ),
                _chart(
                    "In flight",
                    "short",
                    (f"sum by (topic, channel) (nsqd_channel_in_flight{{{_CHANNELS}}})", "{{topic}}/{{channel}}"),
                ),
            ),
            (
                _chart(
                    "Incoming",
                    "ops",
                    (
                        f"sum by (topic, channel) ({_rate('nsqd_channel_messages_total', _CHANNELS)})",
                        "{{topic}}/{{channel}}",
                    ),
                ),
                _chart(
                    "Consumers",
                    "short",
                    (f"sum by (topic, channel) (nsqd_channel_clients{{{_CHANNELS}}})", "{{topic}}/{{channel}}"),
                ),
            ),
            (
                _chart(
                    "Failed deliveries",
                    "ops",
                    (
                        f"sum by (topic, channel) ({_rate('nsqd_channel_requeued_total', _CHANNELS)})",
                        "{{topic}}/{{channel}} requeued",
                    ),
                    (
                        f"sum by (topic, channel) ({_rate('nsqd_channel_timed_out_total', _CHANNELS)})",
                        "{{topic}}/{{channel}} timed out",
                    ),
                ),
                _chart(
                    "Deferred and buried",
                    "short",
                    (
                        f"sum by (topic, channel) (nsqd_channel_deferred{{{_CHANNELS}}})",
                        "{{topic}}/{{channel}} deferred",
                    ),
                    (f"sum by (topic, channel) (nsqd_channel_buried{{{_CHANNELS}}})", "{{topic}}/{{channel}} buried"),
                ),
            ),
        ),
    ),
    Dashboard(
        "node",
        "node",
        _INSTANCE,
        (
            (
                _chart("Connections", "short", (f"nsqd_connections{{{_NODES}}}", "{{instance}}")),
                _chart(
                    "Errors sent to clients",
                    "ops",
                    (f"sum by (protocol, code) ({_rate('nsqd_client_errors_total', _NODES)})", "{{protocol}} {{code}}"),
                ),
            ),
            (
                _chart(
                    "CPU",
                    "percentunit",
                    (f"{_rate('process_cpu_seconds_total', _NODES)}", "{{instance}}"),
                    help="share of a core",
                ),
                _chart("Resident memory", "bytes", (f"process_resident_memory_bytes{{{_NODES}}}", "{{instance}}")),
            ),
            (
                _chart(
                    "Duration of a turn",
                    "s",
                    (_quantile(0.5, "nsqd_turn_seconds", _NODES), "p50"),
                    (_quantile(0.99, "nsqd_turn_seconds", _NODES), "p99"),
                    help="no client is answered while a turn lasts",
                ),
                _chart(
                    "Duration of a sync",
                    "s",
                    (_quantile(0.5, "nsqd_log_sync_seconds", _NODES), "p50"),
                    (_quantile(0.99, "nsqd_log_sync_seconds", _NODES), "p99"),
                ),
            ),
            (
                _chart(
                    "The commit log",
                    "bytes",
                    (f"nsqd_log_bytes{{{_NODES}}}", "{{instance}} files"),
                    (f"nsqd_log_live_bytes{{{_NODES}}}", "{{instance}} in use"),
                ),
                _chart(
                    "Not synced, and in memory",
                    "bytes",
                    (f"nsqd_log_unsynced_bytes{{{_NODES}}}", "{{instance}} not synced"),
                    (f"nsqd_log_memory_bytes{{{_NODES}}}", "{{instance}} messages in memory"),
                ),
            ),
            (
                _chart(
                    "Buffer budget",
                    "bytes",
                    (f"nsqd_buffer_bytes{{{_NODES}}}", "{{instance}} used"),
                    (f"nsqd_buffer_budget_bytes{{{_NODES}}}", "{{instance}} limit"),
                ),
                _chart(
                    "Queue scan",
                    "ops",
                    (_rate("nsqd_queue_scan_served_total", _NODES), "{{instance}}"),
                    help="messages that timed out or became ready",
                ),
            ),
        ),
    ),
    Dashboard(
        "cluster",
        "cluster",
        _INSTANCE,
        (
            (
                _number("Copies possible at the worst node", "none", f"min(nsqd_cluster_copies_available{{{_NODES}}})"),
                _number("Logs without a leader", "none", f"max(nsqd_cluster_lost_logs{{{_NODES}}})"),
                _number("Replicas that fail", "none", f"sum(nsqd_cluster_replica_failed{{{_NODES}}})"),
                _number(
                    "Replies given up in an hour",
                    "short",
                    f"sum(increase(nsqd_cluster_replies_given_up_total{{{_NODES}}}[1h]))",
                ),
            ),
            (
                _chart("Other nodes by state", "short", (f"nsqd_cluster_nodes{{{_NODES}}}", "{{instance}} {{state}}")),
                _chart(
                    "A follower is behind by",
                    "bytes",
                    (f"nsqd_cluster_follower_behind_bytes{{{_NODES}}}", "{{instance}} by node {{node}}"),
                ),
            ),
            (
                _chart(
                    "Followers in sync",
                    "short",
                    (f"sum by (instance) (nsqd_cluster_follower_in_sync{{{_NODES}}})", "{{instance}}"),
                ),
                _chart(
                    "Elections",
                    "ops",
                    (f"sum by (result) ({_rate('nsqd_cluster_elections_total', _NODES)})", "{{result}}"),
                ),
            ),
            (
                _chart("Promoted logs", "short", (f"nsqd_cluster_promoted_logs{{{_NODES}}}", "{{instance}} {{state}}")),
                _chart(
                    "Possible duplicates",
                    "ops",
                    (f"sum by (reason) ({_rate('nsqd_cluster_possible_duplicates_total', _NODES)})", "{{reason}}"),
                ),
            ),
        ),
    ),
    Dashboard(
        "jobs",
        "jobs",
        _INSTANCE | {"tube": "label_values(nsqd_tube_ready, tube)"},
        (
            (
                _chart("Ready", "short", (f'sum by (tube) (nsqd_tube_ready{{tube=~"$tube", {_NODES}}})', "{{tube}}")),
                _chart(
                    "Reserved", "short", (f'sum by (tube) (nsqd_tube_reserved{{tube=~"$tube", {_NODES}}})', "{{tube}}")
                ),
            ),
            (
                _chart(
                    "Incoming",
                    "ops",
                    ("sum by (tube) (" + _rate("nsqd_tube_jobs_total", f'tube=~"$tube", {_NODES}') + ")", "{{tube}}"),
                ),
                _chart(
                    "Workers that wait",
                    "short",
                    (f'sum by (tube) (nsqd_tube_waiting{{tube=~"$tube", {_NODES}}})', "{{tube}}"),
                ),
            ),
            (
                _chart(
                    "Delayed and buried",
                    "short",
                    (f'sum by (tube) (nsqd_tube_delayed{{tube=~"$tube", {_NODES}}})', "{{tube}} delayed"),
                    (f'sum by (tube) (nsqd_tube_buried{{tube=~"$tube", {_NODES}}})', "{{tube}} buried"),
                ),
                _chart(
                    "Lent to clients of other nodes, and expired",
                    "ops",
                    (_rate("nsqd_cluster_jobs_lent_total", _NODES), "{{instance}} lent"),
                    (_rate("nsqd_jobs_expired_total", _NODES), "{{instance}} expired"),
                ),
            ),
        ),
    ),
)

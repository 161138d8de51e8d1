"""The columns of the pages' tables, and what each is sorted by. Pure."""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter, itemgetter
from typing import Any

from admin.nodes.publishers import Publisher
from admin.nodes.sorting import Column, Table
from admin.nodes.views import Row, Talker, traits
from shared.cluster.state import LogCopy, LogState, MemberState
from shared.json_fields import JsonObject, text


def _item(key: str) -> Callable[[JsonObject], Any]:
    """Return a function that returns the item of a JSON object, or None."""
    return lambda row: row.get(key)


def _columns(
    get: Callable[[str], Callable[[Any], Any]], *, is_text: bool = False, **labels: str
) -> tuple[Column[Any], ...]:
    """Return columns by key with these labels. `get` returns the function that reads a key from a row."""
    return tuple(Column(key, label, get(key), is_text=is_text) for key, label in labels.items())  # fmt: skip


def age_of(since: int) -> int | None:
    """Return a number that grows with the age of what began at `since` (ns since the epoch); None if nothing did."""
    return -since or None


def latency_of(data: JsonObject) -> float | None:
    """Return the largest latency of a topic or channel, ns; None if none was measured."""
    latency = data.get("e2e_processing_latency")
    quantiles = latency.get("percentiles") if isinstance(latency, dict) and latency.get("count") else None
    return max((one["average"] for one in quantiles), default=None) if quantiles else None


def _ratio(part: int | None, whole: int | None) -> float | None:
    return part / whole if part is not None and whole else None


def _failure_share(client: JsonObject) -> float | None:
    return _ratio(client["requeue_count"], client["requeue_count"] + client["finish_count"])


SINCE_START = frozenset(("messages", "message_count", "requeued", "timed_out"))  # columns whose heads say so

_OLDEST: Column[Row] = Column("oldest", "Oldest message", lambda row: age_of(row.oldest))
_DRAIN: Column[Row] = Column("drain", "Time to drain", attrgetter("drain_rank"))
_STATES = _columns(
    attrgetter, in_flight="In flight", deferred="Deferred", buried="Buried", requeued="Requeued", timed_out="Timed out",
    messages="Published",
)  # fmt: skip

TOPICS: Table[Row] = Table((  # topics with alarms first
    *_columns(attrgetter, is_text=True, name="Topic"),
    *_columns(attrgetter, rate_in="Published/s", rate_out="Finished/s per channel", depth="Depth"), _OLDEST, *_STATES,
    *_columns(attrgetter, channels="Channels", clients="Clients"), _DRAIN,
), has_own_order=True)  # fmt: skip
NODE_TOPICS: Table[Row] = Table((
    *_columns(attrgetter, is_text=True, name="Topic"), *_columns(attrgetter, depth="Depth"), _OLDEST, *_STATES,
    *_columns(attrgetter, channels="Channels", clients="Clients"),
))  # fmt: skip
CHANNELS: Table[Row] = Table((
    *_columns(attrgetter, is_text=True, name="Channel"), *_columns(attrgetter, rate_out="Finished/s", depth="Depth"),
    _OLDEST, *_STATES, *_columns(attrgetter, clients="Clients"), _DRAIN,
))  # fmt: skip
TOPIC_NODES: Table[JsonObject] = Table((
    Column("node", "Node", lambda row: (text(row["hostname"]), text(row["node"])), is_text=True),
    *_columns(
        _item, depth="Not in channels yet", memory_depth="In memory", backend_depth="On disk", message_count="Published",
    ),
    Column("channels", "Channels", lambda row: len(row["channels"] or ())), Column("latency", "Latency", latency_of),
), "nodes")  # fmt: skip
READERS: Table[JsonObject] = Table((
    *_columns(_item, is_text=True, name="Reader", topic="Topic", node="Node", owner="Owner"),
    *_columns(_item, offset="Offset", lag="Lag", gone="Lost"), Column("hold", "Hold", lambda row: row["hold"] or None),
    Column("updated", "Last updated", lambda row: age_of(row["updated"])),
), "readers", "lag")  # fmt: skip
SCHEDULES: Table[JsonObject] = Table(
    _columns(
        _item, is_text=True, name="Schedule", topic="Topic", node="Node", when="When", next="Next run", last="Last run",
        missed="Missed runs",
    ), "schedules",
)  # fmt: skip
BATCHES: Table[JsonObject] = Table((
    *_columns(_item, is_text=True, name="Batch", node="Node", state="State"),
    *_columns(_item, members="Members", buried="Buried", follow_ups="Waiting follow-ups"),
    Column("created", "Created", lambda row: age_of(row["created"])),
    Column("changed", "Last change", lambda row: age_of(row["changed"])),
), "batches")  # fmt: skip
PUBLISHERS: Table[Publisher] = Table((
    *_columns(attrgetter, is_text=True, client="Client", identity="Identity", user_agent="Program", node="Node"),
    *_columns(attrgetter, rate="Published/s", messages="Published"),
    Column("connected", "Connected", lambda row: age_of(row.connected)),
), "publishers", has_own_order=True)  # fmt: skip
TUBES: Table[JsonObject] = Table((
    *_columns(_item, is_text=True, tube_name="Tube", node="Node"),
    *_columns(_item, ready_count="Ready"),
    Column("oldest", "Oldest ready", lambda row: age_of(row.get("oldest", 0))),
    *_columns(
        _item, urgent_count="Urgent", reserved_count="Reserved", delayed_count="Delayed",
        buried_count="Buried", job_count="Total jobs", using_count="beanstalkd: using", watching_count="watching",
        waiting_count="waiting", disque_waiting_count="Disque: waiting", node_waiting_count="Nodes waiting",
    ),
))  # fmt: skip
STORAGE: Table[tuple[str, JsonObject]] = Table((
    Column("node", "Node", itemgetter(0), is_text=True),
    *_columns(
        lambda key: lambda row: row[1][key], log_bytes="Log size", live_bytes="In use", live_share="In use (%)",
        segments="Files", memory_bytes="In memory", unsynced_bytes="Unsynced", sync_p50_ms="Sync p50",
        sync_p99_ms="Sync p99", checkpoints="Checkpoints", disk_free="Free disk",
    ),
))  # fmt: skip
LOG_TOPICS: Table[JsonObject] = Table((
    *_columns(_item, is_text=True, topic="Topic"),
    *_columns(_item, live_bytes="In use", messages="Messages", retained="Retained"),
), "topics", "live_bytes")  # fmt: skip
LOG_FILES: Table[JsonObject] = Table(
    _columns(_item, number="File", bytes="Size", live_bytes="In use", live_share="In use (%)"), "files"
)
PROMOTED: Table[JsonObject] = Table((
    *_columns(_item, is_text=True, log="Log"),
    *_columns(_item, node="Published by node", log_bytes="Log size", live_bytes="In use", segments="Files"),
    *_columns(_item, memory_bytes="In memory", damage="Corrupt"),
), "promoted")  # fmt: skip
TALKERS: Table[Talker] = Table((
    *_columns(attrgetter, is_text=True, name="Identity"),
    *_columns(
        attrgetter, connections="Connections", in_flight="In flight", messages="Messages", bytes="Bytes",
        throttled="Throttled", throttled_ms="Throttled for", refused="Refused",
    ),
), "talkers", "bytes")  # fmt: skip
MEMBERS: Table[MemberState] = Table((
    *_columns(attrgetter, is_text=True, node="Node", state="State", address="Cluster address", http_address="HTTP address"),
    Column("connected", "Connected to", lambda row: len(row.connected_to)),
    Column("possible", "Copies possible", lambda row: _ratio(row.copies_possible, row.copies_wanted)),
), "members")  # fmt: skip
LOGS: Table[LogState] = Table((
    *_columns(attrgetter, is_text=True, node="Log of node"), Column("log", "Log", attrgetter("log_id"), is_text=True),
    *_columns(attrgetter, is_text=True, leader="Leader", state="State"),
    Column("takers", "Failover", lambda row: len(row.takers)),
), "logs")  # fmt: skip
COPIES: Table[LogCopy] = Table((
    *_columns(attrgetter, is_text=True, leader="Log of node", follower="Copy at node", state="State"),
    *_columns(attrgetter, behind="Lag", written="Written up to", durable="Durable up to"),
), "copies")  # fmt: skip
NODES: Table[JsonObject] = Table((  # nodes that are down first
    Column("node", "Node", lambda row: (row["hostname"], row["node"]), is_text=True),
    *_columns(_item, is_text=True, state="State", version="Version", registered="Registered with"),
    *_columns(_item, topics="Topics"),
    *_columns(_item, depth="Depth", in_flight="In flight", buried="Buried", clients="Clients"),
    *_columns(_item, disk_free="Free disk", rate_in="Published/s", cpu="CPU", memory="Memory"),
    Column("started", "Uptime", lambda row: age_of(row["started"])),
    *_columns(_item, is_text=True, copies="Copies of its log"),
), has_own_order=True)  # fmt: skip
CLIENTS: Table[JsonObject] = Table((
    Column("client", "Client", lambda row: text(row["hostname"]) or text(row["client_id"]), is_text=True),
    *_columns(_item, is_text=True, user_agent="Program", node="Node"),
    Column("connection", "Connection", traits, is_text=True),
    *_columns(_item, ready_count="RDY", in_flight_count="In flight", finish_count="Finished", requeue_count="Requeued"),
    Column("saturation", "Saturation", lambda row: _ratio(row["in_flight_count"], row["ready_count"])),
    Column("failures", "Failure share", _failure_share), *_columns(_item, message_count="Messages", connected="Connected"),
), "clients", has_own_order=True)  # fmt: skip


def _of_channel(key: str) -> Callable[[Any], Any]:
    return lambda row: row.channel.get(key)


CHANNEL_NODES: Table[Any] = Table((  # of channel_page.NodeRow
    Column("node", "Node", lambda row: (text(row.channel.get("hostname")), row.node), is_text=True),
    *_columns(_of_channel, depth="Depth"), Column("oldest", "Oldest message", lambda row: age_of(row.oldest)),
    *_columns(
        _of_channel, in_flight_count="In flight", deferred_count="Deferred", buried_count="Buried",
        requeue_count="Requeued", timeout_count="Timed out",
    ),
    Column("published", "Published/s", attrgetter("rates.published")),
    Column("finished", "Finished/s", attrgetter("rates.finished")),
    *_columns(_of_channel, backend_depth="On disk", message_count="Published", client_count="Clients"),
    Column("latency", "Latency", lambda row: latency_of(row.channel)),
), "nodes")  # fmt: skip

"""The columns of the pages' tables, and what each is sorted by. Pure."""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter, itemgetter
from typing import Any

from admin.nodes.sorting import Column, Table
from admin.nodes.views import Row, Talker, traits
from shared.cluster.state import LogCopy, LogState, MemberState
from shared.json_fields import JsonObject, text


def _value(key: str) -> Callable[[JsonObject], Any]:
    return lambda one: one.get(key)


def _texts(**columns: str) -> tuple[Column[Any], ...]:
    """Return columns of texts of a JSON object, by key."""
    return tuple(Column(key, words, _value(key), is_text=True) for key, words in columns.items())


def _numbers(**columns: str) -> tuple[Column[Any], ...]:
    """Return columns of numbers of a JSON object, by key."""
    return tuple(Column(key, words, _value(key)) for key, words in columns.items())


def _figures(**columns: str) -> tuple[Column[Row], ...]:
    """Return columns of numbers of a row, by attribute."""
    return tuple(Column(key, words, attrgetter(key)) for key, words in columns.items())


def age_of(since: int) -> int | None:
    """Return a number that grows with the age of what began at `since` (ns since the epoch); None if nothing did."""
    return -since or None


_OLDEST: Column[Row] = Column("oldest", "Oldest message", lambda row: age_of(row.oldest))
_DRAIN: Column[Row] = Column("drain", "Time to drain", attrgetter("drain_rank"))


def _name(words: str) -> Column[Row]:
    return Column("name", words, attrgetter("name"), is_text=True)


TOPICS: Table[Row] = Table(
    (
        _name("Topic"), *_figures(rate_in="Published/s", rate_out="Finished/s per channel", depth="Depth"), _OLDEST,
        *_figures(in_flight="In flight", deferred="Deferred", buried="Buried", requeued="Requeued", timed_out="Timed out"),
        *_figures(messages="Messages", channels="Channels", clients="Clients"), _DRAIN,
    ),
    has_own_order=True,  # trouble first
)  # fmt: skip
NODE_TOPICS: Table[Row] = Table((
    _name("Topic"), *_figures(depth="Depth"), _OLDEST,
    *_figures(in_flight="In flight", deferred="Deferred", buried="Buried", requeued="Requeued", timed_out="Timed out"),
    *_figures(messages="Messages", channels="Channels", clients="Clients"),
))  # fmt: skip
CHANNELS: Table[Row] = Table((
    _name("Channel"), *_figures(rate_out="Finished/s", depth="Depth"), _OLDEST,
    *_figures(in_flight="In flight", deferred="Deferred", buried="Buried", requeued="Requeued", timed_out="Timed out"),
    *_figures(messages="Messages", clients="Clients"), _DRAIN,
))  # fmt: skip


def latency_of(data: JsonObject) -> float | None:
    """Return the largest latency of a topic or channel, ns; None if none was measured."""
    latency = data.get("e2e_processing_latency")
    quantiles = latency.get("percentiles") if isinstance(latency, dict) and latency.get("count") else None
    return max((one["average"] for one in quantiles), default=None) if quantiles else None


def _length(key: str) -> Callable[[JsonObject], int]:
    return lambda one: len(one[key] or ())


TOPIC_NODES: Table[JsonObject] = Table(
    (
        Column("node", "Node", lambda one: (text(one["hostname"]), text(one["node"])), is_text=True),
        *_numbers(depth="Depth", memory_depth="In memory", backend_depth="On disk", message_count="Messages"),
        Column("channels", "Channels", _length("channels")),
        Column("latency", "Latency", latency_of),
    ),
    "nodes",
)
READERS: Table[JsonObject] = Table(
    (
        *_texts(name="Reader", topic="Topic", node="Node", owner="Owner"), *_numbers(offset="Offset", lag="Lag", gone="Lost"),
        Column("hold", "Hold", lambda one: one["hold"] or None),
        Column("updated", "Last updated", lambda one: age_of(one["updated"])),
    ),
    "readers",
    "lag",
)  # fmt: skip
TUBES: Table[JsonObject] = Table((
    *_texts(tube_name="Tube", node="Node"),
    *_numbers(
        ready_count="Ready", urgent_count="Urgent", reserved_count="Reserved", delayed_count="Delayed", buried_count="Buried",
        job_count="Total jobs", using_count="beanstalkd: using", watching_count="watching", waiting_count="waiting",
        disque_waiting_count="Disque: waiting", node_waiting_count="Nodes waiting",
    ),
))  # fmt: skip
STORAGE: Table[tuple[str, JsonObject]] = Table((
    Column("node", "Node", itemgetter(0), is_text=True),
    *(
        Column(key, words, lambda row, key=key: row[1][key])  # type: ignore[misc]
        for key, words in {
            "log_bytes": "Log size", "live_bytes": "In use", "live_share": "In use (%)", "segments": "Files",
            "memory_bytes": "In memory", "unsynced_bytes": "Unsynced", "sync_p50_ms": "Sync p50", "sync_p99_ms": "Sync p99",
            "checkpoints": "Checkpoints", "disk_free": "Free disk",
        }.items()
    ),
))  # fmt: skip
LOG_TOPICS: Table[JsonObject] = Table(
    (*_texts(topic="Topic"), *_numbers(live_bytes="In use", messages="Messages", retained="Retained")),
    "topics",
    "live_bytes",
)
LOG_FILES: Table[JsonObject] = Table(
    _numbers(number="File", bytes="Size", live_bytes="In use", live_share="In use (%)"), "files"
)
PROMOTED: Table[JsonObject] = Table(
    (
        *_texts(log="Log"),
        *_numbers(node="Published by node", log_bytes="Log size", live_bytes="In use", segments="Files"),
        *_numbers(memory_bytes="In memory", damage="Corrupt"),
    ),
    "promoted",
)
TALKERS: Table[Talker] = Table(
    (
        Column("name", "Identity", attrgetter("name"), is_text=True),
        *(
            Column(key, words, attrgetter(key))
            for key, words in {
                "connections": "Connections", "in_flight": "In flight", "messages": "Messages", "bytes": "Bytes",
                "throttled": "Throttled", "throttled_ms": "Throttled for", "refused": "Refused",
            }.items()
        ),
    ),
    "talkers",
    "bytes",
)  # fmt: skip


def _ratio(part: int | None, whole: int | None) -> float | None:
    return part / whole if part is not None and whole else None


MEMBERS: Table[MemberState] = Table(
    (
        Column("node", "Node", attrgetter("node"), is_text=True),
        Column("state", "State", attrgetter("state"), is_text=True),
        Column("address", "Cluster address", attrgetter("address"), is_text=True),
        Column("http_address", "HTTP address", attrgetter("http_address"), is_text=True),
        Column("connected", "Connected to", lambda one: len(one.connected_to)),
        Column("possible", "Copies possible", lambda one: _ratio(one.copies_possible, one.copies_wanted)),
    ),
    "members",
)
LOGS: Table[LogState] = Table(
    (
        Column("node", "Log of node", attrgetter("node"), is_text=True),
        Column("log", "Log", attrgetter("log_id"), is_text=True),
        Column("leader", "Leader", attrgetter("leader"), is_text=True),
        Column("state", "State", attrgetter("state"), is_text=True),
        Column("takers", "Failover", lambda one: len(one.takers)),
    ),
    "logs",
)
COPIES: Table[LogCopy] = Table(
    (
        Column("leader", "Log of node", attrgetter("leader"), is_text=True),
        Column("follower", "Copy at node", attrgetter("follower"), is_text=True),
        Column("state", "State", attrgetter("state"), is_text=True),
        Column("behind", "Lag", attrgetter("behind")),
        Column("written", "Written up to", attrgetter("written")),
        Column("durable", "Durable up to", attrgetter("durable")),
    ),
    "copies",
)


def _figure(key: str) -> Callable[[JsonObject], Any]:
    return lambda one: one["figures"].get(key)


NODES: Table[JsonObject] = Table(
    (
        Column("node", "Node", lambda one: (one["hostname"], one["node"]), is_text=True),
        *_texts(state="State", version="Version"), Column("registered", "Registered with", _value("registered"), is_text=True),
        *_numbers(topics="Topics"),
        *(
            Column(key, words, _figure(key))
            for key, words in {"depth": "Depth", "in_flight": "In flight", "buried": "Buried", "clients": "Clients"}.items()
        ),
        *_numbers(disk_free="Free disk"), *_texts(copies="Copies of its log"),
    ),
    has_own_order=True,  # those that are down first
)  # fmt: skip
CLIENTS: Table[JsonObject] = Table(
    (
        Column("client", "Client", lambda one: text(one["hostname"]) or text(one["client_id"]), is_text=True),
        *_texts(user_agent="Program", node="Node"),
        Column("connection", "Connection", traits, is_text=True),
        *_numbers(ready_count="RDY", in_flight_count="In flight", finish_count="Finished", requeue_count="Requeued"),
        Column(
            "failures",
            "Failure share",
            lambda one: _ratio(one["requeue_count"], one["requeue_count"] + one["finish_count"]),
        ),
        *_numbers(message_count="Messages", connected="Connected"),
    ),
    "clients",
    has_own_order=True,
)


def _of_channel(**columns: str) -> tuple[Column[Any], ...]:
    """Return columns of numbers of a channel on a node, by key."""
    return tuple(Column(key, words, lambda one, key=key: one.channel.get(key)) for key, words in columns.items())  # type: ignore[misc]


CHANNEL_NODES: Table[Any] = Table(  # of channel_page.NodeRow
    (
        Column("node", "Node", lambda one: (text(one.channel.get("hostname")), one.node), is_text=True),
        *_of_channel(depth="Depth"),
        Column("oldest", "Oldest message", lambda one: age_of(one.oldest)),
        *_of_channel(in_flight_count="In flight", deferred_count="Deferred", buried_count="Buried"),
        *_of_channel(requeue_count="Requeued", timeout_count="Timed out"),
        Column("published", "Published/s", lambda one: one.rates.published),
        Column("finished", "Finished/s", lambda one: one.rates.finished),
        *_of_channel(backend_depth="On disk", message_count="Messages", client_count="Clients"),
        Column("latency", "Latency", lambda one: latency_of(one.channel)),
    ),
    "nodes",
)
OF_PENSTOCK = ("oldest", "buried_count")  # columns of a channel that only Penstock's nodes tell

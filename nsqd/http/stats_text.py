"""Write GET /stats as text, line for line as the original prints it, from the picture that is also sent as JSON."""

from datetime import datetime
from typing import Any

from shared.log import escape
from shared.values import SECOND, format_duration
from shared.version import version_line

_UNITS = ((1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "us"), (1, "ns"))


def render(figures: dict[str, Any], now: int) -> str:
    """Return the whole page as text. `now`: ns since the epoch."""
    started = figures["start_time"]
    lines = [
        version_line("nsqd"),
        f"start_time {datetime.fromtimestamp(started).astimezone().isoformat().replace('+00:00', 'Z')}",
        f"uptime {format_duration(now - started * SECOND)}",
        "",
        f"Health: {figures['health']}",
    ]
    if "memory" in figures:
        lines += ["", "Memory:", *(f"   {key:<25}\t{value}" for key, value in figures["memory"].items())]
    topics = figures["topics"]
    lines += ["", "Topics:" if topics else "Topics: None"]
    for place, topic in enumerate(topics or ()):
        lines += ["", *_topic(topic, now)] if place else _topic(topic, now)
    producers = figures["producers"]
    lines += ["", "Producers:" if producers else "Producers: None"]
    lines += [f"   {_producer(producer, now)}" for producer in producers or ()]
    return "\n".join(lines) + "\n"


def _topic(topic: dict[str, Any], now: int) -> list[str]:
    prefix = "*P " if topic["paused"] else "   "
    lines = [
        f"{prefix}[{topic['topic_name']:<15}] depth: {topic['depth']:<5} be-depth: {topic['backend_depth']:<5} "
        f"msgs: {topic['message_count']:<8} e2e%: {_percentiles(topic)}"
    ]
    for channel in topic["channels"]:
        lines.append(_channel(channel))
        for client in channel["clients"] or ():
            lines.append(f"        {_producer(client, now) if 'pub_counts' in client else _client(client, now)}")
    return lines


def _channel(channel: dict[str, Any]) -> str:
    prefix = "   *P " if channel["paused"] else "      "
    return (
        f"{prefix}[{channel['channel_name']:<25}] depth: {channel['depth']:<5} be-depth: {channel['backend_depth']:<5} "
        f"inflt: {channel['in_flight_count']:<4} def: {channel['deferred_count']:<4} "
        f"re-q: {channel['requeue_count']:<5} timeout: {channel['timeout_count']:<5} "
        f"msgs: {channel['message_count']:<8} e2e%: {_percentiles(channel)}"
    )


def _client(client: dict[str, Any], now: int) -> str:
    return (
        f"{_who(client)} state: {client['state']} inflt: {client['in_flight_count']:<4} rdy: {client['ready_count']:<4} "
        f"fin: {client['finish_count']:<8} re-q: {client['requeue_count']:<8} msgs: {client['message_count']:<8} "
        f"connected: {_connected(client, now)}"
    )


def _producer(client: dict[str, Any], now: int) -> str:
    counts = client.get("pub_counts", [])
    total = sum(entry["count"] for entry in counts)
    topics = ",".join(f"{entry['topic']}={entry['count']}" for entry in counts)
    return f"{_who(client)} msgs: {total:<8} topics: {topics} connected: {_connected(client, now)}"


def _percentiles(item: dict[str, Any]) -> str:
    """Return `1.2ms, 0.9ms`: as many as are configured."""
    return ", ".join(_human(entry["value"]) for entry in item["e2e_processing_latency"]["percentiles"] or ())


def _human(ns: int) -> str:
    """Return ns as the original prints them: a whole unit is still shown in the one below."""
    unit, name = next((unit, name) for unit, name in _UNITS if ns > unit or unit == 1)
    return f"{ns / unit:.1f}{name}"


def _who(client: dict[str, Any]) -> str:
    port = client["remote_address"].rpartition(":")[2]
    # the words of a peer must not begin lines of their own
    name = escape(f"{client['hostname']}:{port} {client['user_agent']}")
    return f"[{client['version']} {name:<21}]"


def _connected(client: dict[str, Any], now: int) -> str:
    return format_duration(max(0, now // SECOND - client["connect_ts"]) * SECOND)

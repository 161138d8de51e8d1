"""Converts nodes' stats of topics and channels to the form of nsqadmin's API, per node and merged over all nodes. Pure.

Nodes may lie: a value that is no number where one belongs counts as 0. Keys are in the original's order.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from shared.json_fields import JsonObject, number, objects, text

LONGEST_NAME = 200  # characters: the limit for a tube; a topic has at most 64
_SUMS = (
    "depth", "memory_depth", "backend_depth", "in_flight_count", "deferred_count", "requeue_count", "timeout_count",
    "message_count", "delivery_msg_count", "zone_local_msg_count", "region_local_msg_count", "global_msg_count", "client_count",
    "buried_count",
)  # fmt: skip
_DELIVERED = ("zone_local_msg_count", "region_local_msg_count", "global_msg_count")
_OMITTED = (
    "buried_count",
    "delivery_msg_count",
    *_DELIVERED,
)  # where they are 0; only Penstock's nsqd has buried_count
_CLIENT_TEXTS = ("remote_address", "version", "client_id", "hostname", "user_agent")
_CLIENT_COUNTS = ("in_flight_count", "ready_count", "finish_count", "requeue_count", "message_count", "sample_rate")
_TOPOLOGY = ("topology_region", "topology_zone")


def named(value: object, key: str) -> list[JsonObject]:
    """Return the objects in a list that have a name of 1 to LONGEST_NAME characters under `key`; the first of each name."""
    found: dict[str, JsonObject] = {}
    for one in objects(value):
        name = one.get(key)
        if isinstance(name, str) and 0 < len(name) <= LONGEST_NAME:
            found.setdefault(name, one)
    return list(found.values())


def items(value: object) -> list[Any]:
    """Return the list, or [] if it is no list."""
    return value if isinstance(value, list) else []


def fields(value: object) -> JsonObject:
    """Return the object, or {} if it is no object."""
    return value if isinstance(value, dict) else {}


def texts(value: object) -> list[str]:
    """Return the texts in a list; [] if it is no list."""
    return [text(one) for one in items(value) if isinstance(one, str)]


def entries(data: JsonObject) -> int:
    """Return the number of entries that a topic of a node's /stats has: itself, its channels and their clients."""
    channels = objects(data.get("channels"))
    return 1 + len(channels) + sum(len(objects(channel.get("clients"))) for channel in channels)


# One node


def topic_of(data: JsonObject, node: str, hostname: str, now: int, where: tuple[str, str] = ("", "")) -> JsonObject:
    """Return a topic of a node's /stats. `now` is s since the epoch; `where` is the node's region and zone."""
    topic = text(data.get("topic_name"))
    counts = _counts(data, ("depth", "backend_depth", "message_count"))
    channels = [
        channel_of(one, topic, node, hostname, now, where) for one in named(data.get("channels"), "channel_name")
    ]
    return _topic(node, hostname, topic, counts, None, channels, data.get("paused") is True, _latency(data))


def channel_of(
    data: JsonObject, topic: str, node: str, hostname: str, now: int, where: tuple[str, str] = ("", "")
) -> JsonObject:
    """Return a channel of a node's /stats. `now` is s since the epoch; `where` is the node's region and zone."""
    counts = _counts(data, _SUMS)
    given = data.get("clients")  # None if the clients were not requested
    clients = [client_of(one, node, now, where) for one in objects(given)] if given is not None else None
    counts["client_count"] = number(data.get("client_count")) or len(clients or ())
    name, paused = text(data.get("channel_name")), data.get("paused") is True
    return _channel(node, hostname, topic, name, counts, None, clients, paused, _latency(data))


def client_of(data: JsonObject, node: str, now: int, where: tuple[str, str] = ("", "")) -> JsonObject:
    """Return a client of a channel in a node's /stats."""
    since = number(data.get("connect_ts"))
    client: JsonObject = {"node": node}
    client |= {name: text(data.get(name)) for name in _CLIENT_TEXTS}
    client |= {"connect_ts": since, "connected": (now - since) * 1_000_000_000}
    client |= {name: number(data.get(name)) for name in _CLIENT_COUNTS}
    client |= {name: data.get(name) is True for name in ("deflate", "snappy", "authed")}
    client |= {name: text(data.get(name)) for name in ("auth_identity", "auth_identity_url")}
    client |= {f"node_{name}": value for name, value in zip(_TOPOLOGY, where, strict=True) if value}
    client |= {name: text(data[name]) for name in _TOPOLOGY if text(data.get(name))}
    client["tls"] = data.get("tls") is True
    client |= {name: text(data.get(name)) for name in ("tls_cipher_suite", "tls_version", "tls_negotiated_protocol")}
    client["tls_negotiated_protocol_is_mutual"] = data.get("tls_negotiated_protocol_is_mutual") is True
    return client


# All nodes


def merged_topic(name: str, parts: Iterable[JsonObject]) -> JsonObject:
    """Return a topic and its channels, merged over the nodes."""
    nodes = sorted(parts, key=lambda one: str(one["hostname"]))
    if not nodes:
        return _topic("", "", name, dict.fromkeys(_SUMS, 0), None, None, False, None)
    by_name: dict[str, list[JsonObject]] = {}
    for channel in (channel for node in nodes for channel in node["channels"] or ()):
        by_name.setdefault(channel["channel_name"], []).append(channel)
    channels = [same[0] if len(same) == 1 else merged_channel(name, channel, same) for channel, same in by_name.items()]
    paused = any(node["paused"] for node in nodes)
    return _topic("*", "", name, _sums(nodes), nodes, channels or None, paused, _averaged(nodes, name, ""))


def merged_channel(topic: str, name: str, parts: Iterable[JsonObject]) -> JsonObject:
    """Return a channel merged over the nodes, with its clients in the order of `_by_distance`."""
    nodes = sorted(parts, key=lambda one: str(one["hostname"]))
    clients = sorted((client for node in nodes for client in node["clients"] or ()), key=_by_distance)
    paused = any(node["paused"] for node in nodes)
    return _channel("*", "", topic, name, _sums(nodes), nodes, clients or None, paused, _averaged(nodes, topic, name))


def _by_distance(client: JsonObject) -> tuple[str, bool, bool, str, str, str]:
    """Return a sort key: by node, clients in the node's zone first, then those in its region."""
    region, zone = client.get("topology_region", ""), client.get("topology_zone", "")
    here = client.get("node_topology_region", ""), client.get("node_topology_zone", "")
    return client["node"], (region, zone) != here, region != here[0], region, zone, client["hostname"]


# Shapes


def _counts(data: JsonObject, names: Iterable[str]) -> JsonObject:
    counts: JsonObject = dict.fromkeys(_SUMS, 0) | {name: number(data.get(name)) for name in (*names, *_DELIVERED)}
    counts["memory_depth"] = counts["depth"] - counts["backend_depth"]
    counts["delivery_msg_count"] = sum(counts[name] for name in _DELIVERED)
    return counts


def _sums(nodes: list[JsonObject]) -> JsonObject:
    return {name: sum(node.get(name, 0) for node in nodes) for name in _SUMS}


def _topic(
    node: str, hostname: str, name: str, counts: JsonObject, nodes: list[JsonObject] | None,
    channels: list[JsonObject] | None, paused: bool,
    latency: JsonObject | None,
) -> JsonObject:  # fmt: skip
    data: JsonObject = {"node": node, "hostname": hostname, "topic_name": name}
    data |= {key: counts[key] for key in ("depth", "memory_depth", "backend_depth", "message_count")}
    data |= {key: counts[key] for key in _OMITTED if counts[key]}
    return data | {"nodes": nodes, "channels": channels, "paused": paused, "e2e_processing_latency": latency}


def _channel(
    node: str, hostname: str, topic: str, name: str, counts: JsonObject, nodes: list[JsonObject] | None,
    clients: list[JsonObject] | None,
    paused: bool, latency: JsonObject | None,
) -> JsonObject:  # fmt: skip
    data: JsonObject = {"node": node, "hostname": hostname, "topic_name": topic, "channel_name": name}
    data |= {key: counts[key] for key in _SUMS if counts[key] or key not in _OMITTED}
    return data | {"nodes": nodes, "clients": clients, "paused": paused, "e2e_processing_latency": latency}


# Latencies


def _latency(data: JsonObject) -> JsonObject:
    """Return a node's percentiles. The average, minimum and maximum of each are its own value."""
    given = fields(data.get("e2e_processing_latency"))
    count = number(given.get("count"))
    found = [
        dict.fromkeys(("average", "max", "min", "value"), value) | {"count": count, "quantile": one.get("quantile", 0)}
        for one in objects(given.get("percentiles"))
        if _is_safe_number(value := one.get("value")) and _is_safe_number(one.get("quantile", 0))
    ]
    return {"count": count, "percentiles": found or None, "topic": "", "channel": "", "host": ""}


def _is_safe_number(value: object) -> bool:
    """Return whether the value is a number that is safe to calculate with."""
    return isinstance(value, int | float) and abs(value) < 1e18


def _averaged(nodes: list[JsonObject], topic: str, channel: str) -> JsonObject:
    """Return merged percentiles: averages weighted by message counts, and extremes, because percentiles have no true sum."""
    by_quantile: dict[float, list[JsonObject]] = {}
    latencies = [node["e2e_processing_latency"] or {} for node in nodes]
    for one in (one for latency in latencies for one in latency.get("percentiles") or ()):
        by_quantile.setdefault(one["quantile"], []).append(one)
    found = []
    for quantile, same in sorted(by_quantile.items(), reverse=True):
        count = sum(one["count"] for one in same)
        average = sum(one["average"] * one["count"] for one in same) / count if count else 0
        least, largest = min(one["min"] for one in same), max(one["max"] for one in same)
        found.append({"average": average, "count": count, "max": largest, "min": least, "quantile": quantile})
    count = sum(latency.get("count", 0) for latency in latencies)
    return {"count": count, "percentiles": found or None, "topic": topic, "channel": channel, "host": "*"}

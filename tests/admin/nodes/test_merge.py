"""The stats of several nodes merged, lies included."""

from typing import Any

from admin.nodes.merge import client_of, merged_channel, merged_topic, topic_of

NOW = 1_700_000_000


def stats_of(depth: int, channels: list[dict[str, Any]], count: int = 0, value: int = 0, **more: Any) -> dict[str, Any]:
    latency = {"count": count, "percentiles": [{"quantile": 0.5, "value": value}] if count else None}
    return {
        "topic_name": "t", "depth": depth, "backend_depth": depth // 2, "message_count": 10 * depth, "paused": False,
        "channels": channels, "e2e_processing_latency": latency, **more,
    }  # fmt: skip


def channel(name: str, depth: int, **more: Any) -> dict[str, Any]:
    return {"channel_name": name, "depth": depth, "in_flight_count": 1, "client_count": 2, "paused": False, **more}


def test_nodes_add_up() -> None:
    parts = [
        topic_of(stats_of(4, [channel("a", 1), channel("b", 7)], 3, 100), "n2:1", "host2", NOW),
        topic_of(stats_of(6, [channel("a", 2, paused=True)], 1, 500, zone_local_msg_count=5), "n1:1", "host1", NOW),
    ]
    merged = merged_topic("t", parts)
    sums = {"node": "*", "hostname": "", "depth": 10, "memory_depth": 5, "backend_depth": 5}
    assert merged == merged | sums
    assert [one["node"] for one in merged["nodes"]] == ["n1:1", "n2:1"]  # by host
    assert merged["delivery_msg_count"] == merged["zone_local_msg_count"] == 5
    assert "region_local_msg_count" not in merged
    unused = merged_topic("t", [topic_of(stats_of(4, [channel("a", 1)], 3, 100), "n:1", "host", NOW)])
    assert "delivery_msg_count" not in unused
    assert "delivery_msg_count" not in unused["channels"][0]
    channels = {one["channel_name"]: one for one in merged["channels"]}
    assert (channels["a"]["depth"], channels["a"]["paused"], channels["a"]["node"]) == (3, True, "*")
    assert (channels["b"]["depth"], channels["b"]["node"], channels["b"]["nodes"]) == (7, "n2:1", None)
    percentiles = [{"average": 200, "count": 4, "max": 500, "min": 100, "quantile": 0.5}]
    latency = {"count": 4, "percentiles": percentiles, "topic": "t", "channel": "", "host": "*"}
    assert merged["e2e_processing_latency"] == latency
    merged = merged_topic("t", [])  # no node has it
    assert (merged["node"], merged["depth"], merged["nodes"], merged["channels"]) == ("", 0, None, None)
    assert merged["e2e_processing_latency"] is None


def test_clients_stand_with_the_nearest_first() -> None:
    where = ("eu", "a")
    raw = [
        {"hostname": "far", "topology_region": "us", "topology_zone": "a", "connect_ts": NOW - 5},
        {"hostname": "near", "topology_region": "eu", "topology_zone": "b"},
        {"hostname": "here", "topology_region": "eu", "topology_zone": "a"},
    ]
    part = topic_of(stats_of(0, [channel("c", 0, clients=raw)]), "n:1", "h", NOW, where)["channels"]
    clients = merged_channel("t", "c", part)["clients"]
    assert [one["hostname"] for one in clients] == ["here", "near", "far"]
    assert clients[2]["connected"] == 5_000_000_000
    assert clients[0]["node_topology_zone"] == "a"


def test_a_client_says_all_that_the_original_says() -> None:
    client = client_of({"tls": True, "tls_version": "TLS1.3"}, "n:1", NOW)
    fields = (
        "node remote_address version client_id hostname user_agent connect_ts connected in_flight_count ready_count"
        " finish_count requeue_count message_count sample_rate deflate snappy authed auth_identity auth_identity_url"
        " tls tls_cipher_suite tls_version tls_negotiated_protocol tls_negotiated_protocol_is_mutual"
    )
    assert list(client) == fields.split()

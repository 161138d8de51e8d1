"""Real nodes that form a cluster: they find each other, notice a death and a restart, and refuse strangers."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.daemons import Daemon, eventually

SECRET = "the secret of this cluster"


@pytest.fixture
def node(tmp_path: Path) -> Callable[..., Daemon]:
    """Make the node of that number, with a data directory of its own."""
    secret = tmp_path / "secret"
    secret.write_text(SECRET)

    def make(number: int, *peers: Daemon, **flags: str) -> Daemon:
        directory = tmp_path / str(number)
        directory.mkdir(exist_ok=True)
        given = {
            "cluster-address": "127.0.0.1:0",
            "cluster-secret-file": str(secret),
            "node-id": str(number),
            "data-path": str(directory),
            "takeover-after": "3s",
        } | {name.replace("_", "-"): value for name, value in flags.items()}
        words = [word for name, value in given.items() for word in (f"-{name}", value)]
        words += [word for peer in peers for word in ("-cluster-peer", peer.addresses["CLUSTER"])]
        return Daemon("nsqd", *words, listens=("TCP", "HTTP", "CLUSTER"))

    return make


def nodes_of(daemon: Daemon) -> dict[int, dict[str, Any]]:
    answer = httpx.get(f"http://{daemon.http}/cluster").json()
    return {each["node"]: each for each in answer["nodes"]}


def connected(daemon: Daemon) -> set[int]:
    return {number for number, each in nodes_of(daemon).items() if each["connected"]}


def test_three_nodes_find_each_other_through_one_of_them(node: Callable[..., Daemon]) -> None:
    with node(0) as first, node(1, first) as second, node(2, first) as third:
        for daemon, others in ((first, {1, 2}), (second, {0, 2}), (third, {0, 1})):
            eventually(lambda daemon=daemon, others=others: connected(daemon) == others)
        assert nodes_of(third)[1]["http_address"] == second.http


def test_a_killed_node_is_suspected_and_one_that_stops_is_waited_for(node: Callable[..., Daemon]) -> None:
    with node(0) as first, node(1, first) as second, node(2, first) as third:
        eventually(lambda: connected(first) == {1, 2})
        second.process.send_signal(signal.SIGKILL)
        third.stop()
        eventually(lambda: nodes_of(first)[1]["suspected"])
        assert nodes_of(first)[2]["restarting"]
        assert not nodes_of(first)[2]["suspected"]
        address = second.addresses["CLUSTER"]
        with node(1, first, cluster_address=address) as again:
            eventually(lambda: connected(first) == {1})
            assert connected(again) == {0}


def test_nodes_are_known_after_a_restart_without_a_peer_flag(node: Callable[..., Daemon], tmp_path: Path) -> None:
    with node(0) as first:
        with node(1, first) as second:
            eventually(lambda: connected(second) == {0})
            address = second.addresses["CLUSTER"]
            eventually(lambda: first.addresses["CLUSTER"] in (tmp_path / "1" / "cluster.json").read_text())
        with node(1, cluster_address=address) as again:
            eventually(lambda: connected(again) == {0})


def test_another_secret_and_another_cluster_are_refused(node: Callable[..., Daemon], tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.write_text("another secret, as long")
    with (
        node(0) as first,
        node(1, first, cluster_secret_file=str(other)) as stranger,
        node(2, first, cluster_name="elsewhere") as foreigner,
    ):
        assert "different secrets" in stranger.wait_for_line("CLUSTER: refused")
        assert "of the cluster 'penstock'" in foreigner.wait_for_line("CLUSTER: refused")
        assert connected(first) == set()

"""Real nodes stand for the log of one that is killed, and nobody elections that of one that restarts as it said."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx

from tests.daemons import Daemon, eventually, run
from tests.processes.test_cluster import connected, in_sync, node, publish_to

__all__ = ["node"]  # the fixture


def elections(daemon: Daemon) -> dict[str, Any]:
    found: dict[str, Any] = httpx.get(f"http://{daemon.http}/cluster").json()["elections"]
    return found


def of_node(daemon: Daemon, number: int) -> dict[str, Any]:
    return next((one for one in elections(daemon)["logs"] if one["leader"] == number), {"clean": False})


def voted(daemon: Daemon, log_id: str) -> object:
    """Return what a node has voted of a log, whoever leads it by now; None: nothing."""
    return next(one["voted"] for one in elections(daemon)["logs"] if one["log_id"] == log_id)


def test_the_followers_of_a_killed_node_agree_on_one_that_has_everything(
    node: Callable[..., Daemon], tmp_path: Path
) -> None:
    flags = {"failover_quorum": "majority"}
    with node(1, **flags) as second, node(2, second, **flags) as third:
        with node(0, second, **flags) as first:
            eventually(lambda: connected(first) == {1, 2} and in_sync(first) == {1, 2})
            assert publish_to(first, "orders")[0] == 200
            eventually(lambda: all(of_node(one, 0)["clean"] for one in (second, third)))
            log_id = of_node(second, 0)["log_id"]
            first.kill()
        eventually(lambda: elections(second)["won"]["clean"] + elections(third)["won"]["clean"] > 0)
        assert voted(second, log_id) == voted(third, log_id) is not None
        for number in (1, 2):
            facts = json.loads((tmp_path / str(number) / "cluster.json").read_text())
            assert [vote for vote in facts["votes"] if vote[0] == log_id]


def test_nobody_takes_over_from_a_node_that_an_nsqlookupd_hears(node: Callable[..., Daemon]) -> None:
    """Two nodes do not hear the third, which goes on: a partition, of which nsqlookupd hears both sides."""
    with Daemon("nsqlookupd") as lookupd:
        flags: dict[str, Any] = {
            "failover_quorum": "majority",
            "lookupd_tcp_address": lookupd.tcp,
            "debug_routes": "true",
        }
        with node(1, **flags) as second, node(2, second, **flags) as third, node(0, second, **flags) as first:
            others = second, third
            eventually(lambda: connected(first) == {1, 2} and in_sync(first) == {1, 2})
            for daemon in (first, *others):
                daemon.wait_for_line("its HTTP API is at")
            eventually(lambda: all(of_node(one, 0)["clean"] for one in others))
            for daemon in others:
                httpx.post(f"http://{daemon.http}/debug/cluster/cut?node=0").raise_for_status()
            eventually(lambda: sum(elections(one)["postponed"] for one in others) > 2)
            assert [elections(one)["won"] for one in others] == [{"clean": 0, "unclean": 0}] * 2
            assert publish_to(first, "orders")[0] == 200
            first.kill()
            eventually(lambda: sum(elections(one)["won"]["clean"] for one in others) > 0)


def test_an_operator_has_a_log_promoted_that_nobody_would_promote_by_itself(node: Callable[..., Daemon]) -> None:
    flags = {"failover_quorum": "none"}
    with node(1, **flags) as second, node(2, second, **flags) as third:

        def promote(*words: str) -> tuple[int, str, str]:
            done = run("penstock", "cluster", "promote", "--nsqd-http-address", second.http, *words)
            return done.returncode, done.stdout, done.stderr

        with node(0, second, **flags) as first:
            eventually(lambda: connected(first) == {1, 2} and in_sync(first) == {1, 2})
            eventually(lambda: all(of_node(one, 0)["clean"] for one in (second, third)))
            lost = of_node(second, 0)["log_id"]
            for words, why in (
                (("--log", lost), "it is not lost"),
                (("--node", "0"), "knows no log whose leader is node 0 and is lost"),
                (("--log", "00" * 16), "no whole copy"),
                (("--log", "x"), "is not a log id"),
            ):
                code, _, told = promote(*words)
                assert (code, why in told) == (1, True), told
            assert httpx.post(f"http://{second.http}/cluster/promote").json()["message"] == "MISSING_ARG_LOG"
            first.kill()
        eventually(lambda: of_node(second, 0)["leader_lost"])
        assert promote("--node", "0", "--json")[:2] == (0, json.dumps({"logs": [lost]}) + "\n")
        eventually(lambda: sum(elections(one)["won"]["unclean"] for one in (second, third)) == 1)

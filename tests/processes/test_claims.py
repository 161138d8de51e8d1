"""Real nodes claim the log of one that is killed, and nobody claims that of one that restarts as it said."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx

from tests.daemons import Daemon, eventually
from tests.processes.test_cluster import connected, in_sync, node, publish_to

__all__ = ["node"]  # the fixture


def claims(daemon: Daemon) -> dict[str, Any]:
    found: dict[str, Any] = httpx.get(f"http://{daemon.http}/cluster").json()["claims"]
    return found


def of_node(daemon: Daemon, number: int) -> dict[str, Any]:
    return next((one for one in claims(daemon)["logs"] if one["owner"] == number), {"clean": False})


def promised(daemon: Daemon, log_id: str) -> object:
    """Return what a node has promised of a log, whoever owns it by now; None: nothing."""
    return next(one["promised"] for one in claims(daemon)["logs"] if one["log_id"] == log_id)


def test_the_followers_of_a_killed_node_agree_on_one_that_has_everything(
    node: Callable[..., Daemon], tmp_path: Path
) -> None:
    flags = {"takeover_quorum": "majority"}
    with node(1, **flags) as second, node(2, second, **flags) as third:
        with node(0, second, **flags) as first:
            eventually(lambda: connected(first) == {1, 2} and in_sync(first) == {1, 2})
            assert publish_to(first, "orders")[0] == 200
            eventually(lambda: all(of_node(one, 0)["clean"] for one in (second, third)))
            log_id = of_node(second, 0)["log_id"]
            first.kill()
        eventually(lambda: claims(second)["won"]["clean"] + claims(third)["won"]["clean"] > 0)
        assert promised(second, log_id) == promised(third, log_id) is not None
        for number in (1, 2):
            facts = json.loads((tmp_path / str(number) / "cluster.json").read_text())
            assert [promise for promise in facts["promises"] if promise[0] == log_id]

"""docs/tutorials/failover.md is true: a node dies, one hangs, one is cut off, and consumers get everything once."""

from __future__ import annotations

import signal
from pathlib import Path

import httpx
import pytest

from tests.daemons import ROOT, eventually
from tests.processes.test_penstock_up import free_offset
from tests.processes.test_rehearsal import BLOCK, shell
from tests.tools import Tool, ours

pytestmark = [pytest.mark.process, pytest.mark.campaign]

PAGE = (ROOT / "docs/tutorials/failover.md").read_text().partition("## A disk is lost")[0]
FIRST, _, SECOND = PAGE.partition("## Two of three nodes die")
# The last line of each block; None: its output does not matter
ENDS = (None, "1000", None, "2000", "3000", "4000", "5000", "6000")


def rehearse(text: str, ends: tuple[str | None, ...], place: Path, *options: str) -> list[str]:
    """Run the blocks of a part of the page with a cluster of its own; return the ids of the logs that its nodes own then."""
    offset = free_offset(3)
    words = ("--nodes", "3", "--chaos", "--port-offset", str(offset), *options)
    with Tool([*ours("penstock"), "up", *words, "--data", str(place / "data")]) as tool:
        try:
            eventually(lambda: any("Ctrl-C" in line for line in tool.out))
            for block, end in zip(BLOCK.findall(text), ends, strict=True):
                said = shell(block, offset, place)
                assert end is None or said.splitlines()[-1] == end
            found = [httpx.get(f"http://127.0.0.1:{port + offset}/cluster").json() for port in (4151, 4251, 4351)]
            return [one["log_id"] for figures in found for one in figures["led"]]
        finally:
            tool.stop(signal.SIGINT)


def test_the_rehearsal_loses_nothing_and_gives_nothing_twice(tmp_path: Path) -> None:
    rehearse(FIRST, ENDS, tmp_path)


def test_two_of_three_nodes_die_and_each_log_has_one_leader_when_they_are_back(tmp_path: Path) -> None:
    logs = rehearse(SECOND, ("1000", "2000"), tmp_path, "--set", "failover-quorum=any")
    assert len(logs) == len({*logs}) >= 3

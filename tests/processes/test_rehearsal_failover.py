"""docs/tutorials/failover.md is true: a node dies, one hangs, one is partitioned, and consumers get everything once."""

import signal
from pathlib import Path

import pytest

from tests.daemons import ROOT, Tool, eventually, our_command
from tests.processes.test_penstock_up import free_offset
from tests.processes.test_rehearsal import BLOCK, shell

pytestmark = [pytest.mark.process, pytest.mark.campaign]

PAGE = (ROOT / "docs/tutorials/failover.md").read_text().partition("## A disk is lost")[0]
# The last line of each block; None: its output does not matter
ENDS = (None, "1000", None, "2000", "3000", "4000", "5000", "6000")


def test_the_rehearsal_loses_nothing_and_gives_nothing_twice(tmp_path: Path) -> None:
    offset = free_offset(3)
    words = ("--nodes", "3", "--chaos", "--port-offset", str(offset))
    with Tool([*our_command("penstock"), "up", *words, "--data", str(tmp_path / "data")]) as tool:
        try:
            eventually(lambda: any("Ctrl-C" in line for line in tool.out))
            for block, end in zip(BLOCK.findall(PAGE), ENDS, strict=True):
                said = shell(block, offset, tmp_path)
                assert end is None or said.splitlines()[-1] == end
        finally:
            tool.stop(signal.SIGINT)

"""docs/operations/rehearsal-takeover.md is true: a node dies, one hangs, one is cut off, and consumers get everything once."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.daemons import ROOT, eventually
from tests.processes.test_penstock_up import free_offset
from tests.processes.test_rehearsal import BLOCK, shell
from tests.tools import Tool, ours

pytestmark = pytest.mark.process

PAGE = ROOT / "docs/operations/rehearsal-takeover.md"
# What the last line of each block is; None: it prints nothing that matters
ENDS = (None, "1000", None, "2000", "3000", "4000", "5000", "6000")


def test_the_rehearsal_loses_nothing_and_gives_nothing_twice(tmp_path: Path) -> None:
    offset = free_offset(3)
    blocks = BLOCK.findall(PAGE.read_text())
    words = ("--nodes", "3", "--chaos", "--port-offset", str(offset))
    with Tool([*ours("penstock"), "up", *words, "--data", str(tmp_path / "data")]) as tool:
        try:
            eventually(lambda: any("Ctrl-C" in line for line in tool.out))
            for block, end in zip(blocks, ENDS, strict=True):
                said = shell(block, offset, tmp_path)
                assert end is None or said.splitlines()[-1] == end
        finally:
            tool.stop(signal.SIGINT)

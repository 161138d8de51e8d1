"""The kill rounds of the lake: the count of lost and repeated messages, and a round of each kind."""

import subprocess
import sys
from pathlib import Path

import pytest

from bench.crash.lake import KINDS, Findings, judge
from bench.server import ROOT
from tests.requirements import require


def test_rows_are_compared_with_publishes() -> None:
    assert judge(["a", "b"], ["c", "d"], ["a", "b", "d"]) == Findings(2, 2, 0, 0, 0)
    assert judge(["a", "b"], ["c"], ["a", "c", "c", "c", "x"]) == Findings(2, 1, 1, 2, 1)


@pytest.mark.process
@pytest.mark.campaign
@pytest.mark.timeout(1800)
def test_a_round_of_each_kind_loses_nothing_and_repeats_nothing(tmp_path: Path) -> None:
    require("java")
    results = ("--results", str(tmp_path / "results"), "--rounds", str(len(KINDS)))
    for _ in range(2):  # the second run finds all rounds in the file
        command = [sys.executable, "-m", "bench.crash.lake", *results]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
    assert len((tmp_path / "results").read_text().splitlines()) == len(KINDS)
    assert len(done.stdout.splitlines()) == 1, "nothing was run again"

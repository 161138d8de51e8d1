"""bench prints the rows of the log."""

from __future__ import annotations

import subprocess
import sys

import pytest

from bench.log_sizes import log_sizes
from tests.bench.test_bench import PATIENCE
from tests.daemons import ROOT


@pytest.mark.process
def test_it_measures_what_the_log_costs() -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "bench", "--quick", "--only", "log"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )

    assert ended.returncode == 0, ended.stderr
    rows = {line.split("  ")[0] for line in ended.stdout.splitlines() if line.startswith("log-")}
    assert rows == {size.name for size in log_sizes()}
    assert "behind: reader" in ended.stdout

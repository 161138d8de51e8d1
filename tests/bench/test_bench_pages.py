"""bench prints the rows of nsqadmin's pages."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.bench.test_bench import PATIENCE
from tests.daemons import ROOT


@pytest.mark.process
@pytest.mark.timeout(PATIENCE + 60)
def test_it_measures_what_pages_of_nsqadmin_cost() -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "bench", "--quick", "--only", "admin-listing,admin-watched"],
        cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE,
    )  # fmt: skip

    assert ended.returncode == 0, ended.stdout + ended.stderr
    lines = [line for line in ended.stdout.splitlines() if line.startswith("admin-")]
    assert {line.split("  ")[0] for line in lines} == {"admin-listing", "admin-watched"}
    assert not [line for line in lines if "WRONG" in line]

"""bench prints the rows of the log."""

from __future__ import annotations

import pytest

from bench.log_sizes import log_sizes
from tests.bench.test_bench import quick_bench
from tests.effort import EFFORT


@pytest.mark.process
def test_it_measures_what_the_log_costs() -> None:
    chosen = {size.name for size in log_sizes()} if EFFORT > 1 else {"log-restart", "log-topics"}
    printed = quick_bench(",".join(chosen))

    rows = {line.split("  ")[0] for line in printed.splitlines() if line.startswith("log-")}
    assert rows == chosen
    assert EFFORT == 1 or "behind: reader" in printed

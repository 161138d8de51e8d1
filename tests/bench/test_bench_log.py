"""bench prints the rows of the log."""

from __future__ import annotations

import pytest

from bench.log_sizes import log_sizes
from tests.bench.test_bench import quick_bench


@pytest.mark.process
def test_it_measures_what_the_log_costs() -> None:
    printed = quick_bench("log")

    rows = {line.split("  ")[0] for line in printed.splitlines() if line.startswith("log-")}
    assert rows == {size.name for size in log_sizes()}
    assert "behind: reader" in printed

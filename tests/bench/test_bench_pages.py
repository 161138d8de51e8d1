"""bench prints the rows of nsqadmin's pages."""

from __future__ import annotations

import pytest

from tests.bench.test_bench import PATIENCE, quick_bench


@pytest.mark.process
@pytest.mark.timeout(PATIENCE + 60)
def test_it_measures_what_pages_of_nsqadmin_cost() -> None:
    printed = quick_bench("admin-listing,admin-watched")

    lines = [line for line in printed.splitlines() if line.startswith("admin-")]
    assert {line.split("  ")[0] for line in lines} == {"admin-listing", "admin-watched"}
    assert not [line for line in lines if "WRONG" in line]

"""Runs of copying.

PENSTOCK_CLUSTER_SEEDS says how many seeds are run, PENSTOCK_CRASH_FIRST with which it begins.
"""

from __future__ import annotations

import os

import pytest

from tests.nsqd.replication.copying_run import CopyingRun

SEEDS = int(os.environ.get("PENSTOCK_CLUSTER_SEEDS", "20"))
FIRST = int(os.environ.get("PENSTOCK_CRASH_FIRST", "0"))
STEPS = 300


@pytest.mark.long
@pytest.mark.parametrize("seed", range(FIRST, FIRST + SEEDS))
def test_a_run(seed: int) -> None:
    CopyingRun(seed).run(STEPS)

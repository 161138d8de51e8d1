"""Runs in which mirrors are taken over. The variables are those of test_copying_runs."""

from __future__ import annotations

import os

import pytest

from tests.nsqd.replication.adopting_run import AdoptingRun

SEEDS = int(os.environ.get("PENSTOCK_CLUSTER_SEEDS", "10"))
FIRST = int(os.environ.get("PENSTOCK_CRASH_FIRST", "0"))
STEPS = 200


@pytest.mark.long
@pytest.mark.parametrize("seed", range(FIRST, FIRST + SEEDS))
def test_a_run(seed: int) -> None:
    AdoptingRun(seed).run(STEPS)

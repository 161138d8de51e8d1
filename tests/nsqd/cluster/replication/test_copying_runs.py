"""Runs of copying.

PENSTOCK_EFFORT and PENSTOCK_FIRST say how many seeds are run, and with which it begins (tests/effort.py).
"""

from __future__ import annotations

import pytest

from tests.effort import seeds
from tests.nsqd.cluster.replication.copying_run import CopyingRun

STEPS = 300


@pytest.mark.long
@pytest.mark.parametrize("seed", seeds(4))
def test_a_run(seed: int) -> None:
    CopyingRun(seed).run(STEPS)

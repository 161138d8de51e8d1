"""Runs in which mirrors are taken over. The variables are those of test_copying_runs."""

from __future__ import annotations

import pytest

from tests.effort import seeds
from tests.nsqd.cluster.promotion.promotion_run import AdoptingRun

STEPS = 200


@pytest.mark.long
@pytest.mark.parametrize("seed", seeds(3))
def test_a_run(seed: int) -> None:
    AdoptingRun(seed).run(STEPS)

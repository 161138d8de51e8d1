"""Runs in which replicas are taken over. The variables are those of test_copying_runs."""

from __future__ import annotations

import pytest

from tests.effort import seeds
from tests.nsqd.cluster.promotion.promotion_run import PromotingRun

STEPS = 200


@pytest.mark.long
@pytest.mark.parametrize("seed", seeds(3))
def test_a_run(seed: int) -> None:
    PromotingRun(seed).run(STEPS)

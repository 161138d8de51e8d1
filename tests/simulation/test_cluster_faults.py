"""Whole clusters in simulated lives, with faults of one kind each; a failure names its seed, which replays exactly."""

from collections import Counter

import pytest

from tests.effort import FIRST, tries
from tests.simulation.cluster import ClusterRun
from tests.simulation.damage import DamagedRun
from tests.simulation.exodus import ExodusRun
from tests.simulation.flips import FlippedRun
from tests.simulation.outages import OutageRun
from tests.simulation.slow import SlowRun
from tests.simulation.test_cluster import assert_at_least
from tests.simulation.unlimited import UnlimitedRun

pytestmark = pytest.mark.long
KINDS = (DamagedRun, ExodusRun, FlippedRun, OutageRun, SlowRun, UnlimitedRun)


@pytest.mark.parametrize("seed", range(FIRST, FIRST + tries(8, 1)))
@pytest.mark.parametrize("kind", KINDS)
def test_what_a_cluster_has_promised_holds(kind: type[ClusterRun], seed: int) -> None:
    kind(seed).run()


LEAST: dict[type[ClusterRun], dict[str, int]] = {
    DamagedRun: {"damaged: flip": 3, "damaged: cut": 1, "damaged: vanish": 1, "damaged: revert": 1, "recovered": 3},
    ExodusRun: {"partitions with departures": 10, "forgotten while running": 3, "leaves": 2, "failovers": 10},
    FlippedRun: {"bits flipped": 50, "damage replaced": 5, "failovers": 5},
    OutageRun: {"power cuts of all machines": 20, "lost at its leader: os": 5, "lost at its leader: interval": 5},
    SlowRun: {"slow: disk": 5, "slow: network": 5, "slow: both": 5, "two copies while a node is slow": 50},
    UnlimitedRun: {"messages found on a disk": 500, "offsets compared": 500, "acked with 2": 100},
}


@pytest.mark.campaign
@pytest.mark.parametrize("kind", KINDS)
def test_much_happens(kind: type[ClusterRun]) -> None:
    counts = Counter[str]()
    for seed in range(20):
        counts.update(kind(seed, has_jobs=False).run().counts)
    assert_at_least(counts, LEAST[kind])

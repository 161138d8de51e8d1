"""Bad nights of nodes that have a disk each: full ones, dead ones, and power cuts.

Everything that was acknowledged with two copies or more is delivered, though at the end of each round a node's disk is lost; no
message id comes twice. PENSTOCK_EFFORT says how many rounds of each kind are run (tests/effort.py). test_failover_rounds.py has
the rounds in which networks fail, and nodes are killed.

It needs root, network namespaces (tests/namespaces.py) and loop devices (bench/crash/volume.py); else it is skipped, with the
reason.
"""

import contextlib
import os
import shutil
from pathlib import Path
from random import Random

import pytest

from tests.processes.networked_cluster import NODES, NetworkedCluster, played
from tests.processes.networked_cluster import clusters as clusters  # the fixtures
from tests.processes.networked_cluster import rounds as rounds

pytestmark = pytest.mark.process

PATIENT = {
    "rejoin_timeout": "60s"
}  # of a node that has lost the end of its log, while others have it: they may be busy


@pytest.mark.campaign
@played("interval")
def test_a_follower_whose_disk_is_full(cluster: NetworkedCluster, random: Random) -> None:
    victim, *others = random.sample(NODES, 3)
    full = fill(cluster.volumes[victim].directory)
    cluster.until(lambda: all(victim in cluster.failures(other) for other in others))
    cluster.refuses(others, 3)
    cluster.goes_on(others, 2)
    if random.random() < 0.5:
        cluster.kill(victim)
        cluster.start(victim)
        cluster.goes_on(others, 2)
    full.unlink()


def fill(directory: Path) -> Path:
    """Take all space but a few bytes, and return the file that has it."""
    path = directory / "full"
    with path.open("wb") as file:
        for size in (1 << 20, 1 << 16, 1 << 12):
            with contextlib.suppress(OSError):
                while True:
                    half = shutil.disk_usage(directory).free // 2 // size * size
                    os.posix_fallocate(file.fileno(), file.seek(0, os.SEEK_END), max(size, half))
    return path


def power_cut(cluster: NetworkedCluster, *victims: int) -> None:
    """Cut the power of nodes at the same moment."""
    for number in victims:
        cluster.stand_still(number)
    for number in victims:
        cluster.volumes[number].fail()
    cluster.kill(*victims)
    cluster.counts["power cuts"] += len(victims)
    for number in victims:
        cluster.volumes[number].recover()


@played("interval", pytest.param("always", marks=pytest.mark.campaign))
def test_a_follower_whose_disk_dies(cluster: NetworkedCluster, random: Random) -> None:
    victim, *others = random.sample(NODES, 3)
    cluster.volumes[victim].fail()
    cluster.refuses(others, 3)
    cluster.goes_on(others, 2)
    cluster.kill(victim)
    cluster.volumes[victim].recover()
    cluster.start(victim, **PATIENT)


# in the mode in which everything that is acknowledged is synced


@played("always")
def test_a_power_cut_of_all_nodes(cluster: NetworkedCluster, random: Random) -> None:
    power_cut(cluster, *NODES)
    if random.random() < 0.5:
        lost, *others = random.sample(NODES, 3)
        cluster.start_all(*others)
        cluster.lose_disk(lost, others[0])
    cluster.start_all()

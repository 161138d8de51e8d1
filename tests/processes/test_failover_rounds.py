"""Bad nights of nodes that take over the logs of lost ones, under load: kills, lost disks, pauses, partitions, leaves.

After each round each log has exactly one leader. Everything that was acknowledged was delivered to live consumers and workers,
and comes once more to those who drain all at the end. Publishers that name themselves have exactly one copy of each message
after their retries. Each duplicate follows from a fault, and there are no more than nodes count, except for those of an
uncounted kind (failover_books.py).

PENSTOCK_EFFORT says how many rounds of each kind are run; below 5 they are shorter, with one -failover-quorum.

It needs root and network namespaces (tests/namespaces.py); else it is skipped, with the reason.
"""

from random import Random

import pytest

from tests.processes.failover_cluster import FailoverCluster, FailoverClusters
from tests.processes.networked_cluster import LONG, NODES, played
from tests.processes.networked_cluster import clusters as clusters  # the fixtures
from tests.processes.networked_cluster import rounds as rounds

pytestmark = pytest.mark.process

CLUSTERS = FailoverClusters
ANY, MAJORITY = "any", "majority"
FLAP = 3.0  # s
BOTH = (ANY, MAJORITY) if LONG else (MAJORITY,)


# kills


@played(ANY)
def test_any_two_of_three_are_killed_one_after_the_other(cluster: FailoverCluster, random: Random) -> None:
    first, second, last = random.sample(NODES, 3)
    logs = [cluster.own_log(number) for number in (first, second)]
    cluster.kill(first)
    new_leader = cluster.new_leader(logs[0], second, last)
    cluster.delivers(new_leader)
    cluster.goes_on([second, last], 2)
    if random.random() < 0.7:
        other = last if new_leader == second else second
        cluster.until(lambda: cluster.may_promote(other, logs[0], new_leader))
        cluster.kill(second)
        for log_id in logs:
            assert cluster.new_leader(log_id, last) == last
    else:  # the last node may not have all, and waits for the others
        cluster.kill(second)
    cluster.refuses([last], 2)
    cluster.answer(last)
    for number in random.sample((first, second), 2):
        cluster.start(number)
        cluster.let_pass(random.choice((0.0, 2.0)))


@pytest.mark.campaign
@played(*([ANY, MAJORITY] if LONG else [ANY]))
def test_any_two_of_three_are_killed_at_once(cluster: FailoverCluster, random: Random) -> None:
    *victims, last = random.sample(NODES, 3)
    logs = [cluster.own_log(number) for number in victims]
    cluster.kill(*victims)
    cluster.refuses([last], 2, 3)
    if cluster.quorum == ANY and random.random() < 0.5:
        for log_id in logs:
            cluster.new_leader(log_id, last)
    else:
        cluster.let_pass(random.uniform(0, 8))
    cluster.answer(last)
    if random.random() < 0.5:
        cluster.start(victims[0])
        cluster.let_pass(random.choice((0.0, 5.0)))
    cluster.start_all()


# partitions


@played(*BOTH)
def test_a_partition_that_comes_and_goes_every_three_seconds(cluster: FailoverCluster, random: Random) -> None:
    for alone in random.choices(NODES, k=4 if LONG else 1):
        cluster.cut({alone}, {*NODES} - {alone})
        cluster.let_pass(FLAP)
        cluster.heal()
        cluster.let_pass(FLAP)
    cluster.answer(*NODES)


@pytest.mark.campaign
@played(*BOTH)
def test_a_node_is_paused(cluster: FailoverCluster, random: Random) -> None:
    paused, *others = random.sample(NODES, 3)
    log_id = cluster.own_log(paused)
    cluster.stand_still(paused)
    if random.random() < 0.7:
        cluster.new_leader(log_id, *others)
    cluster.let_pass(random.uniform(0, 5))
    cluster.resume(paused)


# lost disks, and nodes that leave


@pytest.mark.campaign
@played(*BOTH)
def test_a_disk_is_lost_and_recovered(cluster: FailoverCluster, random: Random) -> None:
    lost, *others = random.sample(NODES, 3)
    log_id = cluster.own_log(lost)
    cluster.kill(lost)
    if random.random() < 0.5:
        cluster.new_leader(log_id, *others)
    cluster.lose_disk(lost, others[0])
    cluster.start(lost)


@played(*BOTH)
def test_a_node_leaves_and_joins_again(cluster: FailoverCluster, random: Random) -> None:
    gone, *others = random.sample(NODES, 3)
    cluster.leave(gone)
    cluster.goes_on(others, 2)
    cluster.delivers(*others)
    cluster.join(gone, is_empty=random.random() < 0.5)


# announced restarts


@pytest.mark.campaign
@played(*BOTH)
def test_rolling_restarts(cluster: FailoverCluster, random: Random) -> None:
    before = {number: cluster.led(number) for number in NODES}
    for number in random.sample(NODES, 3):
        cluster.restart(number)
        cluster.all_in_sync()
        cluster.goes_on(NODES, 2, 3)
    cluster.until(  # finished logs of earlier rounds may be closed meanwhile
        lambda: all(cluster.led(number) == before[number] - cluster.closed() for number in NODES)
    )
    assert not +cluster.possible.counted  # nothing was taken over

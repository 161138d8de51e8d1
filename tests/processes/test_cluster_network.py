"""Bad nights of nodes that have a network each: partitions of all kinds, kills, and nodes that stand still.

Everything that was acknowledged with two copies or more is delivered, though at the end of each round a node's disk is lost; no
message id comes twice. PENSTOCK_EFFORT says how many rounds of each kind are run (tests/effort.py); from 5 on some are longer.

It needs root, network namespaces (tests/namespaces.py) and loop devices (bench/crash/volume.py); else it is skipped, with the
reason. test_cluster_disks.py has the rounds in which disks fail.
"""

from __future__ import annotations

from random import Random

import pytest

from tests.processes.cluster_load import Books, Fate
from tests.processes.networked_cluster import LONG, NODES, NetworkedCluster, Play
from tests.processes.networked_cluster import clusters as clusters  # the fixtures
from tests.processes.networked_cluster import rounds as rounds

pytestmark = pytest.mark.process

FLAP = 3.0  # s


def test_the_books_tell_what_is_wrong() -> None:
    books = Books()
    books.answered(0, 2, "t", [b"a", b"b", b"c"], Fate.ACKNOWLEDGED)
    books.came_last("t", b"id of a", b"a")
    books.came_live("t", b"id of a", b"a")
    books.came_last("other", b"id of a", b"d")  # ids are those of a topic
    assert books.lost == {b"b", b"c"}
    assert (books.twice, books.duplicates) == ([], 0)
    books.came_live("t", b"id of a", b"a")
    books.came_last("t", b"id of a", b"a")
    assert (books.twice, books.duplicates) == ([], 2)
    books.came("t", b"id of a", b"b")
    books.came("t", b"another id", b"a")
    assert len(books.twice) == 2  # one id of two contents, and one content with two ids


# kills


def test_kills_of_one_node(rounds: Play) -> None:
    def fault(cluster: NetworkedCluster, random: Random) -> None:
        for victim in random.sample(NODES, 2 if LONG else 1):
            cluster.kill(victim)
            cluster.goes_on({*NODES} - {victim}, 2)
            cluster.refuses({*NODES} - {victim}, 3)
            cluster.start(victim)
            cluster.goes_on(NODES, 2, 3)

    rounds(fault)


@pytest.mark.campaign
def test_kills_of_two_nodes_at_once(rounds: Play) -> None:
    def fault(cluster: NetworkedCluster, random: Random) -> None:
        *victims, survivor = random.sample(NODES, 3)
        cluster.kill(*victims)
        cluster.refuses([survivor], 2, 3)
        if random.random() < 0.5:  # the first one waits in vain for the second
            cluster.start(victims[0])
        cluster.start_all()
        cluster.goes_on(NODES, 2, 3)

    rounds(fault)


# partitions


@pytest.mark.campaign
def test_halves(rounds: Play) -> None:
    def fault(cluster: NetworkedCluster, random: Random) -> None:
        alone, *others = random.sample(NODES, 3)
        cluster.cut({alone}, {*others})
        cluster.refuses([alone], 2)
        cluster.refuses(others, 3)
        cluster.goes_on(others, 2)
        cluster.heal()

    rounds(fault)


@pytest.mark.campaign
def test_packets_that_are_dropped_one_way(rounds: Play) -> None:
    def fault(cluster: NetworkedCluster, random: Random) -> None:
        sender, receiver, third = random.sample(NODES, 3)
        cluster.drop(sender, receiver)
        cluster.refuses([sender, receiver], 3)
        cluster.goes_on(NODES, 2)
        if random.random() < 0.5:  # and now nobody hears the sender
            cluster.drop(sender, third)
            cluster.refuses([sender], 2)
            cluster.goes_on([receiver, third], 2)
        cluster.heal()

    rounds(fault)


@pytest.mark.campaign
def test_a_bridge_between_two_nodes_that_do_not_reach_each_other(rounds: Play) -> None:
    def fault(cluster: NetworkedCluster, random: Random) -> None:
        bridge, left, right = random.sample(NODES, 3)
        cluster.cut({left}, {right})
        cluster.refuses([left, right], 3)
        cluster.goes_on(NODES, 2)
        cluster.goes_on([bridge], 3)
        cluster.heal()

    rounds(fault)


@pytest.mark.campaign
def test_a_partition_that_comes_and_goes_every_three_seconds(rounds: Play) -> None:
    def fault(cluster: NetworkedCluster, random: Random) -> None:
        for alone in random.choices(NODES, k=5 if LONG else 1):
            cluster.cut({alone}, {*NODES} - {alone})
            cluster.let_pass(FLAP)
            cluster.heal()
            if LONG:
                cluster.let_pass(FLAP)

    rounds(fault)


@pytest.mark.campaign
def test_a_node_that_is_killed_behind_a_partition(rounds: Play) -> None:
    if not LONG:
        pytest.skip("only with PENSTOCK_EFFORT=5 or more")

    def fault(cluster: NetworkedCluster, random: Random) -> None:
        alone, victim, third = random.sample(NODES, 3)
        cluster.cut({alone}, {victim, third})
        cluster.refuses([alone], 2)
        cluster.goes_on([victim, third], 2)
        cluster.kill(victim)
        cluster.refuses([third], 2)
        cluster.start(victim)
        cluster.goes_on([victim, third], 2)
        cluster.heal()

    rounds(fault)


# nodes that stand still


@pytest.mark.parametrize("seconds", [4, 40] if LONG else [4])
def test_a_node_that_stands_still(rounds: Play, seconds: int) -> None:
    def fault(cluster: NetworkedCluster, random: Random) -> None:
        victim = random.choice(NODES)
        cluster.stand_still(victim)
        cluster.goes_on({*NODES} - {victim}, 2)
        cluster.let_pass(seconds)
        cluster.stand_still_no_more(victim)

    rounds(fault)


# all of it


@pytest.mark.campaign
def test_anything_at_the_same_time(rounds: Play) -> None:
    if not LONG:
        pytest.skip("only with PENSTOCK_EFFORT=5 or more")

    def fault(cluster: NetworkedCluster, random: Random) -> None:
        still: set[int] = set()
        for _ in range(random.randint(4, 10)):
            number, other = random.sample(NODES, 2)
            is_dead = cluster.is_dead(number)
            step = random.randrange(6)
            if step == 0 and not is_dead:
                cluster.kill(number)
                still.discard(number)
            elif step == 1 and is_dead:
                cluster.start(number)
            elif step == 2 and not is_dead and number not in still:
                cluster.stand_still(number)
                still.add(number)
            elif step == 3:
                cluster.heal()
            elif step == 4:
                cluster.drop(number, other)
            else:
                cluster.cut({number}, {other})
            cluster.let_pass(random.choice((0.0, 0.1, 1.0, 4.0)))
        for number in still:
            cluster.stand_still_no_more(number)
        cluster.heal()
        cluster.start_all()

    rounds(fault)

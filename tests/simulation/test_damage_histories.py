"""Histories of clusters in which bytes of logs are corrupted, each with several sizes and delays."""

import pytest

from nsqd.cluster.ownership.cases import Quorum
from tests.effort import seeds
from tests.simulation.books import Publish
from tests.simulation.flips import FlippedHistory

pytestmark = pytest.mark.long
SEEDS = seeds(2)


def make(seed: int) -> FlippedHistory:
    """Return a cluster of three nodes with two replicas of each log, in which a majority promotes."""
    run = FlippedHistory(seed, Quorum.MAJORITY)
    run.prepare(seed)
    return run


def publish_and_settle(run: FlippedHistory) -> list[Publish]:
    """Publish messages, each in a record of its own, to the first node, and let all copies state that they are durable."""
    leader = run.machines[0]
    made = [one for _ in range(20) for one in run.publish_batch(leader, 3, 1)]
    for follower in run.followers(leader):
        run.kill(follower)
        run.start(follower)
        run.until(lambda: run.is_in_sync(leader))
    run.wait(6)
    return made


def bodies(publishes: list[Publish]) -> tuple[bytes, ...]:
    return tuple(one.body for one in publishes)


def a_damaged_replica_is_promoted(run: FlippedHistory) -> None:
    leader = run.machines[0]
    first, second = run.followers(leader)
    made = publish_and_settle(run)
    run.kill(leader)
    for _ in range(3):
        run.flip(first, leader.log_id, bodies(made))
        run.flip(second, leader.log_id, bodies(made))
    assert run.books.counts["bits flipped"] >= 2
    run.until(run.is_served(leader.log_id, [first, second]))
    (new,) = run.leader_of(leader.log_id)
    assert run.finish_all(new) >= {one.number for one in made}


@pytest.mark.parametrize("seed", SEEDS)
def test_a_damaged_replica_that_is_promoted_serves_what_another_one_has(seed: int) -> None:
    make(seed).play(a_damaged_replica_is_promoted)


@pytest.mark.parametrize("seed", SEEDS)
def test_all_copies_are_damaged_in_other_places_and_the_leader_starts(seed: int) -> None:
    def script(run: FlippedHistory) -> None:
        leader = run.machines[0]
        made = publish_and_settle(run)
        run.kill(leader)
        for machine in run.machines * 3:
            run.flip(machine, leader.log_id, bodies(made))
        assert run.books.counts["bits flipped"] >= 2
        run.start(leader)
        assert run.finish_all(leader) >= {one.number for one in made}

    make(seed).play(script)

"""A node of a cluster asks others before it continues its log, or begins one, and waits for a number of nodes."""

from collections.abc import Iterator
from random import Random

import pytest

from nsqd.cluster.replication.offers import Fetched, Offer
from nsqd.cluster.replication.rejoin import (
    FailedOverError,
    Failover,
    LeaderSilentError,
    Rejoin,
    failed_over,
    is_led_by_another,
)
from nsqd.core.message.ids import LEASE, SAFE_LEASES, first_of_new_log
from nsqd.storage.log.epochs import Epoch, EpochTable
from nsqd.storage.log.followers import Followers
from nsqd.storage.log.reading import LogReading
from nsqd.storage.log.segments import LogError
from shared.version import RELEASED
from tests.cases import each
from tests.nsqd.storage.log.test_restore import start
from tests.nsqd.storage.sim_disk import SimDisk
from tests.nsqd.storage.sim_node import NODE

WALL = (RELEASED + 1000) * 1_000_000_000
FIRST = first_of_new_log(WALL, 0)


class Told:
    """Other nodes, whose answers the test gives. In place of nsqd.cluster.replication.asking.NodeReplicas."""

    is_incomplete = False

    def __init__(self, *offers: Offer, leases: list[int] | None = None) -> None:
        self.offers, self._leases = list(offers), leases or []
        self.fetched: list[str] = []

    def leases(self) -> list[int]:
        return self._leases

    def ask(self, log_id: bytes, followers: Followers) -> list[Offer]:
        return self.offers

    def fetch(self, offer: Offer, log_id: bytes, start: int) -> Iterator[Fetched]:
        self.fetched.append(offer.address)
        return iter(())


def published() -> tuple[SimDisk, LogReading]:
    """The disk of a node with a log that has a message, and what a start reads of it."""
    node = start(SimDisk(Random(1)))
    node.turn(lambda: node.broker.topic("t").publish([b"x"], 1))
    disk = node.disk.kill()
    return disk, LogReading(disk.kill())


def asked(disk: SimDisk, node: int = NODE, lease: int = 0, wall: int = WALL, leases: list[int] | None = None) -> int:
    """The id with which the node begins, 0: with that of its log."""
    rejoin = Rejoin(Told(leases=leases), node, lease, lambda: wall)
    assert not rejoin(disk, LogReading(disk))
    return rejoin.least_id


def test_a_new_log_begins_above_the_highest_lease_that_is_known_and_above_the_time() -> None:
    assert asked(SimDisk(Random(1))) == FIRST
    assert asked(SimDisk(Random(1)), lease=FIRST) == FIRST + SAFE_LEASES * LEASE
    assert asked(SimDisk(Random(1)), leases=[FIRST, FIRST + 1, 0]) == FIRST + 1 + SAFE_LEASES * LEASE


def test_a_log_that_has_issued_ids_goes_on_with_its_own() -> None:
    node = start(SimDisk(Random(1)))
    node.publish()
    node.log.close()
    assert asked(node.disk.kill(), wall=0) == 0


def test_a_log_that_was_begun_and_has_issued_nothing_begins_as_a_new_one() -> None:
    node = start(SimDisk(Random(1)))
    disk = node.disk.kill()
    for name in disk.names():
        if name.endswith(".log"):
            disk.remove(name)
    assert disk.names(), "log.id is left"
    assert asked(disk) == FIRST


def test_a_wrong_clock_is_refused() -> None:
    with pytest.raises(LogError, match="set the clock"):
        asked(SimDisk(Random(1)), wall=0)


def test_another_number_is_refused() -> None:
    node = start(SimDisk(Random(1)))
    node.log.close()
    with pytest.raises(LogError, match=r"that of node 7, and --node-id is 8: .* penstock restore .* --node 8"):
        asked(node.disk.kill(), NODE + 1)


def test_an_old_log_continues_above_the_ids_that_others_know() -> None:
    old, reading = published()
    leased = reading.start_results.leased
    for known, first in ((leased, 0), (leased + 1, first_of_new_log(WALL, leased + 1))):
        rejoin = Rejoin(Told(Offer("other:4152", 0, (), known)), NODE, 0, lambda: WALL)
        assert not rejoin(old, LogReading(old.kill()))
        assert rejoin.least_id == first


def test_of_several_replicas_that_of_the_latest_epoch_is_fetched() -> None:
    disk, reading = published()
    (first, begun), end = next(iter(reading.replay.epochs)), reading.log_records.end
    own, later = (first.pack(), begun), (Epoch(first.number + 1, first.node, first.random).pack(), end)
    others = Told(Offer("longest:1", end + 900, (own,)), Offer("latest:1", end + 100, (own, later)))
    assert Rejoin(others, NODE, 0, lambda: WALL)(disk, reading)
    assert others.fetched == ["latest:1"]


OWN = Epoch(3, NODE, b"ownerown")


def epoch(number: int, node: int) -> Epoch:
    return Epoch(number, node, b"promoter")


def offer(*epochs: Epoch, leader: int | None = None, end: int = 100, lease: int = 0) -> Offer:
    found = tuple((one.pack(), 10 * place) for place, one in enumerate(epochs))
    return Offer(f"{leader}:1", end, found, lease, leader)


def test_a_greater_epoch_of_another_node_is_a_failover() -> None:
    def who(*offers: Offer) -> Epoch | None:
        found = failed_over(offers, [OWN], NODE)
        return found.epoch if found is not None else None

    assert who() is None
    assert who(offer(OWN)) is None
    assert who(offer(OWN, epoch(4, NODE))) is None, "this node has lost its end"
    assert who(offer(OWN, epoch(2, NODE + 1), leader=NODE + 1)) is None
    assert who(offer(OWN, epoch(3, NODE - 1), leader=NODE - 1)) is None, "of equal numbers the greater node wins"
    assert who(offer(OWN, epoch(3, NODE + 1), leader=NODE + 1)) == epoch(3, NODE + 1)
    assert who(offer(OWN, epoch(103, 1), leader=1), offer(OWN, epoch(203, 2), leader=2)) == epoch(203, 2)
    assert who(offer(OWN, epoch(103, 1))) == epoch(103, 1), "a replica shows it, too"
    assert who(offer(OWN, epoch(103, 1), leader=NODE)) == epoch(103, 1)


def test_the_leader_is_believed_before_a_replica_that_may_be_shorter() -> None:
    replica, leader = offer(OWN, epoch(103, 1), end=50, lease=9), offer(OWN, epoch(103, 1), leader=1, end=90)
    found = failed_over([replica, leader], [OWN], NODE)
    assert found == Failover(epoch(103, 1), "1:1", leader.epochs, 90, 9)
    assert found.common([(OWN.pack(), 0)], 70) == 10
    assert found.common([(OWN.pack(), 0)], 5) == 5
    assert found.common([(epoch(1, 1).pack(), 0)], 70) == 0


def test_a_log_that_was_taken_over_is_not_opened_and_gets_of_its_tail_what_others_have() -> None:
    disk, reading = published()
    (first, begun), end = next(iter(reading.replay.epochs)), reading.log_records.end
    own, its = (first.pack(), begun), (epoch(103, 1).pack(), end)
    leader, replica = Offer("1:1", end + 500, (own, its), 0, 1), Offer("2:1", end + 100, (own,))
    others = Told(leader, replica)
    with pytest.raises(FailedOverError) as raised:
        Rejoin(others, NODE, 0, lambda: WALL)(disk, reading)
    assert raised.value.failover.epoch == epoch(103, 1)
    assert others.fetched == ["2:1"], "the leader's bytes behind the end are not this node's"
    assert is_led_by_another(Told(leader), b"", [first], NODE, Followers())
    assert not is_led_by_another(Told(replica), b"", [first], NODE, Followers())


def test_what_a_node_has_learned_of_a_leader_counts_without_an_answer() -> None:
    own = [epoch(100, NODE), epoch(101, NODE)]
    assert is_led_by_another(Told(), b"", own, NODE, Followers(), epoch(102, 1))
    assert not is_led_by_another(Told(), b"", own, NODE, Followers(), epoch(102, NODE))
    assert not is_led_by_another(Told(), b"", own, NODE, Followers(), epoch(100, 1))
    assert not is_led_by_another(Told(), b"", own, NODE, Followers())


def test_as_many_answers_are_waited_for_as_the_log_of_a_node_that_returns_needs() -> None:
    asked: list[Followers] = []

    class Counting(Told):
        def ask(self, log_id: bytes, followers: Followers) -> list[Offer]:
            asked.append(followers)
            return []

    assert not is_led_by_another(Counting(), b"", [epoch(1, NODE)], NODE, Followers((1, 2), 2, 2))
    assert asked == [Followers((1, 2), 2, 2)]


def test_a_log_that_is_known_to_be_failed_over_is_not_opened_without_a_reply_about_it() -> None:
    disk, reading = published()
    leaders = {reading.identity.log_id: epoch(103, 1)}
    with pytest.raises(LeaderSilentError, match="node 1 has"):
        Rejoin(Told(), NODE, 0, lambda: WALL, leaders)(disk, reading)
    assert not Rejoin(Told(), NODE, 0, lambda: WALL, {bytes(16): epoch(103, 1)})(disk, reading)


def test_an_old_copy_of_a_log_continues_in_an_epoch_above_all_known_ones_of_its_node() -> None:
    disk, reading = published()
    (first, begun), *_ = reading.replay.epochs
    epochs = (first.pack(), begun), (Epoch(7, NODE, bytes(8)).pack(), 900)
    rejoin = Rejoin(Told(Offer("other:4152", 0, epochs)), NODE, 0, lambda: WALL)
    rejoin(disk, reading)
    assert rejoin.least_epoch == 8


def test_a_copy_that_was_made_after_a_failover_is_not_continued() -> None:
    disk, reading = published()
    (first, begun), end = next(iter(reading.replay.epochs)), reading.log_records.end
    new_leader = epoch(101, NODE + 1)
    reading.replay.epochs.begin(new_leader, end)  # the copy is of the new leader's time, and ends where its log ends
    own, its = (first.pack(), begun), (new_leader.pack(), end)
    with pytest.raises(FailedOverError) as caught:
        Rejoin(Told(Offer("1:1", end + 100, (own, its), 0, NODE + 1)), NODE, 0, lambda: WALL)(disk, reading)
    assert caught.value.failover.epoch == new_leader
    with pytest.raises(LeaderSilentError, match=f"node {NODE + 1} has"):
        Rejoin(Told(), NODE, 0, lambda: WALL)(disk, reading)
    again = epoch(102, NODE)  # this node has won it back since
    reading.replay.epochs.begin(again, end + 50)
    rejoin = Rejoin(Told(Offer("2:1", end + 50, (own, its))), NODE, 0, lambda: WALL)
    rejoin(disk, reading)
    assert rejoin.least_epoch == 103


def test_a_log_without_epochs_is_its_nodes() -> None:
    disk, reading = published()
    reading.replay.epochs = EpochTable()
    reading.log_records.files.epochs.clear()
    assert not Rejoin(Told(), NODE, 0, lambda: WALL)(disk, reading)


def test_a_later_run_of_the_node_itself_is_no_leader_that_is_waited_for() -> None:
    disk, reading = published()
    rejoin = Rejoin(Told(), NODE, 0, lambda: WALL, {reading.identity.log_id: Epoch(41, NODE, bytes(8))})
    rejoin(disk, reading)
    assert rejoin.least_epoch == 42


def test_if_no_node_says_in_the_end_how_much_the_leader_has_it_is_assumed_to_have_nothing() -> None:
    disk, reading = published()
    leader = Epoch(101, NODE + 1, bytes(8))
    leaders = {reading.identity.log_id: leader}
    with pytest.raises(LeaderSilentError, match=f"node {NODE + 1} has"):
        Rejoin(Told(), NODE, 0, lambda: WALL, leaders)(disk, reading)
    with pytest.raises(FailedOverError) as caught:
        Rejoin(Told(), NODE, 0, lambda: WALL, leaders, is_last_try=True)(disk, reading)
    failover = caught.value.failover
    assert failover.epoch == leader
    assert failover.common([(epoch.pack(), start) for epoch, start in reading.replay.epochs], 900) == 0


@each("is_last_try", [False, True])
@each("is_silent", [False, True])
def test_a_damaged_log_waits_for_nodes_that_may_have_what_is_damaged(is_silent: bool, is_last_try: bool) -> None:
    """It would continue without these messages, and its followers would lose them, too, with its next checkpoint."""
    disk, _ = published()
    name = next(name for name in disk.names() if name.endswith(".0.log") and b"x" in disk.content(name))
    content = disk.content(name)
    disk.overwrite(name, content.rindex(b"x"), b"y")
    reading = LogReading(disk.kill(), 1 << 40)
    assert reading.log_records.damage.spots
    others = Told()
    others.is_incomplete = is_silent
    rejoin = Rejoin(others, NODE, 0, lambda: WALL, is_last_try=is_last_try)
    if is_silent and not is_last_try:
        with pytest.raises(LeaderSilentError, match="corrupt"):
            rejoin(disk, reading)
    else:
        assert not rejoin(disk, reading)

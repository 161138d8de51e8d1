"""Histories of clusters that were thought of, each with several sizes and delays."""

from __future__ import annotations

from itertools import permutations

import pytest

from nsqd.cluster.claims import Quorum
from nsqd.storage.log.records import HEADER_SIZE, decode_header
from tests.nsqd.core.node import SECOND
from tests.simulation.books import Publish
from tests.simulation.history import LONG, History
from tests.simulation.machine import CAPACITY, Machine

pytestmark = pytest.mark.long
SEEDS = range(5)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("quorum", [Quorum.NONE, Quorum.MAJORITY])
def test_an_owner_with_an_old_backup_does_not_remove_the_only_copy(quorum: Quorum, seed: int) -> None:
    """The only holder of newer bytes is silent while the owner is restored, and is not chosen any more when it is back."""

    def story(run: History) -> None:
        owner = run.machines[0]
        (first,) = run.followers(owner)
        (holder,) = {*run.machines} - {owner, first}
        run.part([first], [owner, holder])
        run.until(lambda: run.followers(owner) == [holder])
        owner.back_up()
        (publish,) = run.publish_some(owner, 2, 1)
        assert publish.holders == {owner.name, holder.name}
        run.part([holder], [owner, first])
        owner.restore()
        run.start(owner)
        run.until(lambda: run.followers(owner) == [first])
        run.publish_some(owner, 2)
        run.join()
        run.until(lambda: owner.log_id not in run.node(holder).mirrors.kept)
        assert any(owner.log_id == one.log_id for one in holder.disks.parted)

    run = History(seed, quorum, mirrors=1).tell(story)
    assert (run.books.counts["kept aside"], run.books.counts["remnants taken in"]) == (0, 1)


def test_an_owner_that_lost_its_end_goes_on_while_its_follower_is_down() -> None:
    """The follower was told more than the owner has. When it returns, it delivers that, and copies the log anew."""

    def story(run: History) -> None:
        owner = run.machines[0]
        (holder,) = run.followers(owner)
        run.publish_some(owner, 2, 20)
        run.kill(holder)
        run.kill(owner, is_cut=True)
        run.start(owner)
        run.publish_some(owner, 1)
        run.start(holder)

    runs = [History(seed, quorum, mirrors=1).tell(story) for seed in SEEDS for quorum in (Quorum.NONE, Quorum.MAJORITY)]
    assert sum(run.books.counts["kept aside"] for run in runs) == 0
    assert sum(run.books.counts["remnants taken in"] for run in runs) > 0


def lose_the_end(run: History, followers: list[Machine]) -> list[Publish]:
    """Let the owner publish, and go on without what it has published, while its followers are down. Returns the publishes."""
    owner = run.machines[0]
    run.wait(6)
    made = run.publish_some(owner, 3, 20)
    for one in followers:
        run.kill(one)
    owner.crash(True, LONG)
    cut_to_synced(owner)
    run.start(owner)
    run.publish_some(owner, 1)
    return made


def cut_to_synced(machine: Machine) -> None:
    """Let a machine that has lost its power have nothing of its own log that was not synced."""
    node = machine.disks.log
    assert machine.durable
    position = machine.durable[machine.log_id]
    for name in [one for one in node.names() if one.endswith(".log")]:
        header = decode_header(node.content(name))
        if header.base >= position:
            node.remove(name)
        else:
            node.put(name, node.content(name)[: HEADER_SIZE + position - header.base])
    node.sync_directory()


@pytest.mark.parametrize("seed", SEEDS)
def test_of_two_followers_with_the_same_tail_one_delivers_it(seed: int) -> None:
    def story(run: History) -> None:
        followers = run.followers(run.machines[0])
        made = lose_the_end(run, followers)
        run.start(*followers)
        run.until(lambda: run.books.counts["mirrors set aside"] == 2)
        run.until(lambda: not any(machine.disks.parted for machine in run.machines))
        seen = [number for one in followers for number in run.finish_all(one)]
        assert sorted(seen) == [one.number for one in made if one.number in seen]

    run = History(seed, Quorum.MAJORITY).tell(story)
    assert run.books.counts["remnants taken in"] <= 1


@pytest.mark.parametrize("seed", SEEDS)
def test_a_follower_that_is_lost_with_what_it_took_in_leaves_it_to_the_other_one(seed: int) -> None:
    """Two of three holders have lost the messages then, which three copies must survive."""

    def story(run: History) -> None:
        first, second = run.followers(run.machines[0])
        lose_the_end(run, [first, second])
        run.start(first)
        run.until(lambda: run.books.counts["remnants taken in"] + run.books.counts["remnants without messages"] > 0)
        first.lose_disk()
        first.start_at = run.now + 100 * SECOND
        run.start(second)

    assert History(seed, Quorum.NONE).tell(story).books.counts["kept aside"] == 0


@pytest.mark.parametrize("seed", SEEDS)
def test_what_the_lost_owner_lacked_is_taken_in_by_the_word_of_its_adopter(seed: int) -> None:
    def story(run: History) -> None:
        owner, *others = run.machines
        late, adopter = run.followers(owner)
        lose_the_end(run, [late, adopter])
        log_id = owner.log_id
        run.start(adopter)
        run.until(lambda: log_id in run.node(adopter).mirrors.kept and not adopter.disks.parted, 200)
        run.wait(6)
        run.kill(owner)
        run.start(late)
        run.until(run.is_served(log_id, others))
        run.until(lambda: not late.disks.parted)

    assert History(seed, Quorum.ANY).tell(story).books.counts["kept aside"] == 0


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("is_adopter_first", [True, False])
def test_a_third_node_takes_over_from_the_adopter_and_all_return(is_adopter_first: bool, seed: int) -> None:
    """What was finished at the adopter is not delivered again by the third node."""

    def story(run: History) -> None:
        owner = run.machines[0]
        log_id = owner.log_id
        done = run.publish_some(owner, 3, 10, "os")
        run.publish_some(owner, 2, 5, "always")
        run.kill(owner)
        run.until(run.is_served(log_id, run.machines[1:]))
        (adopter,) = run.owner_of(log_id)
        (third,) = {*run.machines} - {owner, adopter}
        assert run.finish_all(adopter) >= {one.number for one in done}
        run.publish_some(adopter, 2, 5, "interval")
        own = adopter.log_id
        run.kill(adopter)
        run.until(lambda: run.owner_of(log_id) == run.owner_of(own) == [third])
        assert not run.finish_all(third) & {one.number for one in done}
        for machine in (adopter, owner) if is_adopter_first else (owner, adopter):
            run.start(machine)
            run.wait(5)
        assert (run.owner_of(log_id), run.owner_of(own)) == ([third], [third])

    assert History(seed, Quorum.ANY).tell(story).books.counts["successions"] == 2


@pytest.mark.parametrize("seed", SEEDS)
def test_a_node_that_is_cut_off_publishes_deletes_and_empties_while_another_adopts_its_log(seed: int) -> None:
    def story(run: History) -> None:
        owner, *others = run.machines
        log_id = owner.log_id
        directory, topics = run.node(owner).broker.directory, run.node(owner).broker.topics
        run.do(owner, lambda: topics["always"].channel("extra"))
        run.publish_some(owner, 3, 5, "always")
        run.publish_some(owner, 3, 5, "interval")
        run.wait(6)  # until the followers have been told that they have everything
        run.part([owner], others)
        run.publish_some(owner, 1, 5, "os")
        emptied = run.publish_some(owner, 1, 5, "interval")
        run.do(owner, lambda: directory.delete_channel(topics["always"], "extra"))
        run.do(owner, lambda: topics["interval"].channels["work"].empty())
        for one in emptied:
            one.finished = True
        run.until(run.is_served(log_id, others))
        run.join()
        run.until(lambda: owner.is_up and owner.log_id != log_id)
        assert "extra" not in run.node(owner).broker.topics["always"].channels
        (adopter,) = run.owner_of(log_id)
        assert "extra" in run.node(adopter).broker.topics["always"].channels  # which has not heard of it
        assert not run.finish_all(owner, "interval")

    assert History(seed, Quorum.MAJORITY).tell(story).books.counts["successions"] == 1


@pytest.mark.parametrize("order", list(permutations([(0, 1), (0, 2), (1, 2)])))
def test_three_sides_adopt_each_others_logs_and_meet_in_pairs(order: tuple[tuple[int, int], ...]) -> None:
    def story(run: History) -> None:
        machines = list(run.machines)
        logs = [machine.log_id for machine in machines]
        for machine in machines:
            run.publish_some(machine, 3, 3)
        run.wait(6)
        run.part(*([machine] for machine in machines))
        for machine in machines:
            run.publish_some(machine, 1, 3, "always")
        run.until(lambda: all(len(run.owner_of(log_id)) == 3 for log_id in logs))
        for pair in order:
            one, other = (machines[number].address for number in pair)
            run.wires.cut -= {(one, other), (other, one)}
            run.wait(20)
        run.until(lambda: all(len(machines) == 1 for machines in run.owners().values()))

    for seed in SEEDS[:2]:
        assert History(seed, Quorum.ANY).tell(story).books.counts["fenced"] >= 2


@pytest.mark.parametrize("seed", SEEDS)
def test_a_follower_whose_disk_fills_is_replaced_and_returns_while_replies_wait(seed: int) -> None:
    def story(run: History) -> None:
        owner = run.machines[0]
        full = run.followers(owner)[0]
        run.publish_some(owner, 3)
        for disk in full.disks.mirrors.values():
            disk.others = CAPACITY
        for _ in range(20):
            run.publish_some(owner, 3, 1, is_acked=False)  # which may wait for the follower, or be refused
            run.publish_some(owner, 2, 1)
            run.wait(1)
        assert full not in run.followers(owner)
        run.publish_some(owner, 3)
        for disk in full.disks.mirrors.values():
            disk.others = 0
        run.until(lambda: full in run.followers(owner))
        run.publish_some(owner, 3)

    assert History(seed, Quorum.NONE, 4).tell(story).books.counts["acked with 3"] >= 15


@pytest.mark.parametrize("seed", SEEDS)
def test_an_old_backup_of_a_log_that_another_node_owns_begins_one_more_log(seed: int) -> None:
    """And the log that the node published into meanwhile, which nobody has any more, is adopted, too."""

    def story(run: History) -> None:
        owner, *others = run.machines
        first = owner.log_id
        run.publish_some(owner, 3)
        run.wait(6)
        owner.back_up()
        run.kill(owner)
        run.until(run.is_served(first, others))
        run.start(owner)
        second = owner.log_id
        assert second != first
        run.publish_some(owner, 3)
        run.wait(6)
        owner.restore()
        run.start(owner)
        run.until(run.is_served(second, others))
        assert owner.log_id not in (first, second)

    assert History(seed, Quorum.MAJORITY).tell(story).books.counts["successions"] == 2


def test_restarts_that_are_announced_change_no_owner_and_repeat_nothing() -> None:
    for seed in SEEDS:
        run = History(seed, Quorum.ANY).tell(lambda run: run.trouble.roll())
        again = {what for what in run.books.counts if what.startswith("delivered again")}
        assert again <= {"delivered again: it was on its way"}, again


@pytest.mark.parametrize("seed", SEEDS)
def test_a_mirror_that_is_out_of_date_does_not_adopt(seed: int) -> None:
    """A follower that the owner did not hear is the only one that can claim, when the owner's disk is lost."""

    def story(run: History) -> None:
        owner = run.machines[0]
        holder, late = run.followers(owner)
        run.wait(6)
        run.wires.cut |= {(owner.address, late.address), (late.address, owner.address)}
        run.wait(7)
        run.publish_some(owner, 2)
        owner.lose_disk()
        owner.start_at = run.now + 60 * SECOND
        holder.still_until = run.now + 4 * SECOND  # from now on it does not know that it has everything
        log_id = owner.log_id
        run.until(run.is_served(log_id, run.machines))
        assert run.owner_of(log_id) == [holder]

    assert History(seed, Quorum.MAJORITY).tell(story).books.counts["kept aside"] == 0


@pytest.mark.parametrize("seed", SEEDS)
def test_a_node_that_is_recovered_from_a_copy_of_the_adopters_log_has_its_log_again(seed: int) -> None:
    def story(run: History) -> None:
        owner, *others = run.machines
        log_id = owner.log_id
        run.publish_some(owner, 3)
        run.wait(6)
        owner.lose_disk()
        owner.start_at = run.now + LONG
        run.until(run.is_served(log_id, others))
        run.wait(20)  # until the copy at the third node is that of the adopter's log
        run.start(owner)
        run.until(lambda: run.owner_of(log_id) == [owner])
        assert owner.log_id == log_id

    assert History(seed, Quorum.MAJORITY).tell(story).books.counts["adopted logs set aside"] == 1

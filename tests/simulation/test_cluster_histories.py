"""Histories of clusters that were thought of, each with several sizes and delays."""

from collections.abc import Callable, Mapping
from itertools import permutations

import pytest

from nsqd.cluster.ownership.cases import Quorum
from nsqd.core.topic import Topic
from nsqd.storage.log.records import HEADER_SIZE, decode_header
from tests.effort import seeds
from tests.nsqd.core.node import MS, SECOND
from tests.simulation.books import Publish
from tests.simulation.history import LONG, History
from tests.simulation.machine import CAPACITY, Machine

pytestmark = pytest.mark.long
SEEDS = seeds(2)
Script = Callable[[History], None]
Counts = Mapping[str, int]  # how often things happen
NONE: Counts = {}


def simulated(
    *quorums: Quorum, counts: Counts = NONE, least: Counts = NONE, most: Counts = NONE, **sizes: int
) -> Callable[[Script], Callable[..., None]]:
    """Run a test with each seed and quorum. `counts`: exact counts; `least`, `most`: bounds of counts."""

    def decorate(script: Script) -> Callable[..., None]:
        @pytest.mark.parametrize("seed", SEEDS)
        @pytest.mark.parametrize("quorum", quorums)
        def test(quorum: Quorum, seed: int) -> None:
            found = History(seed, quorum, **sizes).play(script).books.counts
            assert {what: found[what] for what in counts} == counts
            assert all(found[what] >= number for what, number in least.items()), found
            assert all(found[what] <= number for what, number in most.items()), found

        return test

    return decorate


@simulated(Quorum.NONE, Quorum.MAJORITY, replicas=1, counts={"kept as diverged copies": 0, "copies salvaged": 1})
def test_a_leader_with_an_old_backup_does_not_remove_the_only_copy(run: History) -> None:
    """The only holder of newer bytes is unreachable while the leader is restored, and is not chosen when it is back."""
    leader = run.machines[0]
    (first,) = run.followers(leader)
    (holder,) = {*run.machines} - {leader, first}
    run.part([first], [leader, holder])
    run.until(lambda: run.followers(leader) == [holder])
    leader.back_up()
    (publish,) = run.publish_batch(leader, 2, 1)
    assert publish.holders == {leader.name, holder.name}
    run.part([holder], [leader, first])
    leader.restore()
    run.start(leader)
    run.until(lambda: run.followers(leader) == [first])
    run.publish_batch(leader, 2)
    run.join()
    run.until(lambda: leader.log_id not in holder.node.replicas.kept)
    assert any(leader.log_id == one.log_id for one in holder.disks.diverged)


def test_a_leader_that_lost_its_end_goes_on_while_its_follower_is_down() -> None:
    """The follower has more than the leader. When it returns, it delivers that, and copies the log from scratch."""

    def script(run: History) -> None:
        leader = run.machines[0]
        (holder,) = run.followers(leader)
        run.publish_batch(leader, 2)  # the log states, durably, that two copies are asked for
        run.wait(6)
        run.publish_batch(leader, 2, 20)
        run.kill(holder)
        leader.crash(True, LONG)
        cut_to_synced(leader)
        run.start(leader)
        run.publish_batch(leader, 1)
        run.start(holder)

    runs = [
        History(seed, quorum, replicas=1).play(script) for seed in SEEDS for quorum in (Quorum.NONE, Quorum.MAJORITY)
    ]
    assert sum(run.books.counts["kept as diverged copies"] for run in runs) == 0
    assert sum(run.books.counts["copies salvaged"] for run in runs) > 0


def lose_the_end(run: History, followers: list[Machine]) -> list[Publish]:
    """Let the leader publish, and continue without these messages, while its followers are down. Returns the publishes."""
    leader = run.machines[0]
    run.wait(6)
    made = run.publish_batch(leader, 3, 20)
    while leader.node.log.writer.durable.position >= made[-1].position:  # it was synced just now
        made += run.publish_batch(leader, 3)
    for one in followers:
        run.kill(one)
    leader.crash(True, LONG)
    cut_to_synced(leader)
    run.start(leader)
    run.publish_batch(leader, 1)
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


@simulated(Quorum.MAJORITY, most={"copies salvaged": 1})
def test_of_two_followers_with_the_same_tail_one_delivers_it(run: History) -> None:
    followers = run.followers(run.machines[0])
    made = lose_the_end(run, followers)
    run.start(*followers)
    run.until(lambda: run.books.counts["replicas kept as diverged"] == 2)
    run.until(lambda: not any(machine.disks.diverged for machine in run.machines))
    seen = [number for one in followers for number in run.finish_all(one)]
    assert sorted(seen) == [one.number for one in made if one.number in seen]


@simulated(Quorum.NONE, counts={"kept as diverged copies": 0})
def test_a_follower_that_is_lost_with_what_it_took_in_leaves_it_to_the_other_one(run: History) -> None:
    """Two of three holders have lost the messages then, which three copies must survive."""
    first, second = run.followers(run.machines[0])
    lose_the_end(run, [first, second])
    run.start(first)
    run.until(lambda: run.books.counts["copies salvaged"] + run.books.counts["copies without messages"] > 0)
    first.lose_disk()
    first.start_at = run.now + 100 * SECOND
    run.start(second)


@simulated(Quorum.ANY, counts={"replicas kept as diverged": 1, "copies salvaged": 0})
def test_a_tail_of_a_closed_log_that_its_node_has_taken_along_is_not_salvaged_again(run: History) -> None:
    """The follower with the tail is down until the new leader has closed the log."""
    leader = run.machines[0]
    late, new_leader = run.followers(leader)
    log_id = leader.log_id
    run.publish_batch(leader, 3)
    run.kill(new_leader)
    made = run.publish_batch(leader, 2, 20)
    run.kill(leader)
    run.kill(late)
    run.start(new_leader)
    run.until(run.is_served(log_id, [new_leader]))
    run.start(leader)
    run.wait(20)  # until the new leader knows what the leader has taken along
    assert len(run.finish_all(new_leader)) == 5
    run.until(lambda: log_id in leader.node.cluster.leaders.closed)
    run.start(late)
    run.until(lambda: log_id not in late.node.replicas.kept and not late.disks.diverged)
    seen = [number for one in run.machines for number in run.finish_all(one)]
    assert sorted(seen) == [one.number for one in made]


@simulated(Quorum.ANY, counts={"kept as diverged copies": 0})
def test_what_the_lost_leader_lacked_is_salvaged_by_request_of_its_new_leader(run: History) -> None:
    leader, *others = run.machines
    late, new_leader = run.followers(leader)
    lose_the_end(run, [late, new_leader])
    log_id = leader.log_id
    run.start(new_leader)
    run.until(lambda: log_id in new_leader.node.replicas.kept and not new_leader.disks.diverged, 200)
    run.wait(6)
    run.kill(leader)
    run.start(late)
    run.until(run.is_served(log_id, others))
    run.until(lambda: not late.disks.diverged)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("is_new_leader_first", [True, False])
def test_a_third_node_takes_over_from_the_new_leader_and_all_return(is_new_leader_first: bool, seed: int) -> None:
    """Messages finished at the new leader are not delivered again by the third node."""

    def script(run: History) -> None:
        leader = run.machines[0]
        log_id = leader.log_id
        done = run.publish_batch(leader, 3, 10, "os")
        run.publish_batch(leader, 2, 5, "always")
        run.kill(leader)
        run.until(run.is_served(log_id, run.machines[1:]))
        (new_leader,) = run.leader_of(log_id)
        (third,) = {*run.machines} - {leader, new_leader}
        assert run.finish_all(new_leader) >= {one.number for one in done}
        run.publish_batch(new_leader, 2, 5, "interval")
        own = new_leader.log_id
        run.kill(new_leader)
        run.until(lambda: run.leader_of(log_id) == run.leader_of(own) == [third])
        assert not run.finish_all(third) & {one.number for one in done}
        for machine in (new_leader, leader) if is_new_leader_first else (leader, new_leader):
            run.start(machine)
            run.wait(5)
        assert (run.leader_of(log_id), run.leader_of(own)) == ([third], [third])

    assert History(seed, Quorum.ANY).play(script).books.counts["successions"] == 2


def shards_of(machine: Machine, log_id: bytes) -> dict[str, Topic]:
    """Return the topics of a promoted log that a machine serves."""
    return machine.node.promoted.promotions.logs[log_id].broker.topics


@pytest.mark.parametrize("is_restarted", [False, True])
@pytest.mark.parametrize("seed", SEEDS)
def test_a_node_that_is_cut_off_publishes_deletes_and_empties_while_another_promotes_its_log(
    seed: int, is_restarted: bool
) -> None:
    """What it has deleted goes from its old log at the new leader, and neither its own messages nor newer ones do."""

    def script(run: History) -> None:
        leader, *others = run.machines
        log_id = leader.log_id
        directory, topics = leader.node.broker.directory, leader.node.broker.topics
        for machine in run.machines:
            run.do(machine, lambda machine=machine: machine.node.broker.topics["always"].channel("extra"))
        run.publish_batch(leader, 3, 5, "always")
        emptied = run.publish_batch(leader, 3, 5, "interval")
        led = [run.publish_batch(machine, 1, 3, "interval") for machine in others]
        for machine in others:
            run.publish_batch(machine, 1, 2, "always")
        deleted = [*run.publish_batch(leader, 1, 3, "two"), *run.publish_batch(leader, 3, 3, "os")]
        run.wait(6)  # until the followers know that they have everything
        run.part([leader], others)
        run.do(leader, lambda: directory.delete("os"))
        run.do(leader, leader.node.make_topics)
        run.publish_batch(leader, 1, 5, "os")
        emptied += run.publish_batch(leader, 1, 5, "interval")
        run.do(leader, lambda: directory.delete_channel(topics["always"], "extra"))
        run.do(leader, lambda: topics["interval"].channels["work"].empty())
        run.do(leader, lambda: directory.delete_channel(topics["two"], "work"))
        run.do(leader, lambda: topics["two"].channel("work"))  # it is another one
        for one in (*emptied, *deleted):
            one.finished = True
        run.publish_batch(leader, 1, 2, "interval")
        run.until(run.is_served(log_id, others))
        (new_leader,) = {*run.leader_of(log_id)} & {*others}
        if is_restarted:
            run.kill(leader)
        run.join()
        if is_restarted:
            run.start(leader)
        run.until(lambda: leader.is_up and leader.log_id != log_id)
        assert "extra" not in leader.node.broker.topics["always"].channels
        shards = shards_of(new_leader, log_id)
        run.until(lambda: "extra" not in shards["always"].channels)
        assert "work" not in shards["two"].channels
        assert "os" not in shards
        assert not any(shards["interval"].channels["work"].counts())
        assert shards["always"].channels["work"].depth == 5
        home = new_leader.node.broker.topics
        assert {*home["always"].channels} == {"work", "extra"}
        extra = home["always"].channels["extra"]
        assert (extra.shards, extra.depth) == ((extra,), 2), "the new leader's own messages stay"
        found = run.finish_all(new_leader, "interval")
        assert found == {one.number for own in led for one in own if one.node == new_leader.name}
        assert (len(run.finish_all(leader, "interval")), len(run.finish_all(leader))) == (2, 5)

    assert History(seed, Quorum.MAJORITY).play(script).books.counts["successions"] == 1


@simulated(Quorum.MAJORITY, least={"successions": 1})
def test_a_third_node_that_promotes_learns_of_deletions_from_the_log_or_from_the_node_that_was_cut_off(
    run: History,
) -> None:
    """The new leader dies at once when it has received them, or a while later."""
    leader, *others = run.machines
    log_id = leader.log_id
    emptied = run.publish_batch(leader, 3, 5, "always")
    run.publish_batch(leader, 3, 5, "interval")
    run.wait(6)
    run.part([leader], others)
    topics = leader.node.broker.topics
    run.do(leader, lambda: topics["always"].channels["work"].empty())
    for one in emptied:
        one.finished = True
    run.until(run.is_served(log_id, others))
    (new_leader,) = {*run.leader_of(log_id)} & {*others}
    run.wait(10)
    run.join()
    first = shards_of(new_leader, log_id)
    run.until(lambda: not any(first["always"].channels["work"].counts()))
    run.wait(run.seed)
    run.kill(new_leader)
    run.until(run.is_served(log_id, run.machines))
    (third,) = run.leader_of(log_id)
    shards = shards_of(third, log_id)
    run.until(lambda: not any(shards["always"].channels["work"].counts()))
    assert shards["interval"].channels["work"].depth == 5
    run.start(new_leader)


@pytest.mark.parametrize("order", list(permutations([(0, 1), (0, 2), (1, 2)])))
def test_three_sides_promote_each_others_logs_and_meet_in_pairs(order: tuple[tuple[int, int], ...]) -> None:
    def script(run: History) -> None:
        machines = list(run.machines)
        logs = [machine.log_id for machine in machines]
        for machine in machines:
            run.publish_batch(machine, 3, 3)
        run.wait(6)
        run.part(*([machine] for machine in machines))
        for machine in machines:
            run.publish_batch(machine, 1, 3, "always")
        run.until(lambda: all(len(run.leader_of(log_id)) == 3 for log_id in logs))
        for pair in order:
            one, other = (machines[number].address for number in pair)
            run.wires.cut -= {(one, other), (other, one)}
            run.wait(20)
        run.until(lambda: all(len(machines) == 1 for machines in run.leaders().values()))

    for seed in SEEDS[:2]:
        assert History(seed, Quorum.ANY).play(script).books.counts["fenced"] >= 2


@simulated(Quorum.NONE, nodes=4, least={"acked with 3": 15})
def test_a_follower_whose_disk_fills_is_replaced_and_returns_while_replies_wait(run: History) -> None:
    leader = run.machines[0]
    full = run.followers(leader)[0]
    run.publish_batch(leader, 3)
    for disk in full.disks.replicas.values():
        disk.others = CAPACITY
    for _ in range(20):
        run.publish_batch(leader, 3, 1, is_acked=False)  # which may wait for the follower, or be refused
        run.publish_batch(leader, 2, 1)
        run.wait(1)
    assert full not in run.followers(leader)
    run.publish_batch(leader, 3)
    for disk in full.disks.replicas.values():
        disk.others = 0
    run.until(lambda: full in run.followers(leader))
    run.publish_batch(leader, 3)


@simulated(Quorum.MAJORITY, counts={"successions": 2})
def test_an_old_backup_of_a_log_that_another_node_leads_begins_one_more_log(run: History) -> None:
    """And the log that the node published into meanwhile, which has no leader, is promoted, too."""
    leader, *others = run.machines
    first = leader.log_id
    run.publish_batch(leader, 3)
    run.wait(6)
    leader.back_up()
    run.kill(leader)
    run.until(run.is_served(first, others))
    run.start(leader)
    second = leader.log_id
    assert second != first
    run.publish_batch(leader, 3)
    run.wait(6)
    leader.restore()
    run.start(leader)
    run.until(run.is_served(second, others))
    assert leader.log_id not in (first, second)


def test_restarts_that_are_announced_change_no_leader_and_repeat_nothing() -> None:
    for seed in SEEDS:
        run = History(seed, Quorum.ANY).play(lambda run: run.trouble.roll())
        again = {what for what in run.books.counts if what.startswith("delivered again")}
        assert again <= {"delivered again: it was on its way"}, again


@simulated(Quorum.MAJORITY, counts={"kept as diverged copies": 0})
def test_a_replica_that_is_out_of_date_does_not_promote(run: History) -> None:
    """A follower that was partitioned from the leader is the only candidate, when the leader's disk is lost."""
    leader = run.machines[0]
    holder, late = run.followers(leader)
    run.wait(6)
    run.wires.cut |= {(leader.address, late.address), (late.address, leader.address)}
    run.wait(7)
    run.publish_batch(leader, 2)
    leader.lose_disk()
    leader.start_at = run.now + 60 * SECOND
    holder.still_until = run.now + 4 * SECOND  # from now on it does not know that it has everything
    log_id = leader.log_id
    run.until(run.is_served(log_id, run.machines))
    assert run.leader_of(log_id) == [holder]


@simulated(Quorum.MAJORITY, counts={"recovered": 1, "successions": 1, "promoted logs kept as diverged": 0})
def test_a_node_that_is_recovered_from_a_copy_of_the_new_leaders_log_begins_another_one(run: History) -> None:
    leader, *others = run.machines
    log_id = leader.log_id
    run.publish_batch(leader, 3)
    run.wait(6)
    leader.lose_disk()
    leader.start_at = run.now + LONG
    run.until(run.is_served(log_id, others))
    run.wait(20)  # until the copy at the third node is that of the new leader's log
    run.start(leader)
    run.until(lambda: leader.node is not None)
    assert leader.log_id not in (b"", log_id)
    assert run.leader_of(log_id)[0] in others


def a_partition_with_a_witness(run: History) -> None:
    leader, *others = run.machines
    log_id = leader.log_id
    run.publish_batch(leader, 3)
    run.wait(6)
    run.part([leader], others, is_witnessed=True)
    run.wait(60)
    assert run.leader_of(log_id) == [leader]
    run.part([leader], others)
    run.until(run.is_served(log_id, others))


test_an_nsqlookupd_in_contact_with_both_sides_of_a_partition_postpones_the_failover = simulated(
    Quorum.MAJORITY, least={"claims postponed": 1}
)(a_partition_with_a_witness)


@simulated(*Quorum, counts={"leaves": 1})
def test_a_node_that_leaves_loses_nothing_and_joins_again_with_another_log(run: History) -> None:
    """Messages without further copies, too."""
    leaver = run.machines[1]
    log_id = leaver.log_id
    run.publish_batch(leaver, 1, 10)
    run.publish_batch(leaver, 2, 5, "always")
    run.departures.leave(leaver, 60 * SECOND)
    run.until(lambda: leaver.node is None)
    (leader,) = run.leader_of(log_id)
    assert leader is not leaver
    leaver.is_away = False
    run.start(leaver)
    run.until(lambda: run.is_joined(leaver))
    assert leaver.log_id != log_id
    run.publish_batch(leaver, 2)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_node_that_is_cut_off_while_it_leaves_stays_a_member_or_has_lost_nothing(seed: int) -> None:
    def script(run: History) -> None:
        leaver, *others = run.machines
        run.publish_batch(leaver, 1, 10)
        run.departures.leave(leaver, 20 * SECOND)
        run.wait(0.5 + 0.3 * seed)
        run.part([leaver], others)
        run.wait(40)
        run.join()

    counts = History(seed, Quorum.MAJORITY).play(script).books.counts
    assert counts["leaves"] + counts["leaves given up"] == 1


@simulated(Quorum.MAJORITY, counts={"leaves": 1})
def test_a_node_that_leaves_while_it_has_no_contact_is_a_member_until_it_is_forgotten(run: History) -> None:
    leaver, *others = run.machines
    announce, number = leaver.node.cluster.leave, leaver.number

    def leave() -> None:
        run.part([leaver], others)
        announce()

    leaver.node.cluster.leave = leave
    run.departures.leave(leaver, 60 * SECOND)
    run.until(lambda: leaver.node is None)
    leaver.is_away = True
    clusters = [one.node.cluster for one in others]
    assert all(cluster.membership.is_member(number) for cluster in clusters)
    run.join()
    run.until(lambda: not any(cluster.is_any_member_away for cluster in clusters))


@simulated(Quorum.MAJORITY, has_jobs=True)
def test_a_job_that_a_leaving_node_forwards_is_known_to_be_at_its_taker_without_a_reply(run: History) -> None:
    leaver, part = run.machines[0], run.machines[0].node.jobs_part
    run.departures.leave(leaver, 60 * SECOND)
    client = part.connect()
    run.do(leaver, lambda: run.jobs.add(leaver, leaver.node, client, "queue", 0))
    run.do(leaver, client.leave)
    run.until(lambda: run.books.counts["disque: forwarded"] == 1)
    (job,) = run.jobs.books.jobs.values()
    (taker,) = [one for one in run.machines[1:] if one.node.jobs_part.find(job.message_id)]
    assert taker.node.jobs_part.place_of(job.publish) == (taker.log_id, taker.node.log.writer.written.position)


def the_old_log_that_is_closed(run: History) -> None:
    """The new leader lacks what two nodes had, and is slow to copy its log, when the old one is closed."""
    leader, new_leader, other = run.machines
    log_id = leader.log_id
    run.wait(6)
    run.wires.cut |= {(leader.address, new_leader.address), (new_leader.address, leader.address)}
    run.until(lambda: new_leader.number not in leader.node.cluster.links)
    run.publish_batch(leader, 2)
    run.kill(other)
    run.kill(leader)
    run.join()
    run.until(run.is_served(log_id, [new_leader]))
    for name in ("os", "always", "interval", "two"):
        run.finish_all(new_leader, name)
    new_leader.node.work.duration = LONG
    run.start(leader)
    run.until(lambda: log_id in leader.node.cluster.leaders.closed)
    run.wait(12)
    assert [one.log_id for one in leader.disks.old_logs] == [log_id]
    run.kill(new_leader)
    run.start(new_leader, other)
    run.until(lambda: not leader.disks.old_logs)


test_an_old_log_stays_until_what_goes_on_of_it_has_copies = simulated(Quorum.ANY, least={"old logs removed": 1})(
    the_old_log_that_is_closed
)


@simulated(Quorum.MAJORITY)
def test_a_leader_that_ends_with_its_first_acknowledgement_is_followed_at_once(run: History) -> None:
    """A follower knows that it is in sync before a client has a reply that needs its copy."""
    leader = run.machines[0]
    run.kill(leader)
    run.until(run.is_served(leader.log_id, set(run.machines) - {leader}))
    run.start(leader)
    run.until(
        lambda: leader.node is not None and leader.node.may_publish(leader.node.broker.topics["os"], 2) is not None
    )
    made = run.publish_batch(leader, 2, is_acked=False)
    while not all(one.acked for one in made):
        run.step(MS)
    log_id = leader.log_id
    run.kill(leader)
    run.until(run.is_served(log_id, set(run.machines) - {leader}), 15)
    run.start(leader)

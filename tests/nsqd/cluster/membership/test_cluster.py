"""Clusters on a simulated network: whatever happens, in the end all agree, and only the silent are suspected."""

import sys
from unittest.mock import Mock

import pytest

from nsqd.cluster.membership.cluster import MOST_STRANGERS, Cluster
from nsqd.cluster.membership.facts import ClusterFacts
from nsqd.cluster.membership.members import Membership
from nsqd.cluster.wire.handshake import Credentials
from nsqd.cluster.wire.link import MOST_OUTPUT
from nsqd.cluster.wire.node_identity import Member, Standing
from tests.cases import each
from tests.effort import seeds
from tests.nsqd.cluster.network import SECOND, SECRET, SUSPECT_AFTER, Network, SimMember
from tests.nsqd.cluster.wire.identities import node

SEEDS = seeds(6, in_short=3)
CALM = 70  # s: longer than the longest pause between two dials, twice


def started(seed: int, nodes: int = 3) -> Network:
    network = Network(seed)
    network.meet(nodes)
    return network


def test_a_node_that_dies_is_suspected_by_all_in_time_and_no_other_node_is() -> None:
    for seed in SEEDS:
        network = started(seed, 4)
        dead, at = network.members["node2:4152"], network.now
        network.kill(dead)
        network.run(9)
        for member in network.running():
            assert [number for _, number in member.suspicions] == [2]
            assert all(3 * SECOND <= when - at <= 7 * SECOND for when, _ in member.suspicions)
        network.start(2, incarnation=2)
        network.run(CALM)
        assert network.agree()


@each("drains", [1, 4])  # s, in which heartbeats continue
def test_an_announced_restart_causes_no_suspicion(drains: int) -> None:
    network = started(1)
    restarting = network.members["node1:4152"]
    restarting.cluster.announce_restart(30_000)
    network.collect(restarting)
    network.run(drains)
    network.kill(restarting)
    network.run(20)
    assert all(member.suspicions == [] for member in network.running())
    network.start(1, incarnation=2)
    network.run(CALM)
    assert network.agree()
    assert all(member.suspicions == [] for member in network.running())


@pytest.mark.parametrize("still", [3, 4, 40])
def test_a_paused_node_suspects_no_node_when_it_continues(still: int) -> None:
    for seed in SEEDS:
        network = started(seed)
        stopped = network.members["node0:4152"]
        stopped.still_until = network.now + still * SECOND
        network.run(still)
        suspected = {number for member in network.running() for _, number in member.suspicions}
        assert suspected <= {0}
        if still != 4:  # then the last heartbeat is 5 s old at most
            assert suspected == ({0} if still > 5 else set())
        network.run(CALM)
        assert stopped.suspicions == []
        assert network.agree()


def test_any_partitions_kills_and_stops_end_in_agreement() -> None:
    for seed in SEEDS:
        network = started(seed, 3 + seed % 5)
        incarnations = dict.fromkeys(network.members, 1)
        logs: dict[str, int] = {}  # of nodes that were forgotten
        random = network.random
        for _ in range(12):
            what = random.choice(("halves", "one way", "flap", "kill", "stop", "start", "forget"))
            address = random.choice(list(network.members))
            member = network.members[address]
            if what == "halves":
                network.cut = set(network.halves())
            elif what == "one way":
                network.cut = {(address, other) for other in network.members}
            elif what == "flap":
                network.cut = set() if network.cut else set(network.halves())
            elif what == "kill":
                network.kill(member)
            elif what == "stop":
                member.still_until = network.now + random.randrange(1, 20) * SECOND
            elif what == "start" and not member.is_up:
                incarnations[address] += 1
                network.start(member.own.number, incarnations[address], log=logs.get(address))
            elif what == "forget" and not member.is_up and network.running():
                witness = random.choice(network.running()).cluster
                known = witness.membership.records.get(member.own.number)
                if (
                    known is not None
                    and known.node.log_id == member.own.log_id
                    and member.own.number not in witness.links
                    and not witness.membership.is_awaited(member.own.number)
                ):
                    witness.forget(member.own.number, network.now)
                    logs[address] = len(logs) + 100  # it may come back with a new directory
                    network.run(1)
            network.run(random.choice((0.3, 3, 12)))
        network.cut = set()
        for address, member in list(network.members.items()):
            if not member.is_up:
                network.start(member.own.number, incarnations[address] + 1, log=logs.get(address))
        network.run(CALM + 20)
        assert network.agree(), seed


def test_a_second_node_with_a_number_is_refused_while_the_first_one_lives() -> None:
    network = started(1)
    twin = network.start(1, incarnation=5, address="twin:4152")  # with the first one's directory
    other = network.start(2, incarnation=5, log=77, address="other:4152")  # with its own
    network.run(CALM)
    assert (twin.cluster.links.keys() | other.cluster.links.keys()) <= {0, 1, 2}
    for address in ("node0:4152", "node1:4152", "node2:4152"):
        words = network.members[address].cluster.membership.records
        assert {word.node.address for word in words.values()} == {"node0:4152", "node1:4152", "node2:4152"}
    for member in (twin, other):
        network.kill(member)
        del network.members[member.own.address]
    network.run(CALM)
    assert network.agree()


@pytest.mark.parametrize("moved", [False, True])
def test_after_a_restart_of_all_a_later_run_is_accepted_at_once_at_its_old_address_only(moved: bool) -> None:
    network = Network(5)
    first = network.start(0, 2, [])
    known = (Member(node(1, 1)),)  # as the file of the last run has it
    credentials = Credentials("c", SECRET, first.own)
    first.cluster = Cluster(credentials, [], SUSPECT_AFTER, network.random.randbytes, ClusterFacts(0, known), first.now)
    network.start(1, 2, **({"address": "elsewhere:4152"} if moved else {}))
    network.run(2)
    assert (1 in first.cluster.links) is not moved
    network.run(40)
    assert 1 in first.cluster.links


def test_a_node_with_another_secret_stays_outside() -> None:
    network = started(1)
    stranger = SimMember(network, node(9), ["node0:4152", "node1:4152"], b"the secret of another cluster")
    network.members[stranger.own.address] = stranger
    network.run(30)
    assert stranger.cluster.links == {}
    assert all(9 not in member.cluster.membership.records for member in network.running() if member is not stranger)


def test_a_crowd_of_strangers_is_bounded_and_goes() -> None:
    network = started(1)
    member = network.members["node0:4152"]
    links = [member.cluster.accepted(member.now) for _ in range(MOST_STRANGERS + 5)]
    assert [link is None for link in links] == [False] * MOST_STRANGERS + [True] * 5
    member.network.now += 6 * SECOND
    member.cluster.tick(member.now)
    for link in links:
        assert link is None or link.closing == "the handshake took too long"
        if link is not None:
            member.cluster.closed(link, member.now)
    assert member.cluster.accepted(member.now) is not None


def test_a_node_learns_that_it_was_forgotten() -> None:
    network = started(1)
    first = network.members["node0:4152"]
    for number in (0, 1, 2):
        with pytest.raises(ValueError, match="may be up"):
            first.cluster.forget(number, first.now)
    with pytest.raises(KeyError):
        first.cluster.forget(7, first.now)
    network.kill(network.members["node1:4152"])
    network.run(1)
    with pytest.raises(ValueError, match="may be up"):  # its connection broke, but it may be about to make another one
        first.cluster.forget(1, first.now)
    network.run(6)
    first.cluster.forget(1, first.now)
    network.run(1)
    for one in network.running():
        assert one.cluster.membership.records[1] == Member(node(1), Standing.FORGOTTEN)
    for incarnation in (1, 2):  # the same run, a copy of its memory; and a later run of its directory
        again = network.start(1, incarnation=incarnation).cluster
        again.dialed = Mock(wraps=again.dialed)
        network.run(30)
        assert again.dialed.call_count < 10, "it does not knock without pause"
        assert again.links == {}
        assert "was forgotten" in again.refused_itself
        network.kill(network.members["node1:4152"])
    network.start(1, incarnation=3, log=11)
    network.run(CALM)
    assert network.agree()
    assert [one.number for one in first.cluster.membership.members] == [0, 1, 2]


def test_a_node_that_others_still_see_is_cut_off_when_one_forgets_it_and_they_see_it_no_more() -> None:
    network = started(1)
    first, second = network.members["node0:4152"], network.members["node1:4152"]
    network.cut = {("node0:4152", "node1:4152"), ("node1:4152", "node0:4152")}
    network.run(8)
    assert 1 not in first.cluster.links
    first.cluster.forget(1, first.now)
    third = network.members["node2:4152"]
    network.run(3)
    assert 1 in third.cluster.links
    assert [one.number for one in third.cluster.membership.members] == [0, 1, 2]
    network.cut |= {("node2:4152", "node1:4152"), ("node1:4152", "node2:4152")}
    network.run(8)
    assert [one.number for one in third.cluster.membership.members] == [0, 2]
    network.cut = set()
    network.run(8)
    assert second.cluster.links == {}
    assert "was forgotten" in second.cluster.refused_itself


def test_forgotten_logs_are_known_after_a_restart_and_words_of_a_former_directory_with_the_own_number() -> None:
    former = Member(node(0, 1, log=99), Standing.FORGOTTEN)
    gone = Member(node(1), Standing.FORGOTTEN)
    later = Member(node(1, 2, log=11))
    cluster = Cluster(
        Credentials("c", SECRET, node(0, 2)), [], 5 * SECOND, bytes, ClusterFacts(0, (former, gone, later))
    )
    assert [one.number for one in cluster.membership.members] == [0, 1]
    assert set(cluster.members()) == {Member(node(0, 2)), later, former, gone}


@pytest.mark.parametrize("what", ["nothing", "stops", "loses a connection"])
def test_a_twin_that_goes_on_knocking_is_not_admitted(what: str) -> None:
    for seed in SEEDS:
        network = started(seed)
        first = network.members["node1:4152"]
        twin = network.start(1, incarnation=9, address="twin:4152")
        network.run(3)
        if what == "stops":
            first.still_until = network.now + 4 * SECOND - SECOND // 2
        if what == "loses a connection":
            network.close(next(iter(first.ends)), first)
        network.run(30)
        assert (twin.cluster.links, first.cluster.refused_itself) == ({}, "")
        assert set(first.cluster.links) == {0, 2}


def test_a_peer_that_reads_nothing_is_closed() -> None:
    network = started(1)
    member = network.members["node0:4152"]
    link = member.cluster.links[1]
    link.unsent = MOST_OUTPUT
    link.send_members([Member(node(7, 2))])
    assert link.closing == "the peer reads nothing"


def partitions_find_it() -> bool:
    try:
        test_any_partitions_kills_and_stops_end_in_agreement()
        test_a_paused_node_suspects_no_node_when_it_continues(40)
    except AssertionError:
        return True
    return False


def test_that_the_earlier_run_wins_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Member, "is_later_than", lambda word, other: word._order() < other._order())
    assert partitions_find_it()


@pytest.mark.campaign
def test_judging_before_reading_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Membership, "must_read_first", lambda membership, now: False)
    monkeypatch.setattr(sys.modules[__name__], "SEEDS", range(300))
    assert partitions_find_it()


def test_that_another_run_of_a_living_node_is_believed_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Membership, "is_going", lambda membership, number: True)
    with pytest.raises(AssertionError):
        test_a_second_node_with_a_number_is_refused_while_the_first_one_lives()


def test_a_run_that_began_with_a_clock_that_was_set_back_learns_the_incarnation_that_the_next_must_exceed() -> None:
    network = started(1)
    network.kill(network.members["node1:4152"])
    network.run(20)
    network.start(1, incarnation=5)
    network.run(20)
    network.kill(network.members["node1:4152"])
    network.run(20)
    back = network.start(1, incarnation=2)
    network.run(20)
    assert (back.cluster.links, back.cluster.highest) == ({}, 5)

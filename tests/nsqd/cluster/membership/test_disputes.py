"""What one node with its key and the secret says does not stop another node, or take its log. No socket; time is given."""

from dataclasses import replace

import pytest

from nsqd.cluster.membership import members
from nsqd.cluster.membership.leader_frames import Closed, Hold, Leadership, pack_closed, pack_leaders
from nsqd.cluster.membership.leaders import Vote
from nsqd.cluster.membership.members import MOST_UNPROVED
from nsqd.cluster.membership.reports import MOST_RUNS_AHEAD
from nsqd.cluster.membership.topic_configs import AHEAD, MOST_VALUE, VersionedConfig, pack_configs
from nsqd.cluster.ownership.closed_logs import ClosedLogs
from nsqd.cluster.wire.frames import FrameKind
from nsqd.cluster.wire.node_identity import Member, Standing
from nsqd.core.message.epoch import Epoch
from shared.topic_config import TopicConfig
from tests.cases import each
from tests.nsqd.cluster.network import SECOND, Network
from tests.nsqd.cluster.ownership.election_run import ElectionNode, ElectionRun
from tests.nsqd.cluster.ownership.test_elections import LOG, leader, started
from tests.nsqd.cluster.wire.identities import HEAD


def say(run: ElectionRun, source: int, word: Leadership, *targets: int) -> None:
    """A node sends others an update, whatever it believes itself."""
    node = run.nodes[source]
    for number in targets:
        node.cluster.links[number].send_first(pack_leaders([word]))
    run.network.collect(node)


@each("size, number, candidate, hold", [
    (2, 1000, 0, Hold.KNOWS), (2, 1000, 1, Hold.LEADS), (2, 1000, 900, Hold.KNOWS), (2, 1000, 1, Hold.STEPPED_DOWN),
    (5, (1 << 32) - 1, 1, Hold.LEADS),
])  # fmt: skip
def test_a_false_update_changes_no_leader_while_the_others_are_connected(
    size: int, candidate: int, number: int, hold: Hold
) -> None:
    run, nodes = started(size=size)
    before = nodes[0].cluster.leaders.epochs[LOG]
    word = Leadership(LOG, Epoch(number, candidate, b"\xff" * 8), hold)
    say(run, 1, word, *(one for one in range(size) if one != 1))
    run.advance(20)
    assert [one.cluster.leaders.epochs[LOG] for one in nodes] == [before] * size
    assert run.fences == 0
    assert nodes[0].cluster.leaders.holds(LOG)


def test_a_log_whose_leader_is_lost_after_a_false_word_is_promoted() -> None:
    run, nodes = started(size=3)
    false = Epoch(1000, 900, b"\xff" * 8)
    say(run, 1, Leadership(LOG, false), 0, 2)
    run.advance(10)
    run.kill(nodes[0])
    # who promoted the log may lose it for the false word: then it has a candidate once more
    run.begun.add((LOG, false))
    run.advance(60)
    assert leader(run) in (1, 2)


def test_an_update_is_accepted_when_the_nodes_without_it_have_no_majority() -> None:
    run, nodes = started(size=5)
    taken = Epoch(101, 1, b"\x01" * 8)
    say(run, 1, Leadership(LOG, taken, Hold.LEADS), 0, 2, 3, 4)
    run.advance(2)
    assert nodes[0].cluster.leaders.epochs[LOG] != taken
    run.begun.add((LOG, taken))
    for one in (2, 3):
        nodes[one].cluster.leaders.vote(LOG, Vote(101, 1))
    run.advance(3)
    assert {node.cluster.leaders.epochs[LOG] for node in nodes} == {taken}
    assert run.fences == 1


def without_forgotten(absent: int | None) -> tuple[ElectionRun, list[ElectionNode]]:
    """Nodes 0, 1 and 2 of five: the others were forgotten, while one of the three was partitioned from the other two."""
    run, nodes = started(size=5)
    for node in nodes[3:]:
        run.kill(node)
    pairs = [(nodes[absent].address, one.address) for one in nodes] if absent is not None else []
    run.network.cut = {*pairs, *(pair[::-1] for pair in pairs)}
    run.advance(10)
    for number in (3, 4):
        nodes[0].cluster.forget(number, nodes[0].now)
    run.size = 3
    run.network.collect(nodes[0])
    run.advance(30)
    run.network.cut = set()
    return connected(run)


def connected(run: ElectionRun) -> tuple[ElectionRun, list[ElectionNode]]:
    """Wait until nodes 0, 1 and 2 are connected to each other: it may be another run of a node that had lost its log."""
    for _ in range(240):
        run.advance(0.25)
        nodes = [run.nodes[number] for number in range(3)]
        if all({0, 1, 2} <= {*one.cluster.links, one.own.number} for one in nodes):
            return run, nodes
    raise AssertionError("a node has no connection")


@each("number, hold", [(3, Hold.KNOWS), (1, Hold.LEADS)])
def test_nodes_that_were_forgotten_during_a_partition_may_have_voted(number: int, hold: Hold) -> None:
    run, nodes = without_forgotten(absent=1)
    taken = Epoch(1001, number, b"\x01" * 8)
    say(run, 1, Leadership(LOG, taken, hold), 0, 2)
    run.begun.add((LOG, taken))
    run.advance(3)
    assert nodes[0].cluster.leaders.epochs[LOG] >= taken
    run.advance(60)
    assert leader(run) in (0, 1, 2), "the log has a leader again"


@each("absent, restarted", [(None, None), (1, None), (None, 2)])
def test_nodes_that_were_forgotten_have_not_voted_for_leaders_that_no_member_reports(
    absent: int | None, restarted: int | None
) -> None:
    run, nodes = without_forgotten(absent)
    run.advance(15)
    if restarted is not None:
        run.kill(nodes[restarted])
        run.start(restarted)
        run, nodes = connected(run)
    before = nodes[0].cluster.leaders.epochs[LOG]
    say(run, 1, Leadership(LOG, Epoch(1001, 3, b"\x01" * 8)), 0, 2)
    run.advance(20)
    assert nodes[0].cluster.leaders.epochs[LOG] == nodes[2].cluster.leaders.epochs[LOG] == before


@pytest.mark.parametrize(("voted_for", "is_believed"), [(1, True), (4, False)])
def test_who_has_voted_for_a_leader_believes_it_also_after_it_has_started_again(
    voted_for: int, is_believed: bool
) -> None:
    run, nodes = started(size=5)
    before = nodes[0].cluster.leaders.epochs[LOG]
    for one in (2, 3):
        nodes[one].cluster.leaders.vote(LOG, Vote(101, voted_for))
    again = Epoch(103, 1, b"\x01" * 8)
    say(run, 1, Leadership(LOG, again, Hold.LEADS), 0, 2, 3, 4)
    run.begun.add((LOG, again))
    run.advance(5)
    assert {node.cluster.leaders.epochs[LOG] for node in nodes[2:]} == {again if is_believed else before}
    assert run.fences == is_believed


def invented(number: int, **changes: int) -> Member:
    own, address = Network(9).start(0).own, f"invented{number}:1"
    node = replace(own, number=number, log_id=number.to_bytes(16), address=address, ids=())
    return Member(replace(node, **changes))


def test_invented_members_are_few_and_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(members, "UNPROVED_FOR", 60 * SECOND)
    network = Network(3)
    nodes = network.meet(3)
    nodes[1].cluster.links[0].send_members([invented(number) for number in range(3, 1000)])
    network.collect(nodes[1])
    network.run(1)
    membership = nodes[0].cluster.membership
    assert len(membership.members) == 3 + MOST_UNPROVED
    assert {word.node.number for word in nodes[0].cluster.members_to_keep()} == {0, 1, 2}
    network.run(80)
    for node in nodes:
        assert [one.number for one in node.cluster.membership.members] == [0, 1, 2]


@pytest.mark.parametrize("standing", [Standing.LEFT, Standing.FORGOTTEN])
def test_one_node_says_in_vain_that_another_is_gone(standing: Standing) -> None:
    network = Network(4)
    nodes = network.meet(3)
    for number in (0, 2):
        nodes[1].cluster.links[number].send_members([Member(nodes[0].own, standing)])
    network.collect(nodes[1])
    network.run(30)
    assert set(nodes[2].cluster.links) == {0, 1}
    assert [one.number for one in nodes[2].cluster.membership.members] == [0, 1, 2]


def test_a_run_that_cannot_be_is_none() -> None:
    network = Network(5)
    nodes = network.meet(3)
    for number in (0, 2):
        nodes[1].cluster.links[number].send_members([Member(replace(nodes[0].own, incarnation=(1 << 63) - 1))])
    network.collect(nodes[1])
    network.run(2)
    assert nodes[0].cluster.highest < MOST_RUNS_AHEAD
    network.kill(nodes[0])
    network.run(30)
    again = network.start(0)
    network.run(10)
    assert set(again.cluster.links) == {1, 2}


def test_a_log_is_closed_only_by_its_leader() -> None:
    network = Network(6)
    nodes = network.meet(3)
    closed = {node.own.number: ClosedLogs(node.cluster, lambda then: then(False)) for node in nodes}
    for node in nodes:
        node.cluster.add(closed[node.own.number])
    log_id = nodes[0].own.log_id
    epoch = nodes[0].cluster.leaders.epochs[log_id]
    for word in (epoch, epoch._replace(number=epoch.number + 1), Epoch(1000, 1, bytes(8))):
        for number in (0, 2):
            nodes[1].cluster.links[number].send_first(pack_closed(Closed(log_id, 10, ((word, 0),))))
        network.collect(nodes[1])
        network.run(3)
        for node in (nodes[0], nodes[2]):
            assert (node.cluster.leaders.closed, node.cluster.leaders.epochs[log_id]) == ({}, epoch)
    network.kill(nodes[0])  # its copies stay
    network.run(30)
    closed[2].receive(
        nodes[2].cluster.links[1], FrameKind.CLOSED, pack_closed(Closed(log_id, 10, ((epoch, 0),)))[HEAD:], 0
    )
    assert nodes[2].cluster.leaders.closed == {}


def test_no_configuration_is_of_a_time_to_come() -> None:
    network = Network(7)
    nodes = network.meet(3)
    nodes[0].cluster.configs._wall = lambda: 1_000
    for at in (MOST_VALUE, 1_001 + AHEAD, 900 + AHEAD):
        word = VersionedConfig("t", at, 1, TopicConfig(max_attempts=1))
        nodes[1].cluster.links[0].send_first(pack_configs([word]))
    network.collect(nodes[1])
    network.run(2)
    assert nodes[0].cluster.configs.known["t"].at == 900 + AHEAD

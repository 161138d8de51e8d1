"""Elections, one rule at a time: who has a candidate and when, and what voters answer."""

import re
from collections.abc import Callable
from dataclasses import replace

import pytest

from nsqd.cluster.membership.leader_frames import LogExtent, make_closed
from nsqd.cluster.membership.leaders import Vote
from nsqd.cluster.ownership import elections as elections
from nsqd.cluster.ownership.candidate import MOST_AHEAD, PATIENT, STEP
from nsqd.cluster.ownership.cases import Quorum
from nsqd.cluster.ownership.election_frames import Answer, InSyncReplicas, Stage, pack_in_sync, pack_vote_request
from nsqd.cluster.ownership.election_frames import VoteRequest as ElectionFrame
from nsqd.core.message.epoch import Epoch
from tests.cases import each
from tests.nsqd.cluster.network import SECOND
from tests.nsqd.cluster.ownership.election_run import Disk, ElectionNode, ElectionRun

LOG = (0).to_bytes(16)  # that of node 0


def started(quorum: Quorum = Quorum.MAJORITY, size: int = 3) -> tuple[ElectionRun, list[ElectionNode]]:
    """Nodes of which all followers count."""
    run = ElectionRun(1, quorum, size)
    run.failing = run.unwritten = run.lagging = 0.0
    run.advance(15)
    assert run.complaints() == []
    return run, [run.nodes[number] for number in range(size)]


def bereft(quorum: Quorum = Quorum.MAJORITY, size: int = 3) -> tuple[ElectionRun, list[ElectionNode]]:
    """Nodes of which the first one is dead."""
    run, nodes = started(quorum, size)
    run.kill(nodes[0])
    return run, nodes


def leader(run: ElectionRun, log_id: bytes = LOG) -> int:
    """The leader that all running nodes know."""
    leaders = {node.cluster.leaders.leader(log_id) for node in run.running()}
    assert len(leaders) == 1
    found = leaders.pop()
    return found.node


def test_a_closed_log_lacks_no_leader() -> None:
    run, nodes = started(Quorum.NONE)
    run.kill(nodes[0])
    run.advance(10)
    (lost,) = [log for log in nodes[1].elections.figures()["logs"] if log["leader_lost"]]
    assert lost["log_id"] == LOG.hex()
    nodes[1].cluster.leaders.close(make_closed(LOG, 500, [(nodes[1].cluster.leaders.epochs[LOG], 0)]))
    assert [log["log_id"] for log in nodes[1].elections.figures()["logs"] if log["leader_lost"]] == []


def test_the_first_of_the_followers_that_count_promotes_the_log_of_a_dead_node_at_once() -> None:
    run, nodes = started()
    run.duration = 8_000, 8_001
    run.kill(nodes[0])
    for _ in range(50):  # 10 s
        run.advance(0.2)
        attempt = nodes[1].elections.candidate.attempt
        if attempt is not None and attempt.is_won:
            break
    assert (attempt.stage, attempt.is_won, attempt.number) == (Stage.CLEAN, True, 1 + STEP)
    assert nodes[2].elections.candidate.attempt is None
    assert nodes[1].elections.figures()["logs"][0]["state"] == "promoting"
    run.advance(12)
    assert leader(run) == 1
    assert dict(run.disks[2].facts.votes)[LOG] == Vote(1 + STEP, 1)
    figures = nodes[1].elections.figures()
    assert (figures["won"], figures["logs"][0]["leader_lost"]) == ({"clean": 1, "unclean": 0}, False)


def test_without_a_quorum_only_an_operator_orders_a_promotion() -> None:
    run, nodes = started(Quorum.NONE)
    with pytest.raises(ValueError, match="is connected"):
        nodes[1].elections.promote(LOG)
    run.kill(nodes[0])
    run.advance(70)
    assert leader(run) == 0
    del nodes[1].disk.replicas[LOG]
    run.advance(1)
    with pytest.raises(KeyError):
        nodes[1].elections.promote(LOG)
    nodes[2].elections.promote(LOG)
    run.advance(10)
    assert leader(run) == 2
    assert run.won_unclean == 1


def test_an_operators_word_at_a_node_with_a_shorter_replica_goes_to_the_one_with_the_longer() -> None:
    run, nodes = bereft(Quorum.NONE)
    nodes[2].disk.replicas[LOG].end += 1
    run.advance(10)
    nodes[1].elections.promote(LOG)
    run.advance(15)
    assert leader(run) == 2


def test_an_operators_word_ends_when_the_leader_is_back() -> None:
    run, nodes = bereft(Quorum.NONE)
    run.kill(nodes[2])  # so that no majority promises
    run.advance(20)
    nodes[1].elections.promote(LOG)
    run.advance(20)
    assert nodes[1].elections.cases.by_log[LOG].is_ordered
    run.start(0)
    run.start(2)
    run.advance(20)
    assert leader(run) == 0
    assert not nodes[1].elections.cases.by_log[LOG].is_ordered


def test_a_node_without_a_majority_waits_for_ever_and_one_with_any_promotes() -> None:
    for quorum, new_leader in ((Quorum.MAJORITY, 0), (Quorum.ANY, 1)):
        run, nodes = bereft(quorum)
        run.kill(nodes[2])
        run.advance(100)
        assert leader(run) == new_leader


@each("remembers", [True, False])  # that the log was its own
def test_a_leader_that_is_back_with_an_empty_disk_is_not_waited_for(remembers: bool) -> None:
    run, _ = bereft()
    run.advance(2)
    if remembers:
        run.disks[0].led.clear()
        run.disks[0].replicas.clear()
    else:
        run.disks[0] = Disk((100).to_bytes(16), incarnation=10)
    run.start(0)
    run.advance(15)
    assert leader(run) in (1, 2)
    assert (run.won_clean, run.won_unclean) == (1, 0)
    assert run.complaints() == []


def test_a_new_leader_that_restarts_names_its_logs_before_they_are_open() -> None:
    run, nodes = bereft()
    run.advance(15)
    assert leader(run) == 1
    run.kill(nodes[1])
    run.advance(1)
    run.start(1)
    run.advance(12)
    assert leader(run) == 1
    assert LOG in run.nodes[1].serving


def test_a_leader_that_was_silent_for_a_while_and_dies_is_not_waited_for_any_longer() -> None:
    run, nodes = started()
    run.duration = 60_000, 60_001  # a promotion that begins is called off when the leader is back
    for _ in range(4):
        nodes[0].still_until = run.network.now + 5 * SECOND
        run.advance(8)
        assert leader(run) == 0
    run.duration = 200, 201
    run.kill(nodes[0])
    run.advance(12)
    assert leader(run) in (1, 2)


def test_a_claim_that_failed_for_want_of_a_majority_is_repeated_as_soon_as_there_is_one() -> None:
    run, nodes = bereft()
    run.network.cut = {("node1:4152", "node2:4152"), ("node2:4152", "node1:4152")}
    run.advance(150)  # the pauses have become long
    assert leader(run) == 0
    assert nodes[1].elections.figures()["logs"][0]["reason"] == "no majority has voted for it"
    run.network.cut = set()
    while 2 not in nodes[1].cluster.links:
        run.advance(0.5)
    run.advance(10)
    assert leader(run) in (1, 2)


def test_a_longer_replica_wins_though_its_elections_failed_in_a_partition() -> None:
    run, nodes = bereft()
    nodes[2].disk.replicas[LOG].end += 1
    run.network.cut = {("node1:4152", "node2:4152"), ("node2:4152", "node1:4152")}
    run.advance(150)
    assert nodes[2].elections.cases.by_log[LOG].failures >= PATIENT
    run.network.cut = set()
    while 2 not in nodes[1].cluster.links:
        run.advance(0.5)
    nodes[2].elections.cases.by_log[LOG].retry_at += 5 * SECOND  # the other one is the first candidate
    run.advance(20)
    assert leader(run) == 2


def test_a_log_without_a_candidate_shows_the_reason() -> None:
    def reason(node: ElectionNode) -> str:
        return {log["log_id"]: log["reason"] for log in node.elections.figures()["logs"]}[LOG.hex()]

    run, nodes = started(Quorum.NONE)
    assert reason(nodes[1]) == ""
    run.kill(nodes[0])
    run.advance(10)
    assert "an operator may order" in reason(nodes[1])
    run, nodes = started()
    nodes[1].still_until = nodes[2].still_until = run.network.now + 9 * SECOND
    run.kill(nodes[0])
    run.advance(20)
    why = r"the copy here may lack messages: it is promoted in \d\d s \(-unclean-after\)"
    assert re.fullmatch(why, reason(nodes[1]))


def test_a_leader_that_gave_the_log_up_or_is_forgotten_is_not_waited_for() -> None:
    run, nodes = started()
    for node in nodes:
        node.witnesses = lambda number, then: then(0)  # an nsqlookupd hears the leader, and is not asked
    nodes[0].cluster.step_down(LOG)
    run.advance(15)
    assert leader(run) in (1, 2)
    run, nodes = started()
    nodes[0].cluster.announce_restart(30_000)
    run.network.collect(nodes[0])
    run.advance(0.5)
    run.kill(nodes[0])
    run.advance(10)
    assert leader(run) == 0
    nodes[1].cluster.forget(0, nodes[1].now)
    run.advance(10)
    assert leader(run) == 1


def test_an_nsqlookupd_in_contact_with_the_leader_postpones_an_election() -> None:
    run, nodes = started()
    for node in nodes:
        node.witnesses = lambda number, then: then(SECOND)
    run.kill(nodes[0])
    run.advance(30)
    assert leader(run) == 0
    assert nodes[1].elections.candidate.postponed > 1
    assert nodes[1].elections.candidate.failed == 0
    assert LOG not in nodes[1].cluster.leaders.votes
    nodes[2].witnesses = lambda number, then: None  # no answer
    run.advance(20)
    assert leader(run) == 2


def test_a_word_of_an_nsqlookupd_that_comes_late_stops_nothing() -> None:
    run, nodes = started()
    words: list[Callable[[int | None], None]] = []
    nodes[1].witnesses = lambda number, then: words.append(then)
    nodes[2].witnesses = lambda number, then: then(0)
    run.duration = 60_000, 60_001
    run.kill(nodes[0])
    run.advance(5 + 3)
    attempt = nodes[1].elections.candidate.attempt
    assert attempt.is_won
    words[0](0)
    assert nodes[1].elections.candidate.attempt is attempt


def test_a_promotion_that_failed_is_tried_again_after_a_pause() -> None:
    run, nodes = started()
    run.failing = 1.0
    run.kill(nodes[0])
    run.advance(15)
    assert leader(run) == 0
    run.failing = 0.0
    run.advance(60)
    assert leader(run) in (1, 2)


def test_a_voter_that_opens_its_replica_grants_nothing_as_it_may_have_the_longest() -> None:
    run, nodes = started()
    found = nodes[1].replicas
    nodes[1].replicas = lambda: [replace(one, end=0, is_complete=False, is_opening=True) for one in found()]
    run.kill(nodes[0])
    run.advance(60)
    assert leader(run) == 0
    nodes[1].replicas = found
    run.advance(30)
    assert leader(run) in (1, 2)


def test_a_promotion_is_called_off_when_the_leader_is_back_before_its_epoch_has_begun() -> None:
    run, nodes = started()
    nodes[0].still_until = run.network.now + 12 * SECOND
    run.duration = 60_000, 60_001
    run.advance(9)
    assert nodes[1].promoting is not None
    run.advance(5)
    assert nodes[1].promoting is None
    assert nodes[1].elections.candidate.called_off == 1
    assert leader(run) == 0
    run.duration = 200, 201
    run.kill(nodes[0])
    run.advance(15)
    assert leader(run) in (1, 2)


def test_a_number_far_above_what_is_known_is_promised_in_steps() -> None:
    run, nodes = bereft(Quorum.NONE)
    run.advance(7)
    lost = nodes[2].cluster.leaders.epochs[LOG]
    number = 1 + 2 * MOST_AHEAD + 1
    answered = []
    for kept in (1 + MOST_AHEAD, 1 + 2 * MOST_AHEAD, number):
        request = ElectionFrame(LOG, number, 1, lost, LogExtent(lost, 1 << 40), 0, Stage.CLEAN)
        nodes[1].cluster.links[2].send_first(pack_vote_request(request))
        run.network.collect(nodes[1])
        run.advance(1)
        assert nodes[2].cluster.leaders.votes[LOG] == Vote(kept, 1)
        answered.append((number, 1) in run.voted[2, LOG])
    assert answered == [False, False, True]


def test_a_number_that_was_promised_to_a_node_that_is_gone_is_outbid_in_steps() -> None:
    run, nodes = bereft()
    nodes[2].cluster.is_leaving = True
    nodes[2].cluster.leaders.vote(LOG, Vote(3 * MOST_AHEAD, 7))
    run.advance(60)
    assert leader(run) == 1


def test_a_voter_that_cannot_promise_and_comes_no_nearer_is_not_asked_in_haste(monkeypatch: pytest.MonkeyPatch) -> None:
    run, nodes = bereft()
    voter = nodes[2].elections.voter
    monkeypatch.setattr(voter, "_answer", lambda *claimed: Answer.CANNOT)
    nodes[2].cluster.is_leaving = True
    nodes[2].cluster.leaders.vote(LOG, Vote(1, 2))
    run.advance(60)
    assert 2 < nodes[1].elections.candidate.failed < 15


def test_only_the_leader_says_who_counts() -> None:
    run, nodes = started()
    lost = nodes[2].cluster.leaders.epochs[LOG]
    before = nodes[2].elections.cases.by_log[LOG].in_sync
    for epoch in (lost, Epoch(9, 1, bytes(8))):
        in_sync = InSyncReplicas(LOG, epoch, 1 << 40, frozenset({2}), True)
        nodes[1].cluster.links[2].send_first(pack_in_sync(in_sync))
    run.network.collect(nodes[1])
    run.advance(0.3)
    assert nodes[2].elections.cases.by_log[LOG].in_sync == before


def test_a_follower_that_stood_still_counts_again_when_its_leader_says_so_again() -> None:
    _, nodes = started()
    leader, follower = nodes[0], nodes[1]
    assert follower.elections.cases.by_log[LOG].is_fresh
    follower.elections.tick(follower.now + 4 * SECOND)
    assert not follower.elections.cases.by_log[LOG].is_fresh
    link, naming = leader.cluster.links[1], leader.naming[LOG]
    words = link, InSyncReplicas(LOG, leader.serving[LOG], naming.position, naming.named, True)
    leader.elections.send_in_sync(*words)
    size = len(link.output)
    leader.elections.send_in_sync(*words)
    assert len(link.output) == size  # it is no news
    leader.elections.cases.now += elections.REPEAT
    leader.elections.send_in_sync(*words)
    assert len(link.output) > size
    follower.cluster.links[0].receive(bytes(link.output), follower.now)
    assert follower.elections.cases.by_log[LOG].is_fresh


def test_what_was_sent_over_a_connection_that_is_gone_is_forgotten() -> None:
    run, nodes = started()
    assert {number for number, _ in nodes[0].elections._sent.items()} == {1, 2}
    before = nodes[0].elections._sent[1]
    run.kill(nodes[1])
    run.kill(nodes[2])
    run.advance(8)
    assert nodes[0].elections._sent == {}
    run.start(1)
    run.advance(10)
    link, logs = nodes[0].elections._sent[1]
    assert link is not before[0]
    assert LOG in logs
    nodes[0].cluster.drop_log(LOG)
    nodes[0].elections.tick(nodes[0].now)
    assert logs == {}


@each("quorum", [Quorum.MAJORITY, Quorum.ANY])
def test_a_reachable_node_that_replies_late_is_waited_for(quorum: Quorum) -> None:
    run, nodes = started(quorum, 5)
    nodes[2].disk.replicas[LOG].end += 1
    run.kill(nodes[0])
    while not (nodes[1].elections.candidate.attempt and nodes[1].elections.candidate.attempt.has_asked):
        run.advance(0.1)
    nodes[2].still_until = run.network.now + 4 * SECOND
    run.advance(20)
    assert leader(run) == 2


@each("quorum", [Quorum.MAJORITY, Quorum.ANY])
def test_a_reachable_node_that_never_replies_holds_no_log_up(quorum: Quorum) -> None:
    run, nodes = bereft(quorum, 5)
    run.duration = 200, 201
    nodes[3].write = lambda: None  # its disk hangs
    run.advance(14)
    assert leader(run) == 1

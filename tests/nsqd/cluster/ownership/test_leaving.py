"""A node that leaves: what it waits for, whom it asks to lead its logs, and when it has left or gives up."""

from collections.abc import Callable
from typing import Self

import pytest

from nsqd.cluster.ownership.cases import Quorum
from nsqd.cluster.ownership.leaving import ASK_AGAIN, Leaving, LeavingState, Transfers, pack_transfer
from nsqd.cluster.wire.node_identity import Standing
from nsqd.core.message.epoch import Epoch
from tests.cases import each
from tests.nsqd.cluster.network import SECOND
from tests.nsqd.cluster.ownership.election_run import UNCLEAN_AFTER, ElectionNode, ElectionRun
from tests.nsqd.cluster.ownership.test_elections import LOG, leader, started

LIMIT = 60 * SECOND


class Leaver:
    """Node 0 of a cluster, which leaves. What it knows becomes durable at once. Implements LeavingNode."""

    def __init__(self, quorum: Quorum = Quorum.MAJORITY, size: int = 3) -> None:
        self.run, self.nodes = started(quorum, size)
        self.node = self.nodes[0]
        self.begun: list[None] = []
        self.ended: list[bool] = []
        self.transferred: list[tuple[bytes, bool]] = []  # and whether others may promote it by then
        self.promoted: list[bytes] = []  # logs that it is taking over
        self.only_here: list[bytes] | None = []  # logs that are not settled
        self.whole: tuple[int, ...] = ()  # who has all of the log
        self.clients_have = 0
        self.leaving = Leaving(self.node.cluster, lambda then: then(True), self.node.elections, self)
        self.node.cluster.add(self.leaving)
        for node in self.nodes[1:]:
            _receives_transfers(node)
        self.run.fenced = lambda node, log_id, epoch: None

    def begin(self, limit: int = LIMIT) -> Self:
        self.leaving.begin(limit, self.node.now)
        return self

    def advance(self, seconds: float, *whole: int, in_flight: int = 0) -> None:
        for _ in range(int(seconds * 4)):
            self.tick(*whole, in_flight=in_flight)
            self.run.advance(0.25)

    def tick(self, *whole: int, in_flight: int = 0) -> None:
        self.whole, self.clients_have = whole, in_flight
        self.leaving.tick(self.node.now)

    def hold(self) -> None:
        self.begun.append(None)

    def in_flight(self) -> int:
        return self.clients_have

    def whole_followers(self) -> dict[bytes, tuple[int, ...]]:
        return {LOG: self.whole}

    def promoting(self) -> list[bytes]:
        return self.promoted

    def unsettled(self) -> list[bytes] | None:
        return self.only_here

    def transfer(self, log_id: bytes) -> None:
        self.transferred.append((log_id, log_id in self.node.cluster.leaders.stepped_down))

    def end(self, leaving: Leaving) -> None:
        self.ended.append(leaving.state is LeavingState.LEFT)


def _receives_transfers(node: ElectionNode) -> None:
    transfers = Transfers(node.cluster, node.elections)
    node.cluster.add(transfers)
    tick: Callable[[int], None] = node.elections.tick

    def both(now: int) -> None:
        transfers.tick(now)
        tick(now)

    node.elections.tick = both


@pytest.mark.parametrize("quorum", list(Quorum))
def test_a_log_is_handed_over_at_once_whatever_the_quorum_and_then_the_node_has_left(quorum: Quorum) -> None:
    leaver = Leaver(quorum).begin()
    leaver.leaving.begin(1, leaver.node.now)
    assert len(leaver.begun) == 1
    leaver.advance(16, 2, 1)
    assert (leaver.ended, leaver.transferred[0]) == ([True], (LOG, False))
    assert leaver.leaving.state is LeavingState.LEFT
    others = [node.cluster for node in leaver.nodes[1:]]
    assert {one.leaders.epochs[LOG].node for one in others} <= ({2} if quorum is Quorum.NONE else {1, 2})
    assert all(one.membership.records[0].standing is Standing.LEFT for one in others)
    assert all(0 not in one.links for one in others)
    assert [one.refusals for one in others] == [{}, {}], "it may not connect, and nothing is wrong with that"
    assert [node.number for node in others[0].membership.members] == [1, 2]


def test_what_is_in_flight_is_waited_for_but_not_for_ever() -> None:
    leaver = Leaver().begin()
    leaver.advance(25, 1, 2, in_flight=3)
    figures = leaver.leaving.figures()
    assert (figures["state"], figures["in_flight"]) == ("waiting", 3)
    assert figures["logs"] == [{"log_id": LOG.hex(), "asked": None}]
    assert leader(leaver.run) == 0
    leaver.advance(10, 1, 2, in_flight=1)
    assert leaver.leaving.figures()["state"] != "waiting"


def test_a_log_that_no_other_node_has_completely_is_kept_and_the_node_gives_up() -> None:
    leaver = Leaver().begin()
    leaver.advance(45)
    assert leaver.ended == []
    assert leader(leaver.run) == 0
    assert leaver.node.cluster.leaders.holds(LOG), "it was not given up either"
    leaver.advance(20)
    assert leaver.ended == [False]
    assert leaver.node.cluster.membership.records[0].standing is Standing.MEMBER
    leaver.advance(2)
    assert leaver.ended == [False]


def test_a_node_without_a_connection_has_not_left() -> None:
    leaver = Leaver().begin()
    while leaver.node.cluster.leaders.epochs[LOG].node == 0:
        leaver.advance(0.25, 1, 2)
    assert leaver.ended == []
    pairs = [(leaver.node.own.address, other.own.address) for other in leaver.nodes[1:]]
    leaver.run.network.cut = {*pairs, *((there, here) for here, there in pairs)}
    leaver.node.cluster.links.clear()
    leaver.advance(70, 1, 2)
    assert leaver.ended == [False]
    assert leaver.leaving.figures()["logs"] == []


def test_another_node_is_asked_if_the_first_one_does_nothing() -> None:
    leaver = Leaver(Quorum.NONE)
    leaver.run.failing = 1.0
    leaver.begin()
    asked = []
    for _ in range(3):
        leaver.advance(0.25, 1, 2)
        asked.append(leaver.leaving.figures()["logs"][0]["asked"])
        leaver.advance(ASK_AGAIN / SECOND, 1, 2)
    assert asked == [1, 2, 1]


def test_only_the_leader_can_ask_for_a_claim_and_nothing_is_claimed_before_it_gives_the_log_up() -> None:
    run, nodes = started(Quorum.NONE)
    _receives_transfers(nodes[1])
    epoch = nodes[0].cluster.leaders.epochs[LOG]
    nodes[2].cluster.links[1].send_first(pack_transfer(LOG, epoch))
    nodes[0].cluster.links[1].send_first(pack_transfer(LOG, epoch._replace(number=epoch.number + 1)))
    nodes[0].cluster.links[1].send_first(pack_transfer(LOG, epoch))  # and it has not given the log up
    run.advance(20)
    assert leader(run) == 0
    assert nodes[1].elections.candidate.failed == 0
    nodes[0].cluster.step_down(LOG)
    run.advance(2)
    nodes[2].cluster.links[1].send_first(pack_transfer(LOG, epoch))
    run.advance(20)
    assert leader(run) == 0
    nodes[0].cluster.links[1].send_first(pack_transfer(LOG, epoch))
    run.fenced = lambda node, log_id, epoch: None
    run.advance(20)
    assert nodes[1].cluster.leaders.epochs[LOG].node == 1


def test_a_log_that_is_led_and_not_copied_yet_is_waited_for() -> None:
    leaver = Leaver()
    other = (7).to_bytes(16)
    leaver.node.cluster.announce_leader(other, Epoch(3, 0, bytes(8)))  # and it is being opened again
    leaver.begin()
    leaver.advance(20, 1, 2)
    assert leaver.node.cluster.leaders.epochs[LOG].node != 0
    assert leaver.leaving.figures()["logs"] == [{"log_id": other.hex(), "asked": None}]
    assert leaver.ended == []
    leaver.advance(45, 1, 2)
    assert leaver.ended == [False]


def test_a_promotion_that_was_not_announced_is_waited_for() -> None:
    leaver = Leaver()
    leaver.promoted.append((7).to_bytes(16))
    leaver.begin()
    leaver.advance(20, 1, 2)
    assert leaver.leaving.figures()["state"] == "handing over"
    leaver.promoted.clear()
    leaver.advance(1, 1, 2)
    assert leaver.ended == [True]


def test_a_node_that_leaves_claims_nothing() -> None:
    run, nodes = started()
    run.kill(nodes[0])
    while nodes[1].elections.candidate.attempt is None:
        run.advance(0.1)
    assert not nodes[1].elections.candidate.attempt.is_won
    nodes[1].cluster.is_leaving = True
    run.advance(1)
    assert nodes[1].elections.candidate.attempt is None
    with pytest.raises(KeyError):
        nodes[1].elections.promote(LOG)
    run.advance(30)
    assert leader(run) == 2
    assert nodes[1].elections.candidate.attempt is None


def test_two_nodes_that_leave_do_not_hand_their_logs_to_each_other() -> None:
    leaver = Leaver(size=2)
    second = Leaving(leaver.nodes[1].cluster, lambda then: then(True), leaver.nodes[1].elections, leaver)
    second.begin(LIMIT, leaver.node.now)
    leaver.begin()
    leaver.advance(30, 1)
    assert leaver.leaving.figures()["logs"] == [{"log_id": LOG.hex(), "asked": 1}]
    assert leader(leaver.run) == 0
    assert leaver.nodes[1].elections.candidate.failed == 0


def _one_lags(run: ElectionRun, nodes: list[ElectionNode]) -> None:
    """Node 2 has 1000 bytes that node 1 lacks, and is cut off; nothing is written or copied any more."""
    node, whole = nodes[0], nodes[2]
    run.stream = lambda leader, log_id: None
    node.disk.led[LOG].end += 1000
    whole.disk.replicas[LOG] = node.disk.led[LOG].copy()
    node.own_extent = lambda log_id: node.disk.led[log_id].extent
    pairs = [(one.own.address, whole.own.address) for one in nodes[:2]]
    run.network.cut = {*pairs, *((there, here) for here, there in pairs)}
    run.advance(8)


def test_a_node_that_leaves_votes_for_no_node_that_lacks_a_part_of_its_log() -> None:
    leaver = Leaver()
    run, leaving = leaver.run, leaver.leaving
    leaving.begin(LIMIT, leaver.node.now)
    leaver.tick(2)
    assert leaver.node.cluster.leaders.stepped_down == {LOG: 2}
    _one_lags(run, leaver.nodes)
    run.advance(UNCLEAN_AFTER / SECOND + 10)
    assert leaver.node.cluster.leaders.epochs[LOG].node == 0
    assert leaver.nodes[1].elections.candidate.failed > 1
    run.network.cut = set()
    run.advance(100)
    assert leader(run) == 2


def test_a_node_that_leaves_promises_its_log_to_the_node_that_it_asked() -> None:
    leaver = Leaver(size=2)
    leaver.run.stream = lambda leader, log_id: None
    leaver.nodes[1].disk.replicas[LOG] = leaver.node.disk.led[LOG].copy()
    leaver.node.cluster.step_down(LOG, 5)
    leaver.run.advance(20)
    assert leader(leaver.run) == 0
    leaver.node.cluster.step_down(LOG, 1)
    leaver.run.advance(60)
    assert leader(leaver.run) == 1


def test_a_leader_with_a_broken_disk_votes_for_no_node_that_lacks_a_part_before_that_must_be() -> None:
    run, nodes = started()
    run.fenced = lambda node, log_id, epoch: None
    _one_lags(run, nodes)
    nodes[0].cluster.step_down(LOG)
    run.advance(UNCLEAN_AFTER / SECOND - 5)
    assert nodes[0].cluster.leaders.epochs[LOG].node == 0
    assert nodes[1].elections.candidate.failed > 1
    run.advance(60)
    assert nodes[0].cluster.leaders.epochs[LOG].node == 1


@pytest.mark.parametrize("is_whole", [True, False])
def test_a_node_that_was_cut_off_has_not_left_if_who_took_its_log_over_may_lack_a_part_of_it(is_whole: bool) -> None:
    leaver = Leaver()
    run, leaving = leaver.run, leaver.leaving
    run.stream = lambda leader, log_id: None
    leaving.begin(20 * LIMIT, leaver.node.now)
    leaver.advance(1, *((1, 2) if is_whole else ()), in_flight=1)
    pairs = [(leaver.node.own.address, one.own.address) for one in leaver.nodes[1:]]
    run.network.cut = {*pairs, *((there, here) for here, there in pairs)}
    leaver.advance(60, in_flight=1)
    assert leaver.nodes[1].cluster.leaders.epochs[LOG].node != 0
    assert leaver.ended == []
    run.network.cut = set()
    leaver.advance(60)
    assert (leaver.ended, leaving.lacking) == ([is_whole], [] if is_whole else [LOG])
    assert leaving.state is (LeavingState.LEFT if is_whole else LeavingState.GAVE_UP)
    standing = Standing.LEFT if is_whole else Standing.MEMBER
    assert leaver.nodes[1].cluster.membership.records[0].standing is standing


def test_a_node_has_left_too_if_another_one_with_all_of_its_log_was_faster_than_the_one_that_it_asked() -> None:
    leaver = Leaver().begin()
    leaver.tick(2)
    pair = leaver.node.own.address, leaver.nodes[2].own.address
    leaver.run.network.cut = {pair, pair[::-1]}
    leaver.advance(30)
    assert leader(leaver.run) == 1
    leaver.run.network.cut = set()
    leaver.advance(20)
    assert leaver.ended == [True]


def test_leaderless_logs_of_dead_nodes_are_named_and_waited_for() -> None:
    leaver = Leaver(Quorum.NONE)
    other_log = (2).to_bytes(16)
    leaver.begin()
    leaver.advance(1, in_flight=1)
    assert leaver.leaving.figures()["leaderless"] == []
    leaver.run.kill(leaver.nodes[2])
    for seconds, is_known in ((0.25, False), (10, True)):
        leaver.advance(seconds, in_flight=1)
        leaver.tick(in_flight=1)
        assert leaver.leaving.figures()["leaderless"] == [other_log.hex()]
        assert leaver.node.elections.has_unserved_log() == is_known
    leaver.advance(30, 1)
    assert leaver.node.cluster.leaders.epochs[LOG].node == 1
    assert leaver.ended == []
    leaver.nodes[1].elections.promote(other_log)
    leaver.advance(10, in_flight=1)
    assert leaver.nodes[1].cluster.leaders.epochs[other_log].node == 1
    assert leaver.leaving.figures()["leaderless"] == []
    assert not leaver.node.elections.has_unserved_log()
    leaver.tick()
    assert leaver.ended == [True]


@each("only_here", [None, [(2).to_bytes(16)]])
@each("is_settled", [True, False])
def test_a_node_with_perhaps_the_only_copy_of_messages_leaves_once_another_one_has_them_or_gives_up(
    only_here: list[bytes] | None, is_settled: bool
) -> None:
    leaver = Leaver().begin()
    leaver.only_here = only_here
    leaver.advance(30, 1)
    assert leader(leaver.run) == 1
    assert leaver.ended == []
    assert leaver.leaving.figures()["lacking"] == [one.hex() for one in only_here or ()]
    leaver.only_here = [] if is_settled else only_here
    leaver.advance(31, 1)
    assert leaver.ended == [is_settled]

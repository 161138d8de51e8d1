"""A node that leaves: what it waits for, whom it asks to own its logs, and when it has left or gives up."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from nsqd.cluster.claims import Quorum
from nsqd.cluster.leaving import ASK_AGAIN, Followed, Handovers, Leaving, LeavingState, best_first
from nsqd.cluster.membership import Standing
from nsqd.core.message.epoch import Epoch
from nsqd.protocols.peer.frames import PeerError
from nsqd.protocols.peer.handover import pack_handover, unpack_handover
from tests.nsqd.cluster.claims_run import ClaimNode
from tests.nsqd.cluster.network import SECOND
from tests.nsqd.cluster.test_claims import LOG, owner, started

LIMIT = 60 * SECOND
HEAD = 5  # bytes of a frame before its content


class Leaver:
    """Node 0 of a cluster, which leaves. What it knows becomes durable at once."""

    def __init__(self, quorum: Quorum = Quorum.MAJORITY, size: int = 3) -> None:
        self.run, self.nodes = started(quorum, size)
        self.node = self.nodes[0]
        self.begun: list[None] = []
        self.ended: list[bool] = []
        self.leaving = Leaving(self.node.cluster)
        self.leaving.keep = lambda then: then(True)
        self.leaving.on_begin, self.leaving.on_end = lambda: self.begun.append(None), self.ended.append
        for node in self.nodes[1:]:
            _hears_handovers(node)
        self.run.fenced = lambda node, log_id, epoch: None  # type: ignore[method-assign]

    def advance(self, seconds: float, *whole: int, in_flight: int = 0) -> None:
        for _ in range(int(seconds * 4)):
            self.leaving.tick(self.node.now, in_flight, [Followed(LOG, whole)])
            self.run.advance(0.25)


def _hears_handovers(node: ClaimNode) -> None:
    handovers = Handovers(node.cluster, node.claims)
    tick: Callable[[int], None] = node.claims.tick

    def both(now: int) -> None:
        handovers.tick(now)
        tick(now)

    node.claims.tick = both  # type: ignore[method-assign]


@pytest.mark.parametrize("quorum", list(Quorum))
def test_a_log_is_handed_over_at_once_whatever_the_quorum_and_then_the_node_has_left(quorum: Quorum) -> None:
    leaver = Leaver(quorum)
    leaver.leaving.begin(LIMIT, leaver.node.now)
    leaver.leaving.begin(1, leaver.node.now)
    assert len(leaver.begun) == 1
    leaver.advance(12, 2)
    assert leaver.ended == [True]
    assert leaver.leaving.state is LeavingState.LEFT
    others = [node.cluster for node in leaver.nodes[1:]]
    assert {one.ownership.epochs[LOG].node for one in others} <= {1, 2}
    assert all(one.membership.words[0].standing is Standing.LEFT for one in others)
    assert all(0 not in one.links for one in others)
    assert [node.number for node in others[0].membership.members] == [1, 2]


def test_without_a_quorum_the_node_that_was_asked_owns_the_log() -> None:
    leaver = Leaver(Quorum.NONE)
    leaver.leaving.begin(LIMIT, leaver.node.now)
    leaver.advance(12, 2)
    assert leaver.nodes[1].cluster.ownership.epochs[LOG].node == 2


def test_what_is_in_flight_is_waited_for_but_not_for_ever() -> None:
    leaver = Leaver()
    leaver.leaving.begin(LIMIT, leaver.node.now)
    leaver.advance(25, 1, 2, in_flight=3)
    assert leaver.leaving.figures() == {
        "state": "waiting",
        "in_flight": 3,
        "logs": [{"log_id": LOG.hex(), "asked": None}],
    }
    assert owner(leaver.run) == 0
    leaver.advance(10, 1, 2, in_flight=1)
    assert leaver.leaving.figures()["state"] != "waiting"


def test_a_log_of_which_nobody_has_everything_is_kept_and_the_node_gives_up() -> None:
    leaver = Leaver()
    leaver.leaving.begin(LIMIT, leaver.node.now)
    leaver.advance(45)
    assert leaver.ended == []
    assert owner(leaver.run) == 0
    assert leaver.node.cluster.ownership.holds(LOG), "it was not given up either"
    leaver.advance(20)
    assert leaver.ended == [False]
    assert leaver.node.cluster.membership.words[0].standing is Standing.MEMBER
    leaver.advance(2)
    assert leaver.ended == [False]


def test_another_node_is_asked_if_the_first_one_does_nothing() -> None:
    leaver = Leaver(Quorum.NONE)
    leaver.run.failing = 1.0
    leaver.leaving.begin(LIMIT, leaver.node.now)
    asked = []
    for _ in range(3):
        leaver.advance(0.25, 1, 2)
        asked.append(leaver.leaving.figures()["logs"][0]["asked"])
        leaver.advance(ASK_AGAIN / SECOND, 1, 2)
    assert asked == [1, 2, 1]


def test_only_the_owner_can_ask_for_a_claim_and_nothing_is_claimed_while_it_goes_on() -> None:
    run, nodes = started()
    _hears_handovers(nodes[1])
    epoch = nodes[0].cluster.ownership.epochs[LOG]
    nodes[2].cluster.links[1].send_claiming(pack_handover(LOG, epoch))
    nodes[0].cluster.links[1].send_claiming(pack_handover(LOG, epoch._replace(number=epoch.number + 1)))
    nodes[0].cluster.links[1].send_claiming(pack_handover(LOG, epoch))  # and it has not given the log up
    run.advance(20)
    assert owner(run) == 0
    assert nodes[1].claims.claimant.failed == 0


def test_the_followers_that_count_are_asked_first() -> None:
    followers = [(1, False, 100), (2, True, 99), (3, True, 100), (4, True, 100)]
    assert best_first(followers, 100) == (3, 4, 1)


def test_the_frame_is_read_as_it_was_packed_and_others_are_refused() -> None:
    epoch = Epoch(7, 3, b"01234567")
    assert unpack_handover(pack_handover(LOG, epoch)[HEAD:]) == (LOG, epoch)
    for content in (b"", pack_handover(LOG, epoch)[HEAD:-1], pack_handover(LOG, epoch._replace(node=1024))[HEAD:]):
        with pytest.raises(PeerError):
            unpack_handover(content)


def test_another_node_cannot_ask_for_a_claim_on_a_log_that_its_owner_gave_up() -> None:
    run, nodes = started(Quorum.NONE)
    _hears_handovers(nodes[1])
    epoch = nodes[0].cluster.ownership.epochs[LOG]
    nodes[0].cluster.give_up_log(LOG)
    run.advance(2)
    nodes[2].cluster.links[1].send_claiming(pack_handover(LOG, epoch))
    run.advance(20)
    assert owner(run) == 0
    nodes[0].cluster.links[1].send_claiming(pack_handover(LOG, epoch))
    run.fenced = lambda node, log_id, epoch: None  # type: ignore[method-assign]
    run.advance(20)
    assert nodes[1].cluster.ownership.epochs[LOG].node == 1

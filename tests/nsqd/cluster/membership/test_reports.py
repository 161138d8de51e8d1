"""Records that other nodes report: which are accepted at once, which wait, and which are impossible."""

from types import SimpleNamespace
from typing import Any

from nsqd.cluster.membership.members import Membership
from nsqd.cluster.membership.reports import MOST_RUNS_AHEAD, Reports
from nsqd.cluster.wire.node_identity import Member, Standing
from tests.nsqd.cluster.wire.identities import node

SUSPECT_AFTER = 6_000_000_000  # ns
NEXT_RUN = Member(node(1, incarnation=2, log=7))
LEFT = Member(node(1), Standing.LEFT)


class Side:
    """Node 0, which knows nodes 1 and 2, and is connected to both."""

    def __init__(self) -> None:
        self.membership = Membership(node(0), SUSPECT_AFTER)
        self.membership.merge([Member(node(1)), Member(node(2))], 0)
        self.links: dict[int, Any] = {number: SimpleNamespace(peer=node(number)) for number in (1, 2)}
        self.reports = Reports(node(0), self.membership, self.links)
        for number in self.links:
            self.reports.connected(number)

    def accepted(self, number: int, record: Member) -> list[Member]:
        """Return the records that are accepted after node `number` has reported one."""
        return self.reports.accepted(self.reports.possible(self.links[number], [record]))


def test_another_run_of_a_connected_node_is_accepted_when_its_connection_ends() -> None:
    side = Side()
    assert side.accepted(2, NEXT_RUN) == []
    assert side.accepted(2, Member(node(1, incarnation=1, log=8))) == [], "an earlier record does not replace it"
    assert side.reports.disconnected(1, True) == [NEXT_RUN]
    assert side.reports.disconnected(1, True) == []
    del side.links[1]
    assert side.accepted(2, NEXT_RUN) == [NEXT_RUN]


def test_another_run_is_not_accepted_if_the_node_is_forgotten_meanwhile() -> None:
    side = Side()
    side.accepted(2, NEXT_RUN)
    side.reports.forget(1)
    assert side.reports.disconnected(1, True) == []


def test_that_a_connected_node_is_gone_is_accepted_from_itself_or_when_it_is_suspected() -> None:
    side = Side()
    assert side.accepted(1, LEFT) == [LEFT]
    assert side.accepted(2, LEFT) == []
    assert side.reports.suspected() == []
    side.membership.check_silence(SUSPECT_AFTER + 1)
    assert side.reports.suspected() == [LEFT]
    assert side.reports.suspected() == []


def test_that_a_node_is_gone_is_forgotten_when_it_proves_that_it_is_there() -> None:
    side = Side()
    side.accepted(2, LEFT)
    side.reports.connected(1)
    side.membership.check_silence(SUSPECT_AFTER + 1)
    assert side.reports.suspected() == []


def test_a_run_is_over_if_its_node_has_closed_the_connection_and_is_at_the_same_address() -> None:
    side = Side()
    here, elsewhere = node(1, incarnation=2), node(1, incarnation=2, address="other:4152")
    assert not side.reports.has_ended(node(1), here)
    side.reports.disconnected(1, False)
    assert not side.reports.has_ended(node(1), here)
    side.reports.disconnected(1, True)
    assert side.reports.has_ended(node(1), here)
    assert not side.reports.has_ended(node(1), elsewhere)


def test_an_incarnation_far_above_the_known_ones_and_a_log_of_another_node_are_not_accepted() -> None:
    side = Side()
    assert side.accepted(2, Member(node(3, incarnation=MOST_RUNS_AHEAD + 2))) == []
    assert side.accepted(2, Member(node(3, incarnation=MOST_RUNS_AHEAD + 1))) != []
    assert side.accepted(2, Member(node(3, log=1))) == []

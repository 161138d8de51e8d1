"""The leader of a log decides about copies with more than the log has."""

from types import SimpleNamespace
from typing import Any

from nsqd.cluster.membership.leader_frames import make_closed
from nsqd.cluster.promotion.diverged.arbiter import PATIENCE, PUBLISHER_WITHIN, Arbiter
from nsqd.cluster.promotion.diverged.salvage_frames import Decision, SalvageReply, SalvageRequest
from nsqd.cluster.wire.node_identity import Member
from nsqd.core.message.epoch import Epoch
from nsqd.storage.log.followers import Followers
from tests.nsqd.cluster.network import Network
from tests.nsqd.cluster.wire.identities import node as identity

LOG = b"l" * 16
OLD, LOST, NEW = (Epoch(number, 1, bytes(8)) for number in (1, 2, 3))
# The leader lost what lies behind 500 of the epoch LOST, and goes on with NEW.
OWN = ((OLD, 0), (LOST, 400), (NEW, 500))
COPY = ((OLD, 0), (LOST, 400))


class FakeOrigin:
    """The copies of a log that asked for two copies, of which one follower has all."""

    def __init__(self) -> None:
        self.epochs, self.end, self.is_broken = OWN, 2000, False
        self.in_sync = SimpleNamespace(stated=Followers((2,), 2, 2), counting=frozenset({2}))
        self.copies = SimpleNamespace(asked=(0, 1))
        self.followers: dict[int, Any] = {2: SimpleNamespace(has_replica=True, durable=2000)}

    @property
    def source(self) -> SimpleNamespace:
        epochs = [(epoch.pack(), start) for epoch, start in self.epochs]
        return SimpleNamespace(epochs=lambda: epochs, end=self.end, is_broken=self.is_broken)


class Leader:
    """Node 1, the leader of a log, in a cluster with nodes 2 and 3."""

    def __init__(self) -> None:
        self.cluster = Network(3).start(1).cluster
        self.cluster.membership.merge([Member(identity(2)), Member(identity(3))], 0)
        self.leader_side, self.now, self.is_kept, self.serial = FakeOrigin(), 0, True, 0
        leader_sides = {LOG: self.leader_side}
        self.arbiter = Arbiter(self.cluster, leader_sides, lambda then: then(self.is_kept), lambda: self.now)

    def ask(self, number: int, end: int, taken: int | None = None, is_copied: bool = False, epochs: Any = COPY) -> Any:
        self.serial += 1
        answers: list[SalvageReply] = []
        self.arbiter.answer(number, SalvageRequest(self.serial, LOG, end, epochs, taken, is_copied), answers.append)
        if not answers:
            return None
        (answer,) = answers
        assert (answer.serial, answer.log_id) == (self.serial, LOG)
        return answer.decision, answer.start


def test_a_copy_is_salvaged_from_the_common_point_and_goes_when_both_parts_have_their_copies() -> None:
    leader = Leader()
    assert leader.ask(2, 900) == (Decision.SALVAGE, 500)
    assert leader.ask(2, 900, 500) == (Decision.WAIT, 500)  # the log made of it has no copy yet
    leader.leader_side.followers[2].durable = 499
    assert leader.ask(2, 900, 500, True) == (Decision.WAIT, 500)  # nor has what the leader has
    leader.leader_side.followers[2].durable = 500
    assert leader.ask(2, 900, 500, True) == (Decision.LET_GO, 900)


def test_a_copy_that_has_nothing_more_goes_only_when_the_log_has_its_copies() -> None:
    leader = Leader()
    leader.leader_side.in_sync.counting = frozenset()
    assert leader.ask(2, 480) == (Decision.WAIT, 480)
    leader.leader_side.in_sync.counting = frozenset({2})
    assert leader.ask(2, 480) == (Decision.LET_GO, 480)


def test_nothing_goes_before_what_was_salvaged_is_remembered_durably() -> None:
    leader = Leader()
    leader.is_kept = False
    assert leader.ask(2, 900, 500, True) == (Decision.WAIT, 500)


def test_a_second_node_waits_until_what_the_first_has_made_has_its_copies_and_takes_only_the_rest() -> None:
    leader = Leader()
    assert leader.ask(2, 900) == (Decision.SALVAGE, 500)
    assert leader.ask(3, 950) == (Decision.WAIT, 500)
    assert leader.ask(3, 900) == (Decision.WAIT, 500)
    assert leader.ask(2, 900, 500, True) == (Decision.LET_GO, 500)
    assert leader.ask(3, 900) == (Decision.LET_GO, 900)
    assert leader.ask(3, 950) == (Decision.SALVAGE, 900)


def test_a_node_without_heartbeats_is_not_waited_for() -> None:
    leader = Leader()
    assert leader.ask(2, 900) == (Decision.SALVAGE, 500)
    leader.now += PATIENCE - 1
    assert leader.ask(2, 900) == (Decision.SALVAGE, 500)  # it tries again: no progress
    assert leader.ask(3, 900) == (Decision.WAIT, 500)
    leader.now += 1
    assert leader.ask(3, 900) == (Decision.SALVAGE, 500)
    assert leader.ask(2, 900) == (Decision.WAIT, 500)


def test_a_node_that_has_made_a_log_is_waited_for_as_long_as_it_says_so() -> None:
    leader = Leader()
    assert leader.ask(2, 900) == (Decision.SALVAGE, 500)
    for _ in range(5):
        leader.now += PATIENCE - 1
        assert leader.ask(2, 900, 500) == (Decision.WAIT, 500)
    leader.now += PATIENCE - 1
    assert leader.ask(3, 900) == (Decision.WAIT, 500)


def test_a_leader_that_has_less_than_the_one_before_has_it_salvaged_once_more() -> None:
    leader = Leader()
    assert leader.ask(2, 900, 500, True) == (Decision.LET_GO, 500)
    leader.leader_side.epochs = ((OLD, 0), (LOST, 400), (Epoch(9, 2, bytes(8)), 450))
    assert leader.ask(2, 900, 500, True) == (Decision.SALVAGE, 450)
    assert leader.ask(3, 900) == (Decision.WAIT, 450)  # the tail salvaged from 500 on does not adjoin the leader's log


def test_what_is_not_the_same_epoch_is_not_had() -> None:
    leader = Leader()
    assert leader.ask(2, 900, 500, True) == (Decision.LET_GO, 500)
    other = (*COPY[:1], (Epoch(2, 1, b"another!"), 400))
    assert leader.ask(3, 900, epochs=other) == (Decision.SALVAGE, 400)


def test_a_log_that_is_not_open_here_or_whose_disk_fails_is_not_answered_about() -> None:
    leader = Leader()
    leader.leader_side.is_broken = True
    assert leader.ask(2, 900) is None
    leader.arbiter = Arbiter(leader.cluster, {}, lambda then: then(True), lambda: 0)
    assert leader.ask(2, 900) is None


def test_who_has_closed_a_log_still_knows_what_was_salvaged() -> None:
    leader = Leader()
    assert leader.ask(2, 900, 500, True) == (Decision.LET_GO, 500)
    leader.cluster.leaders.close(make_closed(LOG, 2000, list(OWN)))
    leader.arbiter = Arbiter(leader.cluster, {}, lambda then: then(True), lambda: 0)
    assert leader.ask(3, 900) == (Decision.LET_GO, 900)
    assert leader.ask(3, 480) == (Decision.LET_GO, 480)
    assert leader.ask(3, 950) == (Decision.SALVAGE, 900)


def test_a_log_that_another_node_has_closed_is_not_answered_about() -> None:
    leader = Leader()
    leader.cluster.leaders.close(make_closed(LOG, 2000, [*OWN, (Epoch(9, 2, bytes(8)), 1500)]))
    leader.arbiter = Arbiter(leader.cluster, {}, lambda then: then(True), lambda: 0)
    assert leader.ask(3, 900) is None


def leader_of_another_nodes_log() -> Leader:
    """Return node 1, which has promoted a log into which node 2 published, and is connected to that."""
    leader = Leader()
    leader.leader_side.epochs = ((Epoch(1, 2, bytes(8)), 0), *OWN[1:])
    leader.cluster.links[2] = "a link"
    return leader


def test_others_wait_until_the_node_that_published_has_asked_about_its_own_tail() -> None:
    leader = leader_of_another_nodes_log()
    epochs = leader.leader_side.epochs[:2]
    assert leader.ask(3, 900, epochs=epochs) == (Decision.WAIT, 500)
    assert leader.ask(2, 900, 500, epochs=epochs) == (Decision.WAIT, 500)
    assert leader.ask(3, 900, epochs=epochs) == (Decision.WAIT, 500)  # what it has made has no copies yet
    assert leader.ask(2, 900, 500, True, epochs=epochs) == (Decision.LET_GO, 500)
    assert leader.ask(3, 900, epochs=epochs) == (Decision.LET_GO, 900)
    assert leader.ask(3, 950, epochs=epochs) == (Decision.SALVAGE, 900)


def test_a_node_that_published_is_not_waited_for_if_it_is_away_or_says_nothing() -> None:
    for why in ("away", "says nothing", "asks itself"):
        leader = leader_of_another_nodes_log()
        epochs = leader.leader_side.epochs[:2]
        if why == "away":
            leader.cluster.links.clear()
        if why == "says nothing":
            assert leader.ask(3, 900, epochs=epochs) == (Decision.WAIT, 500)
            leader.now += PUBLISHER_WITHIN - 1
            assert leader.ask(3, 900, epochs=epochs) == (Decision.WAIT, 500)
            leader.now += 1
        assert leader.ask(2 if why == "asks itself" else 3, 900, epochs=epochs) == (Decision.SALVAGE, 500), why

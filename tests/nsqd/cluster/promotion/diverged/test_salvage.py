"""A node with a copy that holds more than its log asks the leader, salvages the copy, and removes it, in that order."""

from collections import Counter
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from nsqd.cluster.membership.leader_frames import Hold, Leadership, make_closed
from nsqd.cluster.promotion.diverged.directory import DivergedCopy
from nsqd.cluster.promotion.diverged.note import CopyExtent, Note
from nsqd.cluster.promotion.diverged.salvage import CHECK_EVERY, NO_LEADER, RETRY_AFTER, Salvage
from nsqd.cluster.promotion.diverged.salvage_frames import Decision, SalvageReply, SalvageRequest, pack_reply, unpack
from nsqd.cluster.replication.follower import AtOnce
from nsqd.cluster.replication.replicas import Kept
from nsqd.cluster.wire.frames import FrameKind, PeerError
from nsqd.cluster.wire.node_identity import Member, Standing
from nsqd.core.message.epoch import Epoch
from nsqd.storage.log.succession import Salvaged
from tests.nsqd.cluster.network import Network
from tests.nsqd.cluster.wire.identities import HEAD
from tests.nsqd.cluster.wire.identities import node as identity

LOG, MADE = b"l" * 16, b"m" * 16
OLD, LEADERS = Epoch(1, 2, bytes(8)), Epoch(2, 2, b"12345678")
HELD = CopyExtent(900, ((OLD, 0),))
NAME, OWN = f"replicas/{LOG.hex()}.diverged-1", f"diverged/{LOG.hex()}"
UNCLEAN_AFTER = 10 * CHECK_EVERY


class FakeDirectory:
    """One copy, of which a log is made or not."""

    def __init__(self) -> None:
        self.copies = {NAME: DivergedCopy(NAME, LOG, None)}
        self.made: Salvaged | None = Salvaged(MADE, 2, 3, Counter())
        self.deeds: list[Any] = []
        self.unfinished: list[bytes] = []
        self.error: OSError | None = None

    def finish(self) -> list[bytes]:
        return self.unfinished

    def found(self) -> list[DivergedCopy]:
        return list(self.copies.values())

    def read(self, name: str) -> CopyExtent:
        self._do("read")
        return HELD

    def salvage(self, name: str, held: CopyExtent, start: int) -> Salvaged | None:
        self._do(start)
        note = Note(self.made.log_id if self.made else b"", start, held)
        self.copies[name] = self.copies[name]._replace(note=note)
        return self.made

    def remove(self, name: str) -> None:
        self._do("remove")
        del self.copies[name]

    def _do(self, deed: object) -> None:
        if self.error is not None:
            raise self.error
        self.deeds.append(deed)


class FakeArbiter:
    def __init__(self) -> None:
        self.asked: list[tuple[int, SalvageRequest]] = []
        self.decision: tuple[Decision, int] | None = None  # the reply to the next request; None: none

    def answer(self, number: int, request: SalvageRequest, then: Callable[[SalvageReply], None]) -> None:
        self.asked.append((number, request))
        if self.decision is not None:
            decision, self.decision = self.decision, None
            then(SalvageReply(request.serial, request.log_id, *decision))


class Holder:
    """Node 1, with a copy of a log that node 2 led before its disk was replaced."""

    def __init__(self) -> None:
        self.cluster = Network(1).start(1).cluster
        self.cluster.membership.merge([Member(identity(2))], 0)
        self.cluster.leaders.learn(LOG, LEADERS)
        self.says(Hold.KNOWS)
        self.sent: list[bytes] = []
        self.link = SimpleNamespace(send_first=self.sent.append, node=identity(2))
        self.cluster.links[2] = self.link
        self.leader_sides: dict[bytes, Any] = {}
        self.replicas: dict[bytes, Any] = {LOG: "a replica that is resynced"}
        self.salvaged: list[bytes] = []
        self.led: set[bytes] = set()
        self.directory, self.arbiter, self.now = FakeDirectory(), FakeArbiter(), 0
        self.salvage = self.make()

    def says(self, hold: Hold) -> None:
        """Have node 2 report its relation to the log."""
        self.cluster.leaders.note_said(2, identity(2).incarnation, [Leadership(LOG, LEADERS, hold)])

    def make(self) -> Salvage:
        copying = SimpleNamespace(leader_sides=self.leader_sides, replicas=SimpleNamespace(kept=self.replicas))
        promotions = SimpleNamespace(serve_salvaged=self.salvaged.append, leads=self.led.__contains__)
        return Salvage(
            self.cluster, copying, promotions, self.arbiter, self.directory,
            AtOnce(), lambda: self.now, UNCLEAN_AFTER,
        )  # fmt: skip

    def look(self, ns: int = CHECK_EVERY) -> None:
        """Let so much time pass, and everything be done that is due then."""
        self.now += ns
        for _ in range(4):
            self.salvage.tick(self.now)

    def request(self) -> SalvageRequest:
        said = unpack(self.sent[-1][HEAD:])
        assert isinstance(said, SalvageRequest)
        return said

    def answer(self, decision: Decision, start: int = 0) -> None:
        reply = SalvageReply(self.request().serial, LOG, decision, start)
        self.salvage.receive(self.link, FrameKind.SALVAGE, pack_reply(reply)[HEAD:], 0)

    def serve(self, is_copied: bool) -> None:
        leader_side = SimpleNamespace(
            in_sync=SimpleNamespace(stated=SimpleNamespace(most=2), counting=frozenset({2})),
            copies=SimpleNamespace(asked=(0, 1)),
            followers={2: SimpleNamespace(has_replica=True, durable=950 if is_copied else 949)},
            source=SimpleNamespace(epochs=list, end=950),
        )
        self.leader_sides[MADE] = leader_side


def asking() -> Holder:
    holder = Holder()
    holder.look()
    return holder


def test_the_leader_is_asked_and_what_it_lacks_is_salvaged_before_the_copy_goes(
    caplog: pytest.LogCaptureFixture,
) -> None:
    holder = asking()
    assert holder.request()[1:] == (LOG, 900, HELD.epochs, None, False)
    assert holder.salvage.has_unserved_log()
    holder.answer(Decision.SALVAGE, 500)
    assert not holder.salvage.has_unserved_log(), "promotions.py has the log now"
    assert (holder.directory.deeds, holder.salvaged) == (["read", 500], [MADE])
    assert "salvaged 3 unfinished messages of the log" in caplog.text
    holder.look()
    assert holder.request()[4:] == (500, False)
    holder.serve(is_copied=False)
    holder.look()
    assert holder.request()[4:] == (500, False)
    holder.answer(Decision.WAIT)
    holder.serve(is_copied=True)
    holder.look()
    assert holder.request()[4:] == (500, True)
    assert holder.directory.copies
    holder.answer(Decision.LET_GO)
    assert (holder.directory.copies, holder.salvage.figures()) == ({}, [])


def test_a_tail_without_messages_is_only_noted() -> None:
    holder = Holder()
    holder.directory.made = None
    holder.look()
    holder.answer(Decision.SALVAGE, 500)
    holder.look()
    assert holder.salvaged == []
    assert holder.request()[4:] == (500, True)


def test_what_was_made_counts_as_copied_when_it_is_closed_or_another_node_leads_it() -> None:
    for is_closed in (True, False):
        holder = asking()
        holder.answer(Decision.SALVAGE, 500)
        if is_closed:
            holder.cluster.leaders.close(make_closed(MADE, 10, [(OLD, 0)]))
        else:
            holder.cluster.leaders.learn(MADE, LEADERS)
        holder.look()
        assert holder.request().is_copied


def test_what_a_kill_has_interrupted_is_finished_before_anything_is_asked() -> None:
    holder = Holder()
    holder.directory.copies[NAME] = DivergedCopy(NAME, LOG, Note(MADE, 500, HELD))
    holder.directory.unfinished = [MADE]
    holder.look()
    assert holder.salvaged == [MADE]
    assert holder.request()[2:] == (900, HELD.epochs, 500, False)
    assert holder.directory.deeds == []


def test_a_reply_to_an_earlier_request_or_of_a_node_that_is_not_the_leader_changes_nothing() -> None:
    holder = asking()
    early = holder.request()
    holder.look()
    assert holder.request().serial != early.serial
    frame = pack_reply(SalvageReply(early.serial, LOG, Decision.LET_GO))[HEAD:]
    holder.salvage.receive(holder.link, FrameKind.SALVAGE, frame, 0)
    holder.cluster.leaders.learn(LOG, Epoch(3, 3, bytes(8)))
    holder.answer(Decision.LET_GO)
    assert holder.directory.deeds == ["read"]


def test_an_answer_that_names_a_position_behind_the_copy_ends_the_connection() -> None:
    holder = asking()
    with pytest.raises(PeerError, match="nothing to salvage"):
        holder.answer(Decision.SALVAGE, 900)


def test_a_request_of_another_node_is_for_the_arbiter() -> None:
    holder = asking()
    holder.arbiter.decision = Decision.SALVAGE, 7
    holder.salvage.receive(holder.link, FrameKind.SALVAGE, holder.sent.pop()[HEAD:], 0)
    assert holder.arbiter.asked[0][0] == 2
    assert unpack(holder.sent[0][HEAD:]) == SalvageReply(1, LOG, Decision.SALVAGE, 7)


def test_the_leader_itself_asks_itself() -> None:
    holder = Holder()
    holder.cluster.leaders.learn(LOG, Epoch(3, 1, bytes(8)))
    holder.arbiter.decision = Decision.SALVAGE, 500
    holder.look()
    assert (holder.directory.deeds, holder.salvaged) == (["read", 500], [MADE])


def test_a_leader_without_a_connection_is_waited_for() -> None:
    holder = Holder()
    holder.cluster.links.clear()
    for _ in range(10 * NO_LEADER):
        holder.look()
    assert holder.directory.deeds == ["read"]
    holder.cluster.links[2] = holder.link
    holder.look(1)  # and is asked at once then
    assert holder.request().log_id == LOG
    asked = len(holder.sent)
    holder.look(CHECK_EVERY - 1)
    assert len(holder.sent) == asked


def test_who_has_closed_a_log_is_asked_about_copies_of_it() -> None:
    holder = Holder()
    holder.cluster.leaders.close(make_closed(LOG, 2000, [(OLD, 0), (LEADERS, 500)]))
    holder.look()
    assert (holder.directory.deeds, holder.request().log_id) == (["read"], LOG)
    holder.answer(Decision.LET_GO)  # another node has salvaged what it holds
    assert (holder.directory.deeds, holder.salvaged) == (["read", "remove"], [])


def test_a_copy_of_a_closed_log_needs_nobodys_word_if_who_closed_it_is_gone() -> None:
    for why in ("forgotten", "left", "silent"):
        holder = Holder()
        holder.cluster.leaders.close(make_closed(LOG, 2000, [(OLD, 0), (LEADERS, 500)]))
        if why == "silent":
            holder.cluster.links.clear()
            holder.look()
            holder.look(NO_LEADER * UNCLEAN_AFTER - 1)
            assert holder.directory.deeds == ["read"]
        else:
            holder.cluster.membership.merge([Member(identity(2), Standing[why.upper()])], 0)
        holder.look()
        assert (holder.directory.deeds, holder.salvaged) == (["read", 500], [MADE]), why
        holder.look()
        assert holder.directory.copies
        holder.cluster.leaders.close(make_closed(MADE, 10, [(OLD, 0)]))
        holder.look()
        assert not holder.directory.copies, why


def test_who_has_closed_a_log_is_waited_for_as_long_as_it_answers() -> None:
    holder = Holder()
    holder.cluster.leaders.close(make_closed(LOG, 2000, [(OLD, 0), (LEADERS, 500)]))
    holder.look()
    for _ in range(3):
        holder.look(NO_LEADER * UNCLEAN_AFTER - 1)
        holder.answer(Decision.WAIT)
    assert holder.directory.deeds == ["read"]


def test_all_of_a_copy_is_salvaged_when_its_log_has_no_leader_any_longer() -> None:
    for why in ("forgotten", "disk replaced", "left"):
        holder = Holder()
        holder.replicas.clear()
        if why == "forgotten":
            holder.cluster.membership.merge([Member(identity(2, log=int.from_bytes(LOG)), Standing.FORGOTTEN)], 0)
        elif why == "left":
            holder.cluster.membership.merge([Member(identity(2), Standing.LEFT)], 0)
        holder.look()
        holder.look(NO_LEADER * UNCLEAN_AFTER - 1)
        assert holder.directory.deeds == ["read"], why
        holder.look()
        assert holder.directory.deeds == ["read", 0], why


def test_a_log_that_a_node_leads_or_may_promote_is_not_salvaged_as_a_whole() -> None:
    for why in ("a replica is here", "it is being promoted", "its leader says so", "its leader has said nothing yet"):
        holder = Holder()
        if why != "a replica is here":
            holder.replicas.clear()
        if why == "it is being promoted":
            holder.led.add(LOG)
        if why == "its leader says so":
            holder.says(Hold.LEADS)
        if why == "its leader has said nothing yet":
            holder.cluster.leaders.note_said(2, 0, [])  # that was another run
        for _ in range(10 * NO_LEADER + 2):
            holder.look()
        assert holder.directory.deeds == ["read"], why


def test_a_copy_that_cannot_be_read_is_kept_reported_once_and_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    holder = Holder()
    holder.directory.error = OSError("the replica is empty")
    for _ in range(3):
        holder.look(RETRY_AFTER)
    assert caplog.text.count("the replica is empty; trying again") == 1
    assert holder.salvage.figures()[0]["failure"] == "the replica is empty"
    assert not holder.salvage.has_unserved_log()
    holder.directory.error = None
    holder.look(RETRY_AFTER)
    assert holder.request().log_id == LOG


def test_a_disk_that_is_full_leaves_the_copy_as_it_is() -> None:
    holder = asking()
    holder.directory.error = OSError(28, "No space left on device")
    holder.answer(Decision.SALVAGE, 500)
    assert (holder.salvaged, holder.salvage.figures()[0]["salvaged"]) == ([], False)
    holder.directory.error = None
    holder.look(RETRY_AFTER)
    holder.answer(Decision.SALVAGE, 500)
    assert holder.salvaged == [MADE]


def test_what_is_left_of_the_own_log_stays_and_is_salvaged_again_if_another_leader_has_less() -> None:
    holder = Holder()
    holder.directory.copies = {OWN: DivergedCopy(OWN, LOG, Note(b"", 500, HELD), True)}
    assert not holder.salvage.is_agreed(LOG), "nothing was looked at yet"
    holder.look()
    assert (holder.salvage.is_agreed(LOG), holder.salvage.is_agreed(bytes(16))) == (False, True)
    holder.answer(Decision.LET_GO)
    assert holder.salvage.is_agreed(LOG)
    holder.look()
    assert (len(holder.sent), holder.directory.deeds) == (1, [])  # it is asked less often
    holder.cluster.leaders.learn(LOG, Epoch(3, 2, bytes(8)))
    holder.look()
    assert len(holder.sent) == 2
    holder.answer(Decision.SALVAGE, 450)
    assert (holder.directory.deeds, holder.salvaged) == ([450], [MADE])


def test_a_log_is_settled_when_its_replica_was_compared_and_no_diverged_copy_of_it_is_left() -> None:
    holder = Holder()
    holder.replicas.clear()
    holder.directory.copies.clear()
    assert holder.salvage.unsettled() is None  # its directories were not listed yet
    holder.look()
    assert holder.salvage.unsettled() == set()
    replica = holder.replicas[LOG] = Kept(LOG, 2)
    assert holder.salvage.unsettled() == {LOG}  # it is not open: it may have anything
    replica.compare([(LEADERS.pack(), 0)])
    holder.directory.copies[NAME] = DivergedCopy(NAME, LOG, None)  # the comparison has left it
    assert holder.salvage.unsettled() is None
    holder.look(1)
    assert holder.salvage.unsettled() == {LOG}
    holder.answer(Decision.LET_GO)
    assert holder.salvage.unsettled() == set()


def test_a_reply_during_a_scan_is_asked_for_again_as_soon_as_that_is_over() -> None:
    holder = asking()
    holder.salvage._is_busy = True
    holder.answer(Decision.SALVAGE, 500)
    assert holder.salvaged == []
    holder.salvage._is_busy = False
    asked = len(holder.sent)
    holder.look(1)
    assert len(holder.sent) == asked + 1


def test_a_copy_that_an_operator_has_removed_is_forgotten() -> None:
    holder = asking()
    holder.directory.copies.clear()
    holder.look()
    assert holder.salvage.figures() == []

"""What claims see of replicas, and what followers are told of who counts."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from nsqd.cluster.membership.cluster import Cluster
from nsqd.cluster.ownership.cases import ReplicaState
from nsqd.cluster.ownership.election_frames import InSyncReplicas
from nsqd.cluster.ownership.replica_states import InSyncReports, KeptReplicas, step_down_broken
from nsqd.cluster.replication import stream
from nsqd.cluster.replication.copying import Copying
from nsqd.cluster.replication.in_sync import InSync
from nsqd.cluster.wire.frames import FrameKind
from nsqd.cluster.wire.handshake import Credentials
from nsqd.cluster.wire.link import Link
from nsqd.core.message.epoch import NO_EPOCH, Epoch
from nsqd.storage.log.followers import Followers
from tests.nsqd.cluster.replication.test_replica import FIRST, NODE
from tests.nsqd.cluster.replication.test_replicas import Side, following
from tests.nsqd.cluster.wire.identities import node as identity
from tests.nsqd.core.node import SECOND
from tests.nsqd.storage.small_log import LOG_ID


def state(side: Side, view: KeptReplicas) -> ReplicaState:
    (found,) = view.replicas()
    return found


def test_a_replica_ends_when_its_connection_is_gone_and_when_it_is_asked_for_anew() -> None:
    side = Side()
    view = KeptReplicas(Copying(LOG_ID, side.replicas), lambda: side.now)
    assert list(view.replicas()) == []
    side.now = 10
    side.say(stream.pack_follow(1))
    assert state(side, view) == ReplicaState(LOG_ID, NODE, 0, NO_EPOCH, False, 10)  # its leader has not gone on yet
    side = Side()
    view = KeptReplicas(Copying(LOG_ID, side.replicas), lambda: side.now)
    side.now = 20
    side.follow()
    end = side.log.end
    assert state(side, view) == ReplicaState(LOG_ID, NODE, end, FIRST, True, None)
    side.now = 50  # nothing came since 20
    side.replicas.closed(side.link)
    assert state(side, view).ended_at == 20
    side.now = 60
    assert state(side, view).ended_at == 20
    side.connect()
    side.say(stream.pack_follow(2))
    assert state(side, view).ended_at == 20  # it was asked for, and does not go on yet
    side.say(stream.pack_epochs(FrameKind.RESUME, [(FIRST.pack(), 0)]))
    assert state(side, view).ended_at is None
    side.now = 70
    side.say(stream.pack_resync(0, [(FIRST.pack(), 0)]))
    assert state(side, view).ended_at == 70  # new bytes are written apart from it
    side.say(stream.pack_epochs(FrameKind.DROP, [(FIRST.pack(), 0)]))
    assert list(view.replicas()) == []


def test_a_replica_that_is_opened_ends_at_an_unknown_position() -> None:
    side = following()
    side.reopen()
    side.replicas.open_all()
    view = KeptReplicas(Copying(LOG_ID, side.replicas), lambda: side.now)
    assert state(side, view).is_opening
    side.turn()
    assert state(side, view) == ReplicaState(LOG_ID, NODE, side.log.end, FIRST, True, 0)


class FakeElections:
    """In place of Elections: the reports that nodes are sent."""

    def __init__(self) -> None:
        self.reports: list[tuple[Any, ...]] = []

    def send_in_sync(self, link: Link, said: InSyncReplicas) -> None:
        self.reports.append((said.log_id, said.epoch, said.position, said.named, link, said.is_whole))


class OneFollower:
    """In place of a LeaderSide: one follower, and the in-sync ones."""

    def __init__(self) -> None:
        self.in_sync = InSync(Followers((1,), 2, 2), 100, 5)
        self.followers: dict[int, Any] = {}
        self.source = SimpleNamespace(log_id=LOG_ID, epoch=FIRST, end=100, is_broken=False)
        self.has_news = False


def test_all_nodes_get_the_in_sync_followers_since_when_and_whether_they_have_everything() -> None:
    elections, leader_side, link = FakeElections(), OneFollower(), Side().link
    cluster = SimpleNamespace(own=SimpleNamespace(log_id=LOG_ID), links={2: link})
    copying = SimpleNamespace(leader_side=leader_side, leader_sides={LOG_ID: leader_side})
    reports = InSyncReports(cluster, elections, copying)

    def tick() -> list[tuple[Any, ...]]:
        elections.reports.clear()
        reports.tick(0)
        return elections.reports

    assert tick() == [(LOG_ID, FIRST, 100, frozenset(), link, False)]
    assert leader_side.in_sync.confirm(100, {1: 100})
    leader_side.source.end = 150
    assert tick() == [(LOG_ID, FIRST, 150, {1}, link, False)]
    leader_side.source.end = 200
    cluster.links = {1: link, 2: link}
    assert tick() == [(LOG_ID, FIRST, 150, {1}, link, False)] * 2
    leader_side.followers[1] = SimpleNamespace(link=link, is_caught_up=True)
    cluster.links = {1: link}
    assert tick() == [(LOG_ID, FIRST, 150, {1}, link, True)]
    elections.reports.clear()
    reports.pump(0)
    assert elections.reports == [], "nothing is new"
    leader_side.has_news = True
    reports.pump(0)
    reports.pump(0)
    assert elections.reports == [(LOG_ID, FIRST, 150, {1}, link, True)], "at once, and once"
    leader_side.followers[1].link = None  # the follower of a connection before
    assert tick() == [(LOG_ID, FIRST, 150, {1}, link, False)]
    leader_side.in_sync.change(Followers((), 2, 2), 210)
    assert tick() == [(LOG_ID, FIRST, 200, frozenset(), link, False)]


class BrokenLog:
    """In place of a LeaderSide: whether a sync of the log has failed."""

    def __init__(self) -> None:
        self.source, self.noted = SimpleNamespace(is_broken=False), 0

    def extent(self) -> None:
        self.noted += 1


def test_a_node_whose_sync_fails_lets_its_own_log_be_taken_over_and_says_so_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    own = replace(identity(3), epoch=Epoch(1, 3, bytes(8)).pack())
    cluster = Cluster(Credentials("c", b"a secret of 16 bytes", own), [], 5 * SECOND, bytes)
    leader_side = BrokenLog()
    step_down_broken(cluster, leader_side)
    assert cluster.leaders.holds(own.log_id)
    leader_side.source.is_broken = True
    step_down_broken(cluster, leader_side)
    step_down_broken(cluster, leader_side)
    assert cluster.leaders.stepped_down == {own.log_id: None}
    assert leader_side.noted == 1, "how far the followers are"
    assert [record.levelname for record in caplog.records] == ["CRITICAL"]

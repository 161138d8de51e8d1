"""The times of logs: which nodes get them, which leader a follower believes, and the times that it keeps."""

from struct import pack
from types import SimpleNamespace
from typing import Any

import pytest

from nsqd.cluster.replication.follower import AtOnce
from nsqd.cluster.replication.log_times import MOST_NOTES, SEND_EVERY, WRITE_EVERY, LogTimes
from nsqd.cluster.wire.frames import FrameKind, FrameReader, PeerError
from nsqd.storage.log.clocks import Anchor, Clocks, read_note
from tests.nsqd.cluster.network import Network, SimMember
from tests.nsqd.storage.small_log import new_disk

BOOT = b"b" * 16


class Times:
    """A node with the times of logs; it keeps a replica of each log in `kept`."""

    def __init__(self, member: SimMember) -> None:
        self.kept: dict[bytes, Any] = {}
        self.followers: dict[int, Any] = {}
        leader_side = SimpleNamespace(followers=self.followers, source=SimpleNamespace(time=lambda: 77))
        leader_sides = {member.own.log_id: leader_side}
        copying = SimpleNamespace(replicas=SimpleNamespace(kept=self.kept), leader_sides=leader_sides)
        clocks = Clocks(lambda: 1, lambda: 1000, lambda: 10, BOOT)
        self.times = LogTimes(member.cluster, copying, clocks, AtOnce())
        member.cluster.add(self.times)


def two() -> tuple[Network, list[SimMember]]:
    network = Network(1)
    return network, network.meet(2)


def kept(log_id: bytes) -> Any:
    return SimpleNamespace(log_id=log_id, disk=new_disk(), failure="")


def test_a_follower_records_the_time_that_the_leader_sends_and_keeps_it() -> None:
    network, (leader, follower) = two()
    there, here = Times(leader), Times(follower)
    log_id = leader.own.log_id
    here.kept[log_id] = kept(log_id)
    there.followers[1] = SimpleNamespace(number=1, link=leader.cluster.links[1], has_replica=False)
    there.times.tick(SEND_EVERY)
    network.run(1)
    assert here.times.noted(log_id) is None, "it has no replica yet"
    there.followers[1].has_replica = True
    there.times.tick(SEND_EVERY + 1)
    network.run(1)
    assert here.times.noted(log_id) == Anchor(77, 1000, 10, BOOT)
    here.times.tick(WRITE_EVERY)
    assert read_note(here.kept[log_id].disk) == Anchor(77, 1000, 10, BOOT)


def test_the_time_is_sent_every_5_s_and_over_each_new_connection() -> None:
    _, (leader, _) = two()
    there = Times(leader)
    link = leader.cluster.links[1]
    there.followers[1] = SimpleNamespace(number=1, link=link, has_replica=True)
    link.drain()
    counts = []
    for now in (1, 2, SEND_EVERY, SEND_EVERY + 1):
        there.times.tick(now)
        counts.append([kind for kind, _ in FrameReader().feed(b"".join(link.drain()))].count(FrameKind.TIME))
    assert counts == [1, 0, 0, 1]
    there.followers[1].link = leader.network.members["node1:4152"].cluster.links[0]
    there.times.tick(SEND_EVERY + 2)
    assert there.followers[1].link.output


def test_only_the_leader_is_believed_and_only_about_replicas_that_are_kept() -> None:
    _, (_, follower) = two()
    here = Times(follower)
    link = follower.cluster.links[0]
    for log_id in (b"n" * 16, follower.own.log_id):
        here.kept[log_id] = kept(log_id)
    for log_id in (b"n" * 16, follower.own.log_id, follower.network.members["node0:4152"].own.log_id):
        here.times.receive(link, FrameKind.TIME, pack(">16sQ", log_id, 5), 0)
        assert here.times.noted(log_id) is None
    for content in (b"", bytes(23), bytes(25), pack(">16sQ", bytes(16), 1 << 63)):
        with pytest.raises(PeerError):
            here.times.receive(link, FrameKind.TIME, content, 0)


def test_the_number_of_notes_is_bounded() -> None:
    _, (_, follower) = two()
    here, link = Times(follower), follower.cluster.links[0]
    here.times._cluster.may_write_replica = lambda number, log_id: True
    for number in range(MOST_NOTES + 1):
        log_id = number.to_bytes(16)
        here.kept[log_id] = kept(log_id)
        here.times.receive(link, FrameKind.TIME, pack(">16sQ", log_id, 5), 0)
    assert len(here.times._notes) == MOST_NOTES

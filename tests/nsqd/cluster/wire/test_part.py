"""The table of parts: each kind of frame has one part that takes it, and frames of an unconnected peer are ignored."""

from collections import Counter

from nsqd.cluster.membership import topic_configs
from nsqd.cluster.ownership import closed_logs as closed
from nsqd.cluster.ownership import elections as elections
from nsqd.cluster.ownership import leaving
from nsqd.cluster.promotion import deleting
from nsqd.cluster.promotion.diverged import salvage
from nsqd.cluster.remote_jobs import lent_jobs
from nsqd.cluster.replication import answers, copying, log_times
from nsqd.cluster.wire.frames import HANDSHAKE, FrameKind, encode
from nsqd.cluster.wire.link import Link
from nsqd.cluster.wire.part import Part
from tests.nsqd.cluster.network import Network

MODULES = (answers, elections, closed, copying, deleting, leaving, lent_jobs, log_times, salvage, topic_configs)
OTHERS = {FrameKind.MEMBERS, FrameKind.LEADERS, FrameKind.REFUSED, FrameKind.OFFERS, FrameKind.FETCHED}


class Heard(Part):
    takes = (FrameKind.TIME,)

    def __init__(self) -> None:
        self.content: list[bytes] = []
        self.closed_links = 0

    def receive(self, link: Link, kind: FrameKind, content: bytes, now: int) -> None:
        self.content.append(content)

    def closed(self, link: Link) -> None:
        self.closed_links += 1


def test_each_kind_of_frame_is_taken_by_one_part() -> None:
    assert MODULES
    parts = [one for one in Part.__subclasses__() if not one.__module__.startswith("tests.")]
    taken = Counter(kind for one in parts for kind in one.takes)
    assert set(taken.values()) == {1}
    assert set(taken) == set(FrameKind) - HANDSHAKE - OTHERS


def test_a_part_is_given_the_frames_of_its_kinds_over_the_connection_that_counts() -> None:
    network = Network(1)
    first, second = network.start(0), network.start(1)
    calls = Heard()
    second.cluster.add(calls)
    network.run(5)
    first.cluster.links[1].send_first(encode(FrameKind.TIME, b"a"))
    first.cluster.links[1].send_first(encode(FrameKind.DELETED, b"for nobody here"))
    network.run(1)
    assert (calls.content, calls.closed_links) == ([b"a"], 0)
    link = second.cluster.links[0]
    network.kill(first)
    network.run(1)
    assert calls.closed_links == 1
    second.cluster.receive(link, FrameKind.TIME, b"late", second.now)
    assert calls.content == [b"a"]

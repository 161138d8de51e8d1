"""The leader's side of copying, over a log of the test: the bytes that are sent to a follower that has reported its replica."""

from random import Random

import pytest

from nsqd.cluster.membership.leader_frames import LogExtent
from nsqd.cluster.replication import sending, stream
from nsqd.cluster.replication.follower import Follower, Phase
from nsqd.cluster.replication.leader import LeaderSide
from nsqd.cluster.wire.frames import AFTER_PROOF, FrameKind, FrameReader
from nsqd.cluster.wire.link import Link
from nsqd.storage.log.copies import Copies
from nsqd.storage.log.files import SegmentFile, file_of
from nsqd.storage.log.followers import Followers
from nsqd.storage.log.records import HEADER_SIZE, SegmentHeader, decode_header
from tests.cases import each
from tests.nsqd.cluster.replication.sides import FakeMembers, SteppedWork, proved_link
from tests.nsqd.cluster.replication.test_replica import FIRST, NODE, SECOND, Log
from tests.nsqd.cluster.wire.identities import node

FOLLOWER = 1


class LogOfTest:
    """In place of a LogSource, with the bytes of a Log."""

    is_broken = False

    def __init__(self, log: Log) -> None:
        self.log = log
        self.table = [(FIRST.pack(), 0)]
        self.log_id = node(NODE).log_id
        self.gone: dict[int, bool | OSError] = {}  # segments whose files are gone: what `restore` returns or raises

    @property
    def end(self) -> int:
        return self.log.end

    durable = end

    followers = Followers()

    def state_followers(self, followers: Followers) -> int:
        self.followers = followers
        return self.log.end

    def epochs(self) -> list[tuple[bytes, int]]:
        return self.table

    def bases(self) -> list[int]:
        return list(self.log.files)

    def file(self, base: int) -> SegmentFile:
        if base not in self.log.files:
            raise FileNotFoundError
        return file_of(decode_header(self.log.files[base]))

    def file_end(self, base: int, following: int | None) -> int:
        return len(self.log.files[base])

    def header(self, file: SegmentFile) -> bytes:
        if int(file.name[:20]) in self.gone:
            raise FileNotFoundError
        return self.log.files[int(file.name[:20])][:HEADER_SIZE]

    def restore(self, base: int, file: SegmentFile, end: int) -> bool:
        result = self.gone[base]
        if isinstance(result, OSError):
            raise result
        if result:
            del self.gone[base]
        return result

    def forget(self, base: int) -> None:
        del self.log.files[base]

    def read(self, file: SegmentFile, at: int, end: int, size: int) -> tuple[bytes, int]:
        return self.log.files[int(file.name[:20])][at:end], 0

    def read_repaired(self, base: int, file: SegmentFile, at: int, end: int, size: int) -> tuple[bytes, int]:
        return self.read(file, at, end, size)

    def hold(self, node: int, ns: int, first: int = 0, last: int | None = None) -> None: ...


class Side:
    """A leader with one follower, played by the test."""

    def __init__(self, log: Log, rate: int = 0) -> None:
        self.source = LogOfTest(log)
        self.work = SteppedWork()
        cluster = FakeMembers(node(NODE))
        self.link: Link = proved_link(None, node(FOLLOWER))
        cluster.links[FOLLOWER] = self.link
        cluster.members = [cluster.own, node(FOLLOWER)]
        self.leader_side = LeaderSide(cluster, self.source, Copies(0), self.work, 1, 60_000_000_000, rate)
        self.leader_side.tick(0)
        assert self.sent() == [(FrameKind.FOLLOW, stream.pack_follow(1)[5:])]

    def sent(self) -> list[tuple[FrameKind, bytes]]:
        data = b"".join(self.link.drain())
        reader = FrameReader()
        reader.limit = AFTER_PROOF
        return [frame for frame in reader.feed(data) if frame[0] is not FrameKind.SYNC]

    def have(self, have: stream.Have) -> list[tuple[FrameKind, bytes]]:
        """Say what the follower has. Returns what is sent then."""
        self.leader_side.receive(self.link, FrameKind.HAVE, stream.pack_have(have)[5:])
        while self.work.step(Random(1)):
            pass
        return self.sent()


def asked_to_follow(topics_ask_for: int, replicas: int, log_asked_for: int = 1) -> set[int]:
    """The nodes that a leader with five other nodes asks to keep a copy."""
    log, cluster, copies = Log(), FakeMembers(node(NODE)), Copies(0)
    log.begin()
    others = [number for number in range(5) if number != NODE]
    cluster.links.update({number: proved_link(None, node(number)) for number in others})
    cluster.members = [cluster.own, *map(node, others)]
    copies.configured = topics_ask_for
    source = LogOfTest(log)
    source.followers = Followers((), 2, log_asked_for)
    side = LeaderSide(cluster, source, copies, SteppedWork(), replicas, 60_000_000_000, 0)
    side.tick(0)
    return set(side.followers)


@each(
    "topics_ask_for, replicas, count",
    [(1, 2, 2), (2, 2, 2), (3, 2, 3), (4, 2, 4), (16, 2, 5), (1, 0, 0), (2, 0, 2), (2, 3, 3)],
)
def test_one_node_more_keeps_a_copy_than_topics_wait_for(topics_ask_for: int, replicas: int, count: int) -> None:
    assert len(asked_to_follow(topics_ask_for, replicas)) == count


def test_in_sync_followers_are_the_first_of_the_nodes_that_have_everything() -> None:
    log = Log()
    log.begin()
    leader_side = Side(log).leader_side
    for number, is_in_sync, lacks in ((1, False, 0), (2, True, 1), (3, True, 0), (4, True, 0)):
        leader_side.followers[number] = Follower(
            number, leader_side.followers[FOLLOWER].link, has_replica=True, durable=log.end - lacks
        )
        leader_side.in_sync.named |= {number} if is_in_sync else frozenset()
    leader_side.in_sync.stated = Followers((2, 3, 4))
    assert leader_side.whole_followers() == [3, 4, 1]


@each("log_asked_for, count", [(1, 1), (2, 1), (3, 2), (4, 3)])
def test_a_log_keeps_the_copies_that_its_publishes_had_whatever_topics_wait_for_now(
    log_asked_for: int, count: int
) -> None:
    """A log that is made of a diverged copy has few topics: its copy waits until the messages have their copies again."""
    assert len(asked_to_follow(1, 1, log_asked_for)) == count


def two_segments() -> tuple[Log, int]:
    """Return a log, and where its second segment begins."""
    log = Log()
    log.begin()
    log.write(b"one", b"two")
    log.begin()
    log.write(b"three")
    return log, max(log.files)


def test_a_replica_with_nothing_is_sent_everything() -> None:
    log, second = two_segments()
    found = Side(log).have(stream.Have(0, [], {}))
    assert found == [
        (FrameKind.RESYNC, stream.pack_resync(0, [(FIRST.pack(), 0)])[5:]),
        (FrameKind.SEGMENT, log.files[0][:HEADER_SIZE]),
        *_bytes(0, HEADER_SIZE, log.files[0][HEADER_SIZE:]),
        (FrameKind.SEGMENT, log.files[second][:HEADER_SIZE]),
        *_bytes(second, HEADER_SIZE, log.files[second][HEADER_SIZE:]),
        (FrameKind.SWITCH, stream.pack_switch(log.end)[5:]),
    ]


def test_a_log_goes_to_its_end_and_a_broken_one_as_far_as_a_follower_had_it() -> None:
    log, second = two_segments()
    side = Side(log)
    side.source.table.append((SECOND.pack(), log.end))
    assert side.leader_side.extent() == LogExtent(FIRST, log.end), "nothing was written in the second epoch"
    side.source.table[1] = SECOND.pack(), second
    assert side.leader_side.extent() == LogExtent(SECOND, log.end)
    side.have(stream.Have(second, [(FIRST.pack(), 0)], {0: 0}))
    side.leader_side.followers[FOLLOWER].has_replica, side.leader_side.followers[FOLLOWER].written = True, second
    side.source.is_broken = True
    assert side.leader_side.extent() == LogExtent(FIRST, second)
    side.leader_side.followers.clear()
    assert side.leader_side.extent() == LogExtent(FIRST, second), "the follower was lost, too"


def test_a_replica_goes_on_where_it_ends() -> None:
    log, second = two_segments()
    found = Side(log).have(stream.Have(second, [(FIRST.pack(), 0)], {0: 0}))
    assert [kind for kind, _ in found] == [FrameKind.RESUME, FrameKind.SEGMENT, FrameKind.BYTES]


def test_a_replica_with_what_the_log_lost_is_sent_everything() -> None:
    log, second = two_segments()
    side = Side(log)
    side.source.table.append((SECOND.pack(), log.end))
    found = side.have(stream.Have(log.end + 100, [(FIRST.pack(), 0)], {0: 0, second: 0}))
    assert stream.unpack_resync(found[0][1])[0] == 0


def test_a_log_in_which_nothing_stands_yet() -> None:
    side = Side(Log())
    assert [kind for kind, _ in side.have(stream.Have(0, [], {}))] == [FrameKind.RESYNC]
    side.source.log.begin()
    side.source.log.write(b"one")
    side.leader_side.sender.pump()
    assert [kind for kind, _ in side.sent()] == [FrameKind.SEGMENT, FrameKind.BYTES, FrameKind.SWITCH]


def test_what_was_read_for_a_place_is_not_sent_as_if_it_stood_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    log, second = two_segments()
    side = Side(log)
    monkeypatch.setattr(sending, "LAST", 0)
    first = stream.Have(second, [(FIRST.pack(), 0)], {0: 0})
    side.leader_side.receive(side.link, FrameKind.HAVE, stream.pack_have(first)[5:])
    side.sent()
    log.write(b"four")
    end = log.end
    log.write(b"five")
    side.leader_side.receive(side.link, FrameKind.GAVE_UP, b"for a moment")
    assert side.have(stream.Have(end, [(FIRST.pack(), 0)], {0: 0, second: 0})) == [
        (FrameKind.RESUME, stream.pack_epochs(FrameKind.RESUME, [(FIRST.pack(), 0)])[5:]),
        *_bytes(second, HEADER_SIZE + end - second, log.files[second][HEADER_SIZE + end - second :]),
    ]


def test_a_segment_that_was_rewritten_before_it_was_reached_begins_a_new_exchange() -> None:
    log, second = two_segments()
    side = Side(log)
    side.link.unsent = 2 * sending.CHUNK  # the network takes nothing
    have = stream.Have(second, [(FIRST.pack(), 0)], {0: 0})
    assert [kind for kind, _ in side.have(have)] == [FrameKind.RESUME]
    log.files[second] = SegmentHeader(NODE, 1, bytes(16), second, epoch=FIRST).encode()
    side.link.unsent = 0
    side.leader_side.sender.pump()
    assert side.sent() == []
    side.leader_side.tick(sending.ASK_AFTER)
    assert side.sent() == [(FrameKind.FOLLOW, stream.pack_follow(2)[5:])]


@each("result, first", [(True, 0), (False, 1), (OSError("no answer"), 0)])
def test_a_segment_whose_file_is_gone_comes_from_another_node(result: bool | OSError, first: int) -> None:
    """While a node that may have it cannot be reached, the follower waits: its own copy may be the only one."""
    log, second = two_segments()
    side = Side(log)
    side.source.gone[0] = result
    have = stream.Have(0, [], {})
    assert (FrameKind.SWITCH in dict(side.have(have))) is (result is True)
    assert side.source.bases() == [0, second][first:]
    if result is not True:
        side.leader_side.tick(sending.ASK_AFTER)
        assert [kind for kind, _ in side.sent()] == [FrameKind.FOLLOW]


@each("rate, segments", [(1, 1), (10_000, 2)])  # bytes a second
def test_a_follower_that_is_far_behind_is_sent_no_more_than_the_rate_allows(
    rate: int, segments: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sending, "MOST_BEHIND", 0)
    monkeypatch.setattr(sending, "LAST", 0)
    log, _ = two_segments()
    side = Side(log, rate)
    kinds = [kind for kind, _ in side.have(stream.Have(0, [], {}))]
    assert kinds == [FrameKind.RESYNC, FrameKind.SEGMENT]
    side.leader_side.tick(1_000_000_000)
    while side.work.step(Random(1)):
        pass
    assert [kind for kind, _ in side.sent()].count(FrameKind.BYTES) == segments


def test_a_reply_to_an_earlier_request_does_not_count() -> None:
    log, second = two_segments()
    side = Side(log)
    side.leader_side.receive(side.link, FrameKind.GAVE_UP, b"for a moment")
    side.leader_side.followers[FOLLOWER].ask_at = 1
    side.leader_side.tick(1)
    assert side.sent() == [(FrameKind.FOLLOW, stream.pack_follow(2)[5:])]
    assert side.have(stream.Have(0, [], {}, asked=1)) == []  # it was on the way
    found = side.have(stream.Have(second, [(FIRST.pack(), 0)], {0: 0}, asked=2))
    assert found[0][0] is FrameKind.RESUME
    assert side.have(stream.Have(second, [(FIRST.pack(), 0)], {0: 0}, asked=2)) == []


def live() -> Side:
    """Return a leader whose follower keeps up."""
    log, _ = two_segments()
    side = Side(log)
    side.have(stream.Have(0, [], {}))
    return side


def wrote(side: Side, *contents: bytes) -> tuple[FrameKind, bytes]:
    """Write to the log. Returns the frame with what was written."""
    base, at, data = side.source.log.write(*contents)
    side.leader_side.sender.wrote(base, at, [data], len(data))
    return _bytes(base, at, data)[0]


def copied(side: Side) -> None:
    """Have the follower confirm all of the log."""
    end = side.source.end
    side.leader_side.receive(side.link, FrameKind.COPIED, stream.pack_copied(end, end)[5:])


def state(side: Side, seconds: float) -> tuple[str, float]:
    side.leader_side.tick(int(seconds * 1e9))
    (found,) = side.leader_side.states()
    return found["state"], found["lag_seconds"]


def test_a_follower_that_confirms_nothing_for_more_than_five_seconds_is_lagging() -> None:
    side = live()
    assert state(side, 0.25) == ("catching up", None), "it has confirmed nothing since it was asked"
    copied(side)
    assert state(side, 0.5) == ("catching up", 0.0)
    copied(side)  # and what names it
    wrote(side, b"four")
    assert state(side, 1) == ("in sync", 0.0)
    wrote(side, b"five")
    assert state(side, 6) == ("in sync", 5.0)
    assert state(side, 6.25) == ("lagging", 5.25)
    copied(side)
    assert state(side, 6.5) == ("in sync", 0.0)
    assert state(side, 600) == ("in sync", 0.0), "nothing was written since"


def test_publishes_that_wait_long_for_copies_are_logged_with_the_late_nodes(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    side = live()
    copied(side)
    side.leader_side.tick(0)
    wrote(side, b"four")
    copies = side.leader_side.copies
    copies.wait({copies.copied(2, False)}, side.source.end, 1_000_000_000)
    for tenths in (10, 14, 15, 17):
        side.leader_side.tick(tenths * 100_000_000)
    assert [one for one in caplog.messages if "have waited" in one] == [
        f"CLUSTER: publishes into this node's log have waited for copies for 0.5 s: nodes [{side.link.node.number}] have not"
        " confirmed them"
    ]


def test_replies_that_were_given_up_are_logged_once_a_minute_with_their_count(caplog: pytest.LogCaptureFixture) -> None:
    side = live()
    copies = side.leader_side.copies
    copies.patience, mark = 1, copies.copied(2, is_durable=False)
    end = side.source.end
    for second in range(100):
        copies.wait([mark], end + 1, second * 1_000_000_000)
        side.leader_side.tick(second * 1_000_000_000 + 2)
    lines = [one for one in caplog.messages if "given up" in one]
    assert lines == [
        "CLUSTER: 1 replies to publishes into this node's log were given up: no copy in time",
        "CLUSTER: 60 replies to publishes into this node's log were given up: no copy in time",
    ]


def test_bytes_without_a_waiting_client_are_sent_together() -> None:
    side = live()
    wrote(side, b"four")
    wrote(side, b"five")
    assert side.leader_side.sender.has_batch
    assert side.sent() == []
    side.leader_side.sender.send_batch()
    assert not side.leader_side.sender.has_batch
    (sent,) = side.sent()
    base, at, data = stream.unpack_bytes(sent[1])
    assert side.source.log.files[base][at:] == data
    assert bytes(data).count(b"four") == bytes(data).count(b"five") == 1


def test_large_batches_and_awaited_bytes_are_sent_at_once() -> None:
    side = live()
    frame = wrote(side, b"four")
    side.leader_side.sender.request_sync(is_durable=False)
    assert side.sent() == [frame]
    frame = wrote(side, bytes(sending.BATCH))
    assert side.sent() == [frame]


def test_a_segment_begins_behind_the_bytes_of_the_one_before() -> None:
    side = live()
    frame = wrote(side, b"four")
    header = side.source.log.begin()
    side.leader_side.sender.began(decode_header(header))
    assert side.sent() == [frame, (FrameKind.SEGMENT, header)]


def test_a_follower_that_reaches_the_end_is_not_sent_it_twice() -> None:
    side = live()
    frame = wrote(side, b"four")
    late = proved_link(None, node(FOLLOWER + 1))
    side.leader_side.followers[FOLLOWER + 1] = Follower(FOLLOWER + 1, late, asked=1)
    end = side.source.end
    have = stream.Have(end, [(FIRST.pack(), 0)], dict.fromkeys(side.source.log.files, 0))
    side.leader_side.receive(late, FrameKind.HAVE, stream.pack_have(have)[5:])
    assert side.sent() == [frame]
    side.leader_side.sender.send_batch()
    kinds = [kind for kind, _ in FrameReader().feed(b"".join(late.drain()))]
    assert FrameKind.BYTES not in kinds


def test_a_node_that_is_chosen_once_more_for_a_while_is_sent_drop_again() -> None:
    log, second = two_segments()
    side = Side(log)
    cluster = side.leader_side._cluster
    others = [node(number) for number in (2, 3)]
    cluster.members += others
    for other in others:
        cluster.links[other.number] = proved_link(None, other)
    now, reported = 1, []

    def lives_on() -> None:
        """All that are asked have everything, and the log states that they count."""
        nonlocal now
        for _ in range(4):
            now += 1_000_000_000
            side.leader_side.tick(now)
            for number, follower in list(side.leader_side.followers.items()):
                if follower.phase is Phase.ASKED:
                    have = stream.Have(log.end, [(FIRST.pack(), 0)], {0: 0, second: 0}, follower.asked)
                    side.leader_side.receive(cluster.links[number], FrameKind.HAVE, stream.pack_have(have)[5:])
                copied = stream.pack_copied(log.end, log.end)[5:]
                side.leader_side.receive(cluster.links[number], FrameKind.COPIED, copied)
            for number, link in cluster.links.items():
                for kind, content in FrameReader().feed(b"".join(link.drain())):
                    if kind is FrameKind.DROP:
                        reported.append(number)
                        assert stream.unpack_epochs(content) == [(FIRST.pack(), 0)]

    lives_on()
    (first,) = side.leader_side.followers
    link = cluster.links.pop(first)
    now += 60_000_000_000
    lives_on()
    (second_choice,) = side.leader_side.followers
    assert second_choice in reported
    cluster.links[first] = link
    lives_on()
    assert reported.count(second_choice) == 2


def _bytes(base: int, at: int, data: bytes) -> list[tuple[FrameKind, bytes]]:
    return [(FrameKind.BYTES, frame[5:]) for frame in stream.pack_bytes(base, at, [data], len(data))]

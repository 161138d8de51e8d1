"""Closed logs: who is told, when the log may be removed, and that nobody promotes a closed log."""

from collections.abc import Callable

from nsqd.cluster.membership.leader_frames import Closed, pack_closed, pack_kept
from nsqd.cluster.membership.leaders import MOST_CLOSED, Leaders
from nsqd.cluster.ownership.closed_logs import AGAIN, ClosedLogs
from nsqd.cluster.wire.frames import FrameKind
from nsqd.cluster.wire.link import Link
from nsqd.cluster.wire.part import Part
from nsqd.core.message.epoch import Epoch
from tests.nsqd.cluster.network import Network, SimMember
from tests.nsqd.cluster.ownership.test_elections import LOG, leader, started

WORD = Closed(b"l" * 16, 100, ((Epoch(1, 1, bytes(8)), 0), (Epoch(101, 0, bytes(8)), 80)))


class Node:
    """A member with its closed logs. What it knows becomes durable when `write` is called."""

    def __init__(self, member: SimMember) -> None:
        self.member = member
        self.waiting: list[Callable[[bool], None]] = []
        self.closed = ClosedLogs(member.cluster, lambda then: self.waiting.append(then))
        self.received: list[bytes] = []
        self.removable: list[bytes] = []
        part = Part()
        part.log_closed, part.log_removable = self.received.append, self.removable.append
        member.cluster.add(self.closed, part)

    def write(self, is_written: bool = True) -> None:
        waiting, self.waiting = self.waiting, []
        for then in waiting:
            then(is_written)


def nodes_of(network: Network, count: int) -> list[Node]:
    return [Node(member) for member in network.meet(count)]


def closing(seed: int, count: int = 2) -> tuple[Network, Node, Node]:
    """Two nodes, of which the first one has closed a log that `count` nodes must know of."""
    network = Network(seed)
    first, second = nodes_of(network, 2)
    first.closed.close(WORD, count)
    first.write()
    return network, first, second


def test_a_log_may_be_removed_when_enough_nodes_have_durably_that_it_is_closed() -> None:
    network = Network(1)
    first, second, third = nodes_of(network, 3)
    first.closed.close(WORD, 3)
    first.write()
    assert first.received == [WORD.log_id]
    network.run(1)
    second.write()
    network.run(1)
    assert (second.received, third.received, first.removable) == ([WORD.log_id], [], []), "two nodes have it, of three"
    assert not third.closed.is_closed(WORD.log_id), "it is not durable"
    third.write(is_written=False)
    network.run(1)
    assert first.removable == []
    third.closed.tick(third.member.now)
    third.write()
    network.run(1)
    assert first.removable == [WORD.log_id]
    assert third.member.cluster.leaders.closed == {WORD.log_id: WORD}


def test_one_other_node_has_it_even_if_nothing_was_copied_but_not_more_nodes_than_there_are() -> None:
    network, first, second = closing(2, 1)
    assert first.removable == []
    network.run(1)
    second.write()
    network.run(1)
    assert first.removable == [WORD.log_id]
    alone = Node(Network(3).start(0))
    alone.closed.close(WORD, 3)
    assert alone.removable == []
    alone.write()
    assert alone.removable == [WORD.log_id]


def test_a_start_calls_its_parts_when_all_of_them_were_added() -> None:
    node = Node(Network(3).start(0))
    node.closed.close(WORD, 3)
    node.write()
    node.removable.clear()
    node.closed.close(WORD, 3)
    assert node.removable == []
    node.closed.tick(0)
    assert node.removable == [WORD.log_id]


def test_a_node_that_comes_later_learns_of_it_from_any_other() -> None:
    network, first, second = closing(4)
    network.run(1)
    second.write()
    network.kill(first.member)
    network.run(1)
    late = Node(network.start(2, seeds=[second.member.own.address]))
    network.run(3)
    late.write()
    assert late.received == [WORD.log_id]


def test_a_node_that_closed_a_log_and_lost_its_disk_learns_that_and_passes_it_on() -> None:
    network = Network(6)
    first, second, third = nodes_of(network, 3)
    cut = {(one.member.own.address, third.member.own.address) for one in (first, second)}
    network.cut.update(cut, {(there, here) for here, there in cut})
    first.closed.close(WORD, 2)
    first.write()
    network.run(1)
    second.write()
    network.kill(first.member)
    network.run(30)  # so that it is suspected
    first = Node(network.start(0, seeds=[second.member.own.address]))
    network.cut.clear()
    network.run(60)
    for node in (first, third):
        node.write()
        assert node.closed.is_closed(WORD.log_id)


def test_who_waits_for_a_node_that_is_forgotten_waits_no_more() -> None:
    network = Network(5)
    first, second = nodes_of(network, 2)
    network.kill(second.member)
    network.run(60)  # so that it is suspected
    first.closed.close(WORD, 2)
    first.write()
    assert first.removable == []
    first.member.cluster.forget(1, first.member.now)
    first.closed.tick(first.member.now + AGAIN)
    assert first.removable == [WORD.log_id]


def test_the_word_of_a_node_that_has_lost_the_log_is_void() -> None:
    known = Leaders()
    assert known.close(WORD)
    assert not known.close(WORD)
    assert not known.learn(WORD.log_id, WORD.epoch) or WORD.log_id in known.closed
    assert known.learn(WORD.log_id, Epoch(201, 2, bytes(8)))
    assert known.closed == {}
    assert not known.close(WORD)
    assert known.closed == {}


def test_so_many_closed_logs_are_remembered() -> None:
    known = Leaders()
    for number in range(MOST_CLOSED + 1):
        known.close(WORD._replace(log_id=number.to_bytes(16)))
    assert len(known.closed) == MOST_CLOSED
    assert (0).to_bytes(16) not in known.closed


def test_a_word_that_another_leader_makes_void_lets_nothing_be_removed() -> None:
    _, first, second = closing(6)
    first.member.cluster.leaders.learn(WORD.log_id, Epoch(201, 1, bytes(8)))
    link: Link = first.member.cluster.links[1]
    first.closed.receive(link, FrameKind.CLOSED, pack_kept(FrameKind.CLOSED, WORD.log_id)[5:], 0)
    first.closed.tick(first.member.now + AGAIN)
    assert first.removable == []
    assert not first.closed.is_closed(WORD.log_id)
    assert second.removable == []


def test_a_closed_log_has_no_candidate_and_no_votes() -> None:
    run, nodes = started()
    epoch = nodes[1].cluster.leaders.epochs[LOG]
    run.network.kill(nodes[0])
    for node in nodes[1:2]:
        node.cluster.leaders.close(Closed(LOG, 10, ((epoch, 0),)))
    run.advance(60)
    assert leader(run) == 0, "node 2 has claimed it, and was told that it is closed"
    assert nodes[2].elections.candidate.failed > 0
    assert nodes[1].elections.candidate.failed == 0


def test_a_replica_of_a_closed_log_is_not_written() -> None:
    network = Network(7)
    first, _ = nodes_of(network, 2)
    cluster, log_id = first.member.cluster, network.members["node1:4152"].own.log_id
    assert cluster.may_write_replica(1, log_id)
    cluster.leaders.close(WORD._replace(log_id=log_id))
    assert not cluster.may_write_replica(1, log_id)


def test_a_word_that_is_no_news_is_answered_all_the_same() -> None:
    network = Network(8)
    first, second = nodes_of(network, 2)
    for node in (first, second):
        node.member.cluster.leaders.close(WORD)
    link = second.member.cluster.links[0]
    second.closed.receive(link, FrameKind.CLOSED, pack_closed(WORD)[5:], 0)
    second.write()
    assert bytes(link.output).endswith(pack_kept(FrameKind.CLOSED, WORD.log_id))


def test_a_word_that_replaces_one_is_kept_before_it_counts() -> None:
    node = Node(Network(6).start(0))
    node.closed.close(WORD, 1)
    node.write()
    assert node.closed.is_closed(WORD.log_id)
    epoch = WORD.epoch._replace(number=WORD.epoch.number + 1)
    later = WORD._replace(epochs=(*WORD.epochs, (epoch, WORD.end)))
    node.closed.close(later, 1)
    assert not node.closed.is_closed(WORD.log_id), "it is not durable"
    node.write()
    assert node.closed.is_closed(WORD.log_id)
    assert node.received == [WORD.log_id] * 2


def test_a_node_learns_from_the_word_that_it_has_lost_the_log() -> None:
    network = Network(7)
    first, second = nodes_of(network, 2)
    lost: list[object] = []
    follower = Part()
    follower.led = lambda log_id, epoch: lost.append((log_id, epoch))
    second.member.cluster.add(follower)
    first.closed.close(WORD, 2)
    network.run(1)
    assert lost == [(WORD.log_id, WORD.epoch)]
    assert second.member.cluster.leaders.leader(WORD.log_id) == WORD.epoch

"""Deletions in a log that this node has lost: which leader gets them, how often, and until when."""

from nsqd.cluster.membership.cluster import Cluster
from nsqd.cluster.membership.deletions import AGAIN, MOST_LOGS, LostLogDeletions, pack_deleted, with_deletions
from nsqd.cluster.membership.leader_frames import Closed
from nsqd.core.message.deletion import Deletion, DeletionKind, LogDeletions
from nsqd.core.message.epoch import Epoch
from tests.nsqd.cluster.network import Network, SimMember

LOG = b"l" * 16
WORD = LogDeletions(Epoch(1, 0, bytes(8)), 9, (Deletion(DeletionKind.TOPIC_DELETED, 4),))
LEADER = Epoch(101, 1, bytes(8))


def three() -> tuple[Network, list[SimMember]]:
    """Three nodes, of which the first has lost a log to the second."""
    network = Network(1)
    members = network.meet(3)
    members[0].cluster.deletions = LostLogDeletions([(LOG, WORD)])
    members[0].cluster.leaders.learn(LOG, LEADER)
    return network, members


def reported(cluster: Cluster, now: int) -> list[int]:
    """Return the numbers of the nodes that get deletions now."""
    before = {number: len(link.output) for number, link in cluster.links.items()}
    cluster.deletions.tick(cluster.leaders, cluster.links, now)
    frame = pack_deleted(LOG, WORD)
    return [number for number, link in cluster.links.items() if link.output[before[number] :] == frame]


def test_the_leader_is_notified_until_it_confirms() -> None:
    _, (first, *_) = three()
    cluster = first.cluster
    assert reported(cluster, 0) == [1]
    assert reported(cluster, AGAIN - 1) == []
    assert reported(cluster, AGAIN) == [1]
    cluster.deletions.answered(LOG, LEADER, 2)
    assert reported(cluster, 2 * AGAIN) == [1], "another node does not answer for it"
    cluster.deletions.answered(LOG, LEADER, 1)
    assert reported(cluster, 3 * AGAIN) == []
    assert cluster.deletions.known == {LOG: WORD}


def test_each_later_leader_is_notified_because_the_one_before_may_have_lost_it() -> None:
    _, (first, *_) = three()
    cluster = first.cluster
    reported(cluster, 0)
    cluster.deletions.answered(LOG, LEADER, 1)
    cluster.leaders.learn(LOG, Epoch(201, 2, bytes(8)))
    assert reported(cluster, 1) == [2]
    cluster.deletions.answered(LOG, cluster.leaders.leader(LOG), 1)
    assert reported(cluster, 1 + AGAIN) == [2], "an answer of the one before says nothing of it"


def test_a_connection_that_replaces_another_one_is_sent_everything_at_once() -> None:
    network, (first, *_) = three()
    assert reported(first.cluster, 0) == [1]
    network.close(next(number for number, link in first.ends.items() if link is first.cluster.links[1]), first)
    assert reported(first.cluster, 1) == []
    network.run(4)
    assert reported(first.cluster, 2) == [1]


def test_no_node_is_notified_of_a_closed_log_or_without_a_connected_leader() -> None:
    _, (first, *_) = three()
    cluster = first.cluster
    cluster.leaders.learn(LOG, Epoch(201, 7, bytes(8)))
    assert reported(cluster, 0) == []
    cluster.leaders.learn(LOG, Epoch(301, 1, bytes(8)))
    cluster.leaders.close(Closed(LOG, 20, ((Epoch(301, 1, bytes(8)), 9),)))
    other = b"m" * 16
    cluster.leaders.learn(other, LEADER)
    cluster.deletions.known[other] = WORD
    before = len(cluster.links[1].output)
    assert reported(cluster, 1) == []
    assert cluster.deletions.known == {other: WORD}
    assert cluster.links[1].output[before:] == pack_deleted(other, WORD), "the log after it is another matter"


def test_an_answer_about_an_unknown_log_is_ignored() -> None:
    deletions = LostLogDeletions()
    deletions.answered(LOG, LEADER, 1)
    deletions.answered(LOG, None, 1)
    assert deletions.known == {}


def test_what_is_kept_is_of_the_logs_that_were_lost_last() -> None:
    assert with_deletions([], LOG, None) == ()
    assert with_deletions([(LOG, WORD)], LOG, None) == (), "the log was rebuilt, and its tail deletes nothing now"
    known: tuple[tuple[bytes, LogDeletions], ...] = ()
    for number in range(MOST_LOGS + 2):
        known = with_deletions(known, number.to_bytes(16), WORD)
    assert len(known) == MOST_LOGS
    assert known[0][0] == (2).to_bytes(16)

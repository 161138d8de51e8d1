"""The leader of a log is the node of its greatest epoch, whatever the order of updates; and nodes report about themselves."""

from hypothesis import given
from hypothesis import strategies as st

from nsqd.cluster.membership.leader_frames import MOST_LOGS, Hold, Leadership, pack_leaders
from nsqd.cluster.membership.leaders import Leaders, Vote
from nsqd.core.message.epoch import Epoch
from tests.nsqd.cluster.network import Network

LOG, OTHER = b"l" * 16, b"m" * 16


def epoch(number: int, node: int = 0, random: int = 0) -> Epoch:
    return Epoch(number, node, random.to_bytes(8))


EPOCHS = st.lists(st.builds(epoch, st.integers(0, 3), st.integers(0, 3), st.integers(0, 2)), min_size=1, max_size=6)


@given(EPOCHS, st.randoms(use_true_random=False))
def test_the_greatest_epoch_holds_in_any_order(epochs: list[Epoch], random: object) -> None:
    one, other = Leaders(), Leaders()
    shuffled = list(epochs)
    random.shuffle(shuffled)
    news = [one.learn(LOG, each) for each in epochs]
    for each in shuffled:
        other.learn(LOG, each)
    assert one.leader(LOG) == other.leader(LOG) == max(epochs)
    assert news == [each > max(epochs[:place], default=epoch(-1)) for place, each in enumerate(epochs)]


def test_a_node_that_held_a_log_has_lost_it_when_another_epoch_is_greater() -> None:
    known = Leaders()
    known.hold(LOG, epoch(5, 1))
    known.learn(LOG, epoch(5, 1))
    assert (known.holds(LOG), known.lost()) == (True, [])
    assert known.leaderships() == [Leadership(LOG, epoch(5, 1), Hold.LEADS)]
    known.stepped_down[LOG] = None
    assert not known.holds(LOG)
    assert known.leaderships() == [Leadership(LOG, epoch(5, 1), Hold.STEPPED_DOWN)]
    known.learn(LOG, epoch(5, 1, 1))  # another run with the same number
    assert known.lost() == [(LOG, epoch(5, 1, 1))]
    assert known.leaderships() == [Leadership(LOG, epoch(5, 1, 1))]


def test_what_a_run_of_a_node_has_said_does_not_hold_for_the_next_one() -> None:
    known = Leaders([(LOG, epoch(5, 1))])
    assert not known.is_without(1, 7, LOG)  # it has reported nothing yet
    known.note_said(1, 7, [Leadership(LOG, epoch(5, 1), Hold.LEADS), Leadership(OTHER, epoch(9, 3))])
    assert known.said(1, 7, LOG) is Hold.LEADS
    assert (known.said(1, 7, OTHER), known.said(1, 8, LOG), known.said(2, 7, LOG)) == (None, None, None)
    known.learn(LOG, epoch(6, 1))  # others have reported of it first
    assert known.said(1, 7, LOG) is Hold.LEADS
    known.note_said(1, 7, [Leadership(LOG, epoch(6, 1))])  # it has learned of it from them, and opens the log again
    assert known.said(1, 7, LOG) is Hold.LEADS
    assert not known.is_without(1, 7, LOG)
    known.note_said(1, 7, [Leadership(LOG, epoch(6, 1), Hold.STEPPED_DOWN)])
    assert known.said(1, 7, LOG) is Hold.STEPPED_DOWN
    assert known.is_without(1, 7, LOG)
    known.learn(LOG, epoch(105, 2))
    assert known.said(1, 7, LOG) is None
    known.note_said(2, 8, [Leadership(OTHER, epoch(9, 3))])
    assert known.said(2, 8, LOG) is None
    assert not known.is_without(2, 8, LOG)  # it may have promoted the log since
    known.note_said(2, 8, [Leadership(LOG, epoch(105, 2))])
    assert known.is_without(2, 8, LOG)
    assert not known.is_without(2, 9, LOG)


def test_what_is_remembered_is_bounded_and_what_this_node_holds_or_has_promised_stays() -> None:
    logs = [number.to_bytes(16) for number in range(MOST_LOGS)]
    known = Leaders([(log_id, epoch(1)) for log_id in logs], [(logs[1], Vote(2, 0))])
    known.hold(logs[0], epoch(1))
    assert known.learn(LOG, epoch(1))
    assert len(known.epochs) == MOST_LOGS
    assert known.leader(logs[2]) is None
    assert None not in (known.leader(logs[0]), known.leader(logs[1]), known.leader(LOG))
    for log_id in logs:
        known.vote(log_id, Vote(3, 1))
    known.vote(LOG, Vote(3, 1))
    assert len(known.votes) == MOST_LOGS


def test_all_nodes_learn_of_a_leader_and_only_it_may_write_replicas() -> None:
    network = Network(1)
    one, two, three = network.meet(3)
    assert [node.cluster.may_write_replica(1, two.own.log_id) for node in (one, three)] == [True, True]
    network.cut = {("node0:4152", "node2:4152"), ("node2:4152", "node0:4152")}
    network.run(7)
    three.cluster.announce_leader(two.own.log_id, epoch(105, 2))
    network.run(1)
    assert {node.cluster.leaders.leader(two.own.log_id) for node in (one, two, three)} == {epoch(105, 2)}
    assert not one.cluster.may_write_replica(1, two.own.log_id)
    assert one.cluster.may_write_replica(2, two.own.log_id)
    assert two.cluster.leaders.said(2, three.own.incarnation, two.own.log_id) is Hold.LEADS
    assert one.cluster.leaders.said(2, three.own.incarnation, two.own.log_id) is None  # it has it from another node
    network.cut = set()
    network.run(70)
    assert one.cluster.leaders.said(2, three.own.incarnation, two.own.log_id) is Hold.LEADS
    three.cluster.step_down(two.own.log_id)
    network.run(1)
    assert one.cluster.leaders.said(2, three.own.incarnation, two.own.log_id) is Hold.STEPPED_DOWN


def test_a_node_that_says_that_it_leads_a_log_by_another_nodes_epoch_is_refused() -> None:
    network = Network(1)
    one, two, _ = network.meet(3)
    link = two.cluster.links[0]
    link.send_first(pack_leaders([Leadership(LOG, epoch(9, 2), Hold.LEADS)]))
    network.collect(two)
    network.run(1)
    assert one.cluster.leaders.leader(LOG) is None
    assert "another node" in link.closing

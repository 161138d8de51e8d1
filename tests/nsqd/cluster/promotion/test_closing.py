"""Which promoted log is closed, and what is removed of one that is."""

from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

from nsqd.cluster.membership.leader_frames import make_closed
from nsqd.cluster.ownership.closed_logs import AGAIN, ClosedLogs
from nsqd.cluster.promotion.closing import CHECK_EVERY, Closing
from nsqd.cluster.promotion.promotions import CLOSED, SERVING
from nsqd.cluster.wire.node_identity import Member, Standing
from nsqd.core.broker import Broker
from nsqd.core.message.attributes import Attributes
from nsqd.core.message.epoch import Epoch
from nsqd.core.scheduling.recurrence import At
from nsqd.core.scheduling.table import Missed, Schedule
from nsqd.storage.log.copies import Copies
from nsqd.storage.log.followers import Followers
from shared.topic_config import TopicConfig
from tests.cases import each
from tests.nsqd.cluster.network import Network
from tests.nsqd.cluster.promotion.new_leader import NewLeader
from tests.nsqd.cluster.promotion.test_promotions import new_leader
from tests.nsqd.cluster.wire.identities import node as identity
from tests.nsqd.storage.sim_node import NODE


class FakeOrigin:
    """The copies of a log whose epochs are those that were announced."""

    def __init__(self, node: NewLeader) -> None:
        self._node = node
        self.in_sync = SimpleNamespace(stated=Followers(), counting=frozenset({2}))
        self.copies = Copies(0)
        self.followers: dict[int, Any] = {}

    @property
    def source(self) -> SimpleNamespace:
        return SimpleNamespace(epochs=lambda: [(epoch.pack(), 0) for epoch in self._node.announced], end=100)


@dataclass
class FakeOldLogs:
    left: list[bytes] = field(default_factory=list)

    def found(self) -> list[bytes]:
        return list(self.left)

    def remove(self, log_id: bytes) -> None:
        self.left.remove(log_id)


class ClosingNode:
    """A node that has taken over a log, alone in its cluster except for words about others."""

    def __init__(self) -> None:
        self.node, self.log_id = new_leader()
        self.cluster = Network(1).start(1).cluster
        self.closed = ClosedLogs(self.cluster, lambda then: then(True))
        self.old_logs, self.own_end = FakeOldLogs([bytes(16), self.log_id]), 50
        self.is_agreed = True  # the node that closed a log knows what this one salvaged
        self.own = FakeOrigin(self.node)
        leader_sides = {self.log_id: FakeOrigin(self.node)}
        self.copying = SimpleNamespace(leader_side=self.own, leader_sides=leader_sides, replicas=self.node.replicas)
        self.now = 0
        self.closing = self.make()

    def make(self) -> Closing:
        work = self.node.work
        arguments = self.cluster, self.closed, self.node.promotions, self.copying, self.old_logs, work
        self.cluster.parts[:] = [self.node.promotions]
        closing = Closing(*arguments, lambda: self.own_end, lambda log_id: self.is_agreed)
        self.cluster.add(closing)
        return closing

    def promote(self) -> Broker:
        self.node.promotions.won(self.log_id, 70)
        self.node.run()
        led = self.node.promotions.logs[self.log_id]
        assert (led.state, led.node) == (SERVING, NODE)
        return led.broker

    def know(self, log_id: bytes, standing: Standing = Standing.MEMBER) -> None:
        """Let the node know that NODE publishes into a log."""
        self.cluster.membership.merge([Member(replace(identity(NODE, 1), log_id=log_id), standing)], 0)

    def reopen(self) -> None:
        self.node.promotions.logs.clear()
        self.node.promotions.host.is_closed = self.closed.is_closed
        self.node.promotions.reopen()

    def look(self) -> None:
        self.now += CHECK_EVERY
        self.closed.tick(self.now)
        self.closing.tick(self.now)
        self.node.run()


def emptied(broker: Broker) -> None:
    broker.begin(broker.now, broker.wall)
    for channel in broker.topics["t"].channels.values():
        channel.empty()
    broker.commit()


def closing_node(owes: bool = False, standing: Standing | None = None) -> ClosingNode:
    """A node that leads a log. `standing`: that of the log's node, which is known to publish into another log now."""
    node = ClosingNode()
    broker = node.promote()
    if not owes:
        emptied(broker)
    if standing is not None:
        node.know(b"n" * 16, standing)
        node.look()
    return node


def following() -> ClosingNode:
    node = ClosingNode()
    node.node.replicas.open_all()
    node.node.run()
    return node


def test_a_log_without_unfinished_messages_is_closed_when_its_node_publishes_into_another_one() -> None:
    node = closing_node(standing=Standing.LEFT)  # so that no other node must have the record
    assert node.closed.is_closed(node.log_id)
    assert node.cluster.leaders.closed[node.log_id].epoch == node.node.announced[-1]
    assert node.node.places.promoted is None, "its directory is removed"
    assert node.node.promotions.logs == {}
    assert node.old_logs.left == [bytes(16)]


def test_its_files_stay_until_another_member_has_that_durably() -> None:
    node = closing_node(standing=Standing.MEMBER)
    assert node.closed.is_closed(node.log_id)
    assert node.node.promotions.logs[node.log_id].state == CLOSED
    assert node.node.promotions.logs[node.log_id].log is None
    assert node.node.places.promoted is not None
    assert node.log_id in node.node.replicas.promoted, "no replica of it is begun"


@each("standing", list(Standing))
def test_a_log_whose_node_may_return_with_more_of_it_is_not_closed(standing: Standing) -> None:
    node = closing_node()
    node.look()
    assert not node.closed.is_closed(node.log_id), "nothing is known of the node"
    node.know(node.log_id, standing)
    node.look()
    assert node.closed.is_closed(node.log_id) == (standing is not Standing.MEMBER)


def test_a_log_that_owes_or_retains_something_is_not_closed() -> None:
    node = closing_node(owes=True, standing=Standing.LEFT)
    assert not node.closed.is_closed(node.log_id)
    led = node.node.promotions.logs[node.log_id]
    broker = led.broker
    broker.begin(broker.now, broker.wall)
    for channel in list(broker.topics["t"].channels):
        broker.directory.delete_channel(broker.topics["t"], channel)
    broker.commit()
    node.look()
    assert node.closed.is_closed(node.log_id), "no node waits for it"


def test_a_log_with_a_schedule_or_with_a_part_of_a_batch_that_is_not_done_is_not_closed() -> None:
    node = closing_node()
    broker = node.node.promotions.logs[node.log_id].broker
    schedules, batches = broker.context.schedules, broker.context.batches
    broker.begin(broker.now, broker.wall)
    schedules.put(Schedule("t", "s", At(9), Missed.ONCE, b"", (), 0))
    broker.topics["t"].publish_with([b"member"], Attributes((("batch", "b"),)))
    broker.topics["t"].publish_with([b"follow-up"], Attributes((("after", "b"),)))
    broker.commit()
    emptied(broker)
    assert [one["batches"] for one in node.node.promotions.figures()] == [1]
    node.know(b"n" * 16, Standing.LEFT)
    for end in (
        lambda: schedules.remove(("t", "s")), lambda: batches.close("b", 0),
        lambda: [batches.find_done(1, 9) for _ in "12"], lambda: batches.note_followed(batches.known["b"], [0]),
    ):  # fmt: skip
        node.look()
        assert not node.closed.is_closed(node.log_id)
        broker.begin(broker.now, broker.wall)
        end()
        broker.commit()
    node.look()
    assert node.closed.is_closed(node.log_id)


def test_a_start_removes_what_the_last_run_has_closed_and_does_not_serve_it() -> None:
    node = closing_node(standing=Standing.MEMBER)
    node.reopen()
    node.node.run()
    assert node.node.promotions.logs[node.log_id].state == CLOSED
    node.cluster.membership.records.pop(NODE)
    node.closing = node.make()
    node.now += AGAIN
    node.look()
    assert node.node.places.promoted is None


def test_a_node_that_learns_that_its_promoted_log_is_closed_stops_serving_it() -> None:
    node = closing_node(owes=True)
    word = node.cluster.leaders
    failed: list[bytes] = []
    node.node.promotions.host.failed = lambda log_id, why: failed.append(log_id)
    word.close(make_closed(node.log_id, 100, [(node.node.announced[-1]._replace(number=170, node=2), 0)]))
    node.look()
    assert node.node.places.promoted is None
    assert len(node.node.directory.aside) == 1, "it may hold what the node that has closed the log did not have"
    assert (node.node.promotions.logs, failed) == ({}, [node.log_id])


def test_a_start_sets_aside_what_another_node_has_closed() -> None:
    node = closing_node(owes=True)
    epoch = node.node.announced[-1]._replace(number=170, node=2)
    node.cluster.leaders.close(make_closed(node.log_id, 100, [(epoch, 0)]))
    node.closed = ClosedLogs(node.cluster, lambda then: then(True))
    node.reopen()
    node.closing = node.make()
    node.node.run()
    assert (len(node.node.directory.aside), node.node.promotions.logs) == (1, {})


def test_a_log_that_was_lost_to_damage_in_part_is_not_closed() -> None:
    node = closing_node()
    opened = node.node.promotions.logs[node.log_id].log
    opened.cache.failures = 1
    node.know(b"n" * 16, Standing.LEFT)
    node.look()
    assert not node.closed.is_closed(node.log_id), "a replica may have it whole"


def test_a_log_that_another_node_leads_by_a_later_epoch_is_not_closed_any_more() -> None:
    node = closing_node(standing=Standing.MEMBER)
    assert node.node.promotions.logs[node.log_id].state == CLOSED
    node.cluster.leaders.learn(node.log_id, node.node.announced[-1]._replace(number=999, node=2))
    node.look()
    assert node.node.promotions.logs == {}, "so a replica of it may be begun"
    assert len(node.node.directory.aside) == 1


def test_a_replica_that_was_in_use_when_its_log_was_closed_goes_later() -> None:
    node = following()
    kept = node.node.replicas.kept[node.log_id]
    removed: list[bytes] = []
    node.node.places.remove = removed.append
    word = make_closed(node.log_id, kept.replica.end, list(kept.replica.manifest.epochs))
    kept.on_released = lambda result: None  # this node is about to promote it
    node.cluster.leaders.close(word)
    node.look()
    assert removed == []
    kept.on_released = None
    node.look()
    assert removed == [node.log_id]


def test_a_replica_of_a_closed_log_goes_and_so_does_an_old_log_once_the_own_log_has_its_copies() -> None:
    node = following()
    removed: list[bytes] = []
    node.node.places.remove = removed.append
    node.know(b"n" * 16)  # it is a member, and could have a copy
    node.own.in_sync.stated = Followers((2,), 2, 2)
    node.own.followers[2] = SimpleNamespace(has_replica=True, durable=49)
    replica = node.node.replicas.kept[node.log_id].replica
    node.cluster.leaders.close(make_closed(node.log_id, replica.end, list(replica.manifest.epochs)))
    node.look()
    assert (removed, node.node.replicas.kept) == ([node.log_id], {})
    node.look()
    assert node.old_logs.left == [bytes(16), node.log_id], "the follower lacks the last byte"
    node.own.followers[2].durable = 50
    node.is_agreed = False
    node.look()
    assert node.old_logs.left == [bytes(16), node.log_id], "another node would salvage the same tail"
    node.is_agreed = True
    node.look()
    assert node.old_logs.left == [bytes(16)]


def test_an_old_log_that_is_closed_does_not_wait_for_more_copies_than_the_cluster_has_members() -> None:
    node = ClosingNode()
    node.own.in_sync.stated = Followers((2, 3), 2, 3)
    node.cluster.leaders.close(make_closed(bytes(16), 9, [(Epoch(1, NODE, bytes(8)), 0)]))
    node.look()
    assert node.old_logs.left == [node.log_id]


def test_a_replica_that_holds_more_than_a_closed_log_is_kept_as_a_diverged_copy() -> None:
    node = following()
    aside: list[bytes] = []
    node.node.places.keep_diverged = lambda log_id: aside.append(log_id) or "aside"
    node.cluster.leaders.close(make_closed(node.log_id, 100, [(Epoch(170, 2, bytes(8)), 0)]))
    node.look()
    assert (aside, node.node.replicas.kept) == ([node.log_id], {})


def test_a_log_that_retains_finished_messages_is_not_closed() -> None:
    node = ClosingNode()
    broker = node.promote()
    node.know(b"n" * 16, Standing.LEFT)
    opened, topic = node.node.promotions.logs[node.log_id].log, broker.topics["t"]
    broker.begin(broker.now, broker.wall)
    topic.configure(TopicConfig(retention=3600 * 10**9))
    sequence = opened.store.find_sequence(topic.number)
    sequence.retain(0)  # as if that had been set before the messages were published
    emptied(broker)
    node.look()
    assert not node.closed.is_closed(node.log_id)
    broker.begin(broker.now, broker.wall)
    broker.topics["t"].configure(TopicConfig())
    broker.commit()
    node.look()
    assert node.closed.is_closed(node.log_id)

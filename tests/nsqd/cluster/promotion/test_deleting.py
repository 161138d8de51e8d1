"""What other nodes have deleted from a log that this node promotes: when it is done, and when it is answered."""

from collections.abc import Callable
from functools import partial
from random import Random

import pytest

from nsqd.cluster.membership.deletions import LostLogDeletions, pack_content
from nsqd.cluster.membership.leader_frames import pack_kept
from nsqd.cluster.promotion.deleting import Deleting
from nsqd.cluster.promotion.promoted_log import SERVING, PromotedLog
from nsqd.cluster.wire.frames import FrameKind, PeerError
from nsqd.cluster.wire.link import Link
from nsqd.core.broker import Broker
from nsqd.core.limits import Limits
from nsqd.core.message.deletion import Deletion, DeletionKind, LogDeletions
from nsqd.core.message.epoch import Epoch
from nsqd.core.message.ids import IdSource, NoIds
from nsqd.core.shards import Attachment, promoted_broker
from nsqd.core.shards import Deletions as Noted
from nsqd.storage.memory import MemoryStore
from tests.nsqd.cluster.network import Network
from tests.nsqd.cluster.promotion.test_promotions import new_leader

ALL = 1 << 30


class DeletingNode:
    """A node that promotes a log with topic t and channel c, and is connected to two others."""

    def __init__(self) -> None:
        self.node, self.log_id = new_leader()
        self.cluster = Network(1).meet(3)[1].cluster
        store = MemoryStore(lambda ceiling: True)
        self.home = Broker(Limits(), store, IdSource(1, 1, lambda ceiling: True), Random(1).randrange)
        self.home.topic("t").channel("c")
        parts = self.node.promotions.host
        parts.make_broker = lambda opened: promoted_broker(self.home, opened.store, NoIds(opened.identity.node, 1))
        parts.attach, parts.detach = self.attach, self.detach
        self.attachment: Attachment
        self.deleting = Deleting(self.cluster, self.node.promotions, self.home)

    def promote(self) -> None:
        self.node.promotions.won(self.log_id, 70)
        self.node.run()
        assert self.led.state == SERVING

    def attach(self, broker: Broker, deletions: Noted | None) -> Callable[[], bool]:
        self.attachment = Attachment(self.home, broker, deletions)
        self.deleting.attached(broker)
        return partial(self.attachment.attach_batch, ALL)

    def detach(self, broker: Broker) -> Callable[[], bool]:
        return partial(self.attachment.detach_batch, ALL)

    @property
    def led(self) -> PromotedLog:
        return self.node.promotions.logs[self.log_id]

    @property
    def broker(self) -> Broker:
        broker = self.led.broker
        assert isinstance(broker, Broker)
        return broker

    def word(self, *deletions: Deletion, behind: int = 0) -> LogDeletions:
        """Return a word of the node that was cut off where this node's epoch begins, or `behind` positions behind that."""
        log = self.led.log
        (epoch, _), (_, end) = log.writer.all_epochs()[-2:]
        return LogDeletions(epoch, end + behind, deletions)

    def channel(self) -> Deletion:
        topic = self.broker.topics["t"]
        return Deletion(DeletionKind.CHANNEL_DELETED, topic.number, topic.channels["c"].number)

    def deliver(self, word: LogDeletions, number: int = 0) -> None:
        self.deleting.receive(self.link(number), FrameKind.DELETED, pack_content(self.log_id, word), 0)

    def link(self, number: int) -> Link:
        return self.cluster.links[number]

    def answers(self, number: int = 0) -> int:
        return bytes(self.link(number).output).count(pack_kept(FrameKind.DELETED, self.log_id))

    def commit(self) -> None:
        self.home.begin(self.node.clock.now, self.node.clock.wall)
        self.home.commit()

    def sync(self) -> None:
        self.led.log.syncer.sync_all()

    def make_durable(self) -> None:
        self.commit()
        self.sync()
        self.deleting.tick(1)


def served() -> DeletingNode:
    node = DeletingNode()
    node.promote()
    return node


def test_a_channel_goes_and_the_answer_comes_when_that_is_durable(caplog: pytest.LogCaptureFixture) -> None:
    node = served()
    node.deliver(node.word(node.channel()))
    assert "c" not in node.broker.topics["t"].channels
    assert node.home.topics["t"].channels["c"].shards == (node.home.topics["t"].channels["c"],)
    assert f"applied to the promoted log {node.log_id.hex()} the deletions of node 0" in caplog.text
    assert "the channel c of the topic t" in caplog.text
    node.deleting.tick(1)
    assert node.answers() == 0, "it is not written"
    node.commit()
    node.deleting.tick(2)
    assert node.answers() == 0, "it is not durable"
    node.sync()
    node.deleting.tick(3)
    node.deleting.tick(4)
    assert node.answers() == 1
    assert node.answers(2) == 0


def test_a_repeated_deletion_does_nothing_and_is_confirmed_again(caplog: pytest.LogCaptureFixture) -> None:
    node = served()
    word = node.word(node.channel())
    for _ in range(2):
        node.deliver(word)
        node.make_durable()
    assert node.answers() == 2
    assert caplog.text.count("the deletions of node 0") == 1


def test_a_deletion_before_the_log_is_open_is_applied_before_any_delivery() -> None:
    node = served()
    word = node.word(node.channel())
    parts = node.node.promotions.host
    node.node.promotions.begin_again(node.log_id, 90)
    node.deliver(word)
    node.deleting.tick(1)
    seen: list[tuple[str, ...]] = []

    def attach(broker: Broker, deletions: object) -> object:
        attaching = node.attach(broker, None)

        def watched() -> bool:
            seen.append(tuple(broker.topics["t"].channels))
            return attaching()

        return watched

    parts.attach = attach
    node.node.run()
    assert seen[0] == ()
    node.make_durable()
    assert node.answers() == 1


def test_what_was_lost_before_it_was_durable_is_done_again_when_the_log_is_opened_again() -> None:
    node = served()
    node.deliver(node.word(node.channel()))
    node.commit()
    node.node.promotions.begin_again(node.log_id, 90)
    node.node.run()
    assert "c" not in node.broker.topics["t"].channels
    node.make_durable()
    assert node.answers() == 1


def test_a_copy_that_diverged_elsewhere_is_left_as_it_is_without_a_reply() -> None:
    node = served()
    for behind in (-1, 1):
        node.deliver(node.word(node.channel(), behind=behind))
        node.make_durable()
    assert "c" in node.broker.topics["t"].channels
    assert node.answers() == 0


def test_what_is_said_of_a_log_that_this_node_does_not_own_is_ignored() -> None:
    node = DeletingNode()
    word = LogDeletions(Epoch(1, 0, bytes(8)), 1, (Deletion(DeletionKind.TOPIC_DELETED, 1),))
    node.deliver(word)
    node.deleting.tick(1)
    assert node.answers() == 0
    node.promote()
    assert "t" in node.broker.topics
    with pytest.raises(PeerError):
        node.deleting.receive(node.link(0), FrameKind.DELETED, b"short", 0)


def test_a_log_that_is_lost_is_answered_for_no_more() -> None:
    node = served()
    node.deliver(node.word(node.channel()))
    node.node.promotions.lose(node.log_id)
    node.deleting.tick(1)
    node.node.run()
    node.deleting.tick(2)
    assert node.answers() == 0


def test_a_confirmation_ends_the_notices_of_this_node() -> None:
    node = DeletingNode()
    word = LogDeletions(Epoch(1, 0, bytes(8)), 1, (Deletion(DeletionKind.TOPIC_DELETED, 1),))
    node.cluster.deletions = LostLogDeletions([(node.log_id, word)])
    node.cluster.leaders.learn(node.log_id, Epoch(101, 2, bytes(8)))
    before = len(node.link(2).output)
    node.deleting.tick(1)
    assert len(node.link(2).output) > before
    before = len(node.link(2).output)
    node.deleting.receive(node.link(2), FrameKind.DELETED, node.log_id, 0)
    node.deleting.tick(1 << 60)
    assert len(node.link(2).output) == before


def test_a_node_that_promotes_the_log_that_it_had_lost_deletes_there_itself() -> None:
    node = served()
    node.cluster.deletions = LostLogDeletions([(node.log_id, node.word(node.channel()))])
    node.deleting.tick(1)
    assert "c" not in node.broker.topics["t"].channels
    node.deleting.tick(2)

"""Up to where a topic's messages may be shown to those who list them: what waits for its copies is held back."""

from collections.abc import Callable
from random import Random

from nsqd.core.sequence.put_batch import JobOptions
from nsqd.core.topic import Topic
from nsqd.storage.log.store import REST_NS
from shared.topic_config import Durability
from tests.nsqd.core.node import SECOND
from tests.nsqd.storage.sim_node import Clock, SimNode
from tests.nsqd.storage.small_log import new_disk

FOLLOWERS = 2


class Publishing:
    """A node with two followers that say how far they are when the test lets them, and a topic."""

    def __init__(self) -> None:
        self.node = SimNode(new_disk(), Durability.OS, Clock(SECOND, 1_800_000_000 * SECOND), Random(1))
        self.node.log.store.after_write = lambda is_awaited, is_durable: None
        self.node.broker.set_copies(1 + FOLLOWERS)
        self.topic: Topic = self.node.broker.topic("t")
        self.node.turn()

    def publish(self, count: int = 1, copies: int = 0) -> None:
        def publish() -> None:
            if copies:
                self.topic.ask_for_copies(copies)
            for _ in range(count):
                self.topic.publish([b"x"], 1)

        self.node.turn(publish)

    def copy(self, followers: int = FOLLOWERS) -> None:
        """Let this number of followers write the whole log."""
        end = self.node.log.writer.written.position
        self.node.log.store.copies.update([(end, 0)] * followers)

    @property
    def shown(self) -> int:
        return self.topic.journal.copied_end()


def test_one_publish_with_copies_holds_what_follows_and_not_what_came_before() -> None:
    node = Publishing()
    node.publish(5)
    node.publish(copies=3)
    node.publish(5)
    assert node.shown == 5
    node.copy(1)
    assert node.shown == 5
    node.copy(2)
    assert node.shown == 11
    node.publish(5)
    node.publish(copies=2)
    assert node.shown == 16


def test_messages_have_left_in_the_turn_after_their_copies_came_though_it_writes_nothing() -> None:
    node = Publishing()
    clock, store = node.node.clock, node.node.log.store
    leaving = store.leaving(Durability.OS, 2)
    node.publish()
    delivered = clock.now
    node.node.turn(lambda: store._recorder.promise((leaving,)), lambda: node.topic.publish([b"x"], 1))
    assert leaving.left_at(delivered, clock.now) is None
    clock.advance(SECOND // 2)
    for _ in range(2):
        node.node.turn()
    node.copy()
    node.node.turn()
    assert leaving.left_at(delivered, delivered + SECOND) == delivered + SECOND // 2


def test_turns_in_which_nothing_happens_to_the_log_look_at_it_once_in_ten_milliseconds() -> None:
    node, looks = Publishing(), list[bool]()
    node.node.log.store.after_write = lambda is_awaited, is_durable: looks.append(is_awaited)
    for _ in range(3):
        node.publish()
    assert len(looks) == 3
    for _ in range(3):
        node.node.turn()
    assert len(looks) == 3
    node.node.clock.advance(REST_NS)
    for _ in range(3):
        node.node.turn()
    assert len(looks) == 4


def test_what_asks_for_copies_later_in_a_turn_does_not_show_what_asked_before() -> None:
    node = Publishing()
    node.publish(2, copies=3)
    node.copy()

    def publish() -> None:
        for _ in range(3):
            node.topic.ask_for_copies(3)
            node.topic.intake.put([b"x"], JobOptions())
            node.topic.seal_puts()

    node.node.turn(publish)
    assert node.shown == 2
    node.copy()
    assert node.shown == 5
    node.node.turn(publish)
    assert node.shown == 5


def test_a_log_that_is_transferred_acknowledges_nothing() -> None:
    acknowledged: list[int] = []
    node = Publishing()

    def publish() -> Callable[[], None]:
        node.topic.publish([b"x"], 1)
        node.topic.journal.promise()
        return lambda: acknowledged.append(node.topic.offsets.end)

    node.node.turn(publish)
    assert acknowledged == [1]
    node.node.log.store.is_transferred = True
    node.node.turn(publish)
    node.copy()
    node.node.turn()
    node.node.advance(60 * SECOND)
    assert acknowledged == [1]

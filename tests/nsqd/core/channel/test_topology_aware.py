"""Topology-aware delivery: the nearest consumers first, and no consumer starves.

See docs/contributing/design/nsq-protocol.md#topology-aware-delivery.
"""

from nsqd.core.channel.consumer import ELSEWHERE, SAME_REGION, SAME_ZONE
from nsqd.core.limits import Limits
from tests.cases import each
from tests.nsqd.core.client import Client
from tests.nsqd.core.node import SECOND, Inbox, Node, ids
from tests.nsqd.core.slow_store import SlowStore

LIMITS = Limits(topology_aware=True)


class Narrow(Inbox):
    """A sink that holds that many bytes until they are taken."""

    def room(self) -> int:
        return max(0, self.space - sum(map(len, self.frames)))


def join(node: Node, distance: int, ready: int, sample_rate: int = 0, room: int = 1 << 20) -> tuple[Client, Inbox]:
    inbox = Narrow(room)
    consumer = Client(node.channel("t", "c"), inbox, 60 * SECOND, sample_rate, distance)
    consumer.set_ready(ready)
    node.turn()
    return consumer, inbox


def publish(node: Node, count: int) -> None:
    node.publish("t", *(b"%d" % i for i in range(count)))


@each("order", [(SAME_ZONE, SAME_REGION, ELSEWHERE), (ELSEWHERE, SAME_REGION, SAME_ZONE)])
def test_the_nearest_consumers_come_first_in_any_order_of_subscribing(order: tuple[int, ...]) -> None:
    node = Node(LIMITS)
    inboxes = {distance: join(node, distance, 2)[1] for distance in order}
    for expected in (SAME_ZONE, SAME_ZONE, SAME_REGION, SAME_REGION, ELSEWHERE, ELSEWHERE):
        publish(node, 1)
        assert [distance for distance in order if inboxes[distance].take()] == [expected]
    assert node.channel("t", "c").dispatch.deliveries == [2, 2, 2]
    publish(node, 1)
    assert node.channel("t", "c").depth == 1


def test_bytes_count_as_room_and_far_ones_get_the_rest_at_once(node: Node) -> None:
    _, near = join(node, SAME_ZONE, 100, room=3 * 35)
    _, far = join(node, ELSEWHERE, 100)
    publish(node, 10)
    assert (len(near.take()), len(far.take())) == (3, 7)


def test_near_ones_share_and_take_turns(node: Node) -> None:
    inboxes = [join(node, SAME_ZONE, 100)[1] for _ in range(3)]
    far = join(node, ELSEWHERE, 100)[1]
    for count in (30, *[1] * 30):
        publish(node, count)
    assert [len(inbox.take()) for inbox in inboxes] == [20, 20, 20]
    assert far.take() == []


@each("windows", [(1, 100), (100, 1), (1, 1, 100, 3), (100, 5, 1, 1), (30, 1, 20)])
def test_no_far_consumer_gets_a_message_for_which_a_near_one_has_room(windows: tuple[int, ...]) -> None:
    """Also when the shares of those served first were too small for what the others had no room for."""
    node = Node(LIMITS)
    near = [join(node, SAME_ZONE, window)[1] for window in windows]
    far = join(node, ELSEWHERE, 100)[1]
    publish(node, 50)
    assert far.take() == []
    assert sum(len(inbox.take()) for inbox in near) == 50


def test_a_near_one_that_samples_drops_for_all(node: Node) -> None:
    """What it does not want is gone for the channel, as ever."""
    near, inbox = join(node, SAME_ZONE, 2500, sample_rate=9)
    _, far = join(node, ELSEWHERE, 2500)
    publish(node, 2000)
    kept = len(inbox.take())
    assert 100 < kept < 300
    assert far.take() == []
    assert node.channel("t", "c").dispatch.deliveries == [kept, 0, 0]
    assert node.held() == kept == near.in_flight


def test_one_that_samples_takes_no_more_than_its_window_in_a_pass(node: Node) -> None:
    """Else a backlog of millions would be discarded in one turn."""
    node.publish("t", *[b"x"] * 20_000)
    near, _ = join(node, SAME_ZONE, 0, sample_rate=1)
    near.set_ready(100)
    node.broker.serve()
    assert node.channel("t", "c").depth >= 20_000 - 100


def test_it_is_off_by_default() -> None:
    node = Node()
    _, far = join(node, ELSEWHERE, 10)
    _, near = join(node, SAME_ZONE, 10)
    publish(node, 1)
    assert (len(far.take()), len(near.take())) == (1, 0)
    assert node.channel("t", "c").dispatch.deliveries == [0, 0, 0]


def test_nothing_is_lost_while_the_store_reads() -> None:
    node = Node(LIMITS, SlowStore)
    store = node.store
    assert isinstance(store, SlowStore)
    consumers = [join(node, distance, 10) for distance in (SAME_ZONE, SAME_ZONE, SAME_REGION, ELSEWHERE)]
    store.cold = True
    publish(node, 40)
    for _ in range(9):
        for topic in store.fetch():
            node.broker.read_completed(topic)
        node.turn()
    assert [consumer.in_flight for consumer, _ in consumers] == [10, 10, 10, 10]
    for consumer, inbox in consumers:
        assert consumer.finish(ids(inbox.take())) == []
    assert node.held() == 0
    node.broker.check()

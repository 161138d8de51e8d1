"""Whose turn it is: rotation, shares, windows, room, samples and distance."""

from nsqd.core.channel.consumer import ELSEWHERE, SAME_REGION, SAME_ZONE, Consumer
from nsqd.core.channel.dispatch import TAKEN_AT_ONCE, Dispatch
from nsqd.core.message.frame import encode_one
from tests.cases import each
from tests.nsqd.core.node import Inbox

NOW = 5


class Pile:
    """A supply of numbered messages, each with an id."""

    def __init__(self, count: int, body: int = 0) -> None:
        self.left = [encode_one(b"x" * body, b"%016d" % number, 0) for number in range(count)]
        self.asked: list[tuple[int, int]] = []
        self.discarded: list[bytes] = []
        self.stretch = 1 << 30  # most it gives at once

    def put_in_flight(self, consumer: Consumer, count: int, room: int, now: int) -> list[bytes]:
        self.asked.append((count, room))
        count = min(count, self.stretch)
        taken, self.left = self.left[:count], self.left[count:]
        consumer.in_flight += len(taken)
        return taken

    def finish_undelivered(self, consumer: Consumer, message_id: bytes) -> None:
        self.discarded.append(message_id)
        consumer.in_flight -= 1


class Pipe(Inbox):
    """Delivered messages stay in it."""

    def deliver(self, frames: list[bytes], size: int, now: int) -> None:
        super().deliver(frames, size, now)
        self.space -= size


def numbers(inbox: Inbox) -> list[int]:
    return [int(delivery.id) for delivery in inbox.take()]


def dispatch(nearest_first: bool = False, random: int = 0) -> Dispatch:
    return Dispatch(nearest_first, lambda below: random)


def join(to: Dispatch, ready: int, room: int = 1 << 20, rate: int = 0, distance: int = ELSEWHERE) -> Consumer:
    consumer = Consumer(Pipe(room), 10, rate, distance)
    consumer.ready = ready
    to.refresh(consumer)
    return consumer


def serve(to: Dispatch, pile: Pile) -> None:
    to.serve(pile, len(pile.left), NOW)
    to.check()


def test_each_gets_an_equal_share_the_first_the_odd_one_and_the_start_rotates() -> None:
    to = dispatch()
    consumers = [join(to, 100) for _ in range(3)]
    serve(to, Pile(10))
    assert [numbers(consumer.sink) for consumer in consumers] == [[0, 1, 2, 3], [4, 5, 6], [7, 8, 9]]
    to = dispatch()
    consumers = [join(to, 100) for _ in range(3)]
    for _ in range(4):
        serve(to, Pile(1))
    assert [consumer.message_count for consumer in consumers] == [2, 1, 1]
    assert list(to.ready) == [consumers[1], consumers[2], consumers[0]]


def test_each_is_served_in_one_piece_and_room_is_asked_once_and_counted_down() -> None:
    to, pile = dispatch(), Pile(10)
    pile.stretch = 3
    consumer = join(to, 8)
    serve(to, pile)
    assert numbers(consumer.sink) == list(range(8))
    assert [count for count, _ in pile.asked] == [8, 5, 2]
    to, pile = dispatch(), Pile(10, body=66)  # 100 bytes each
    pile.stretch = 1
    consumer = join(to, 8, room=250)
    serve(to, pile)
    assert [room for _, room in pile.asked] == [250, 150, 50]
    assert (consumer.message_count, consumer.room) == (3, -50)
    assert not to.ready  # until it is refreshed


@each("nearest_first", [False, True])
def test_messages_that_come_one_by_one_are_delivered_over_several_turns(nearest_first: bool) -> None:
    to, pile = dispatch(nearest_first), Pile(2 * TAKEN_AT_ONCE)
    pile.stretch = 1
    consumers = [join(to, TAKEN_AT_ONCE) for _ in range(2)]
    consumers[0].ready = 10
    serve(to, pile)
    assert [consumer.message_count for consumer in consumers] == [10, TAKEN_AT_ONCE - 10]
    serve(to, pile)
    assert [consumer.message_count for consumer in consumers] == [10, TAKEN_AT_ONCE]


def test_a_supply_that_runs_dry_ends_the_pass_and_a_closed_window_leaves_at_once() -> None:
    to, pile = dispatch(), Pile(0)
    first, second = join(to, 5), join(to, 5)
    to.serve(pile, 9, NOW)
    assert len(pile.asked) == 1
    assert list(to.ready) == [second, first]
    to = dispatch()
    consumer = join(to, 5)
    consumer.ready = 0
    assert not to.refresh(consumer)
    assert not to.ready
    consumer.ready = consumer.in_flight = 1
    assert not to.refresh(consumer)
    consumer.in_flight = 0
    assert to.refresh(consumer)


@each("random, kept", [(0, True), (9, True), (10, False), (99, False)])
@each("nearest_first", [False, True])
def test_a_sample_rate_of_nine_keeps_ten_of_a_hundred(nearest_first: bool, random: int, kept: bool) -> None:
    """As in NSQ: a random number below 100 that is greater than the rate is a message that is not sent."""
    to, pile = dispatch(nearest_first, random), Pile(4)
    consumer = join(to, 3, rate=9)
    serve(to, pile)
    assert [count for count, _ in pile.asked] == [1, 1, 1]  # the whole share, one by one
    assert len(consumer.sink.take()) == consumer.message_count == (3 if kept else 0)
    assert len(pile.discarded) == (0 if kept else 3)


def test_nearest_first_and_again_while_they_have_room() -> None:
    to = dispatch(nearest_first=True)
    far, near, nearer = join(to, 50), join(to, 4, distance=SAME_REGION), join(to, 2, distance=SAME_ZONE)
    also_near = join(to, 20, distance=SAME_REGION)
    serve(to, Pile(20))
    assert [numbers(one.sink) for one in (nearer, near)] == [[0, 1], [2, 3, 4, 5]]
    assert (also_near.message_count, far.message_count) == (14, 0)
    assert to.deliveries == [2, 18, 0]
    serve(to, Pile(20))
    assert (also_near.message_count, far.message_count) == (20, 14)
    assert to.deliveries == [2, 24, 14]


@each("windows", [(1, 100), (100, 1), (1, 1, 100, 3), (100, 5, 1, 1), (30, 1, 20)])
def test_no_far_consumer_gets_a_message_for_which_a_near_one_has_room(windows: tuple[int, ...]) -> None:
    """Also when the shares of those served first were too small for what the others had no room for."""
    to = dispatch(nearest_first=True)
    near = [join(to, window, distance=SAME_ZONE) for window in windows]
    far = join(to, 100)
    serve(to, Pile(50))
    assert (far.message_count, sum(one.message_count for one in near)) == (0, 50)


def test_without_topology_distances_are_not_counted() -> None:
    to = dispatch()
    consumer = join(to, 5, distance=SAME_ZONE)
    assert repr(to) == "<Dispatch: 1 ready>"
    assert repr(consumer) == "<Consumer: RDY 5, 0 in flight, room for 1048576 bytes>"
    serve(to, Pile(3))
    assert to.deliveries == [0, 0, 0]

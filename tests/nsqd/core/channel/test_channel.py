"""Topics and channels in conversation: given, when, then. What NSQ does, in virtual time.

See docs/design/nsq-protocol.md#what-a-queue-promises.
"""

import gc
import weakref

from nsqd.core.channel import commands
from nsqd.core.channel.inflight import NOT_IN_FLIGHT, NOT_OWNER
from nsqd.core.limits import Limits
from nsqd.core.registry import ChangeKind
from tests.cases import each
from tests.nsqd.core.client import Client
from tests.nsqd.core.node import MS, SECOND, Inbox, Node, bodies, ids


def test_first_channel_gets_the_backlog_later_ones_what_comes(node: Node) -> None:
    node.publish("t", b"old")
    assert node.broker.topic("t").depth == 1
    _, first = node.subscribe("t", "a", 10)
    _, second = node.subscribe("t", "b", 10)
    node.publish("t", b"new")
    assert bodies(first.take()) == [b"old", b"new"]
    assert bodies(second.take()) == [b"new"]
    assert node.broker.topic("t").depth == 0


def test_fifo_over_batches(node: Node) -> None:
    _, inbox = node.subscribe("t", "c", 2500)
    for i in range(0, 300, 3):
        node.publish("t", *(b"%d" % (i + k) for k in range(3)))
    assert bodies(inbox.take()) == [b"%d" % i for i in range(300)]


def test_rdy_is_a_window(node: Node) -> None:
    consumer, inbox = node.subscribe("t", "c", 2)
    node.publish("t", b"1", b"2", b"3")
    first = inbox.take()
    assert bodies(first) == [b"1", b"2"]
    assert consumer.finish(first[0].id) == []
    node.turn()
    assert bodies(inbox.take()) == [b"3"]
    assert consumer.in_flight == 2


def test_fan_out_shares_frames_and_frees_them_when_all_have_finished(node: Node) -> None:
    (a, in_a), (b, in_b) = node.subscribe("t", "a", 10), node.subscribe("t", "b", 10)
    node.publish("t", b"1", b"2", b"3")
    assert in_a.frames[0] is in_b.frames[0]
    got_a, got_b = in_a.take(), in_b.take()
    a.finish(ids(got_a))
    assert node.held() == 3
    b.finish(got_b[1].id)
    assert node.held() == 2
    b.finish(got_b[0].id + got_b[2].id)
    assert node.held() == 0


def test_attempts_are_the_channels_own(node: Node) -> None:
    (a, in_a), (_, in_b) = node.subscribe("t", "a", 1), node.subscribe("t", "b", 0)
    node.publish("t", b"x")
    for attempt in range(1, 6):
        (message,) = in_a.take()
        assert message.attempts == attempt
        if attempt < 5:
            assert a.requeue(message.id, 0, node.now) == ""
            node.turn()
    channel = node.channel("t", "b")
    commands.set_ready(channel, next(iter(channel.consumers.values())), 1)
    node.turn()
    (message,) = in_b.take()
    assert message.attempts == 1


def test_requeue_goes_to_the_tail(node: Node) -> None:
    consumer, inbox = node.subscribe("t", "c", 1)
    node.publish("t", b"1", b"2", b"3")
    (one,) = inbox.take()
    assert consumer.requeue(one.id, 0, node.now) == ""
    order = []
    for _ in range(3):
        node.turn()
        (message,) = inbox.take()
        order.append(message.body)
        consumer.finish(message.id)
    assert order == [b"2", b"3", b"1"]
    assert consumer.requeue_count == node.channel("t", "c").requeue_count == 1


def test_requeued_messages_do_not_wait_behind_millions() -> None:
    node = Node(Limits(mem_queue_size=3))
    consumer, inbox = node.subscribe("t", "c", 1)
    node.publish("t", *(b"%d" % i for i in range(100)))
    (zero,) = inbox.take()
    consumer.requeue(zero.id, 0, node.now)
    order = []
    for _ in range(5):
        node.turn()
        (message,) = inbox.take()
        order.append(message.body)
        consumer.finish(message.id)
    assert order == [b"1", b"2", b"3", b"0", b"4"]
    node.broker.check()


def test_a_wide_window_does_not_run_past_the_retry_lane() -> None:
    node = Node(Limits(mem_queue_size=3))
    consumer, inbox = node.subscribe("t", "c", 1)
    node.publish("t", *(b"%d" % i for i in range(8)))
    (zero,) = inbox.take()
    consumer.requeue(zero.id, 0, node.now)
    consumer.set_ready(100)
    node.turn()
    assert bodies(inbox.take()) == [b"1", b"2", b"3", b"0", b"4", b"5", b"6", b"7"]
    node.broker.check()


def test_requeue_with_delay(node: Node) -> None:
    consumer, inbox = node.subscribe("t", "c", 1)
    node.publish("t", b"x")
    (message,) = inbox.take()
    consumer.requeue(message.id, 500 * MS, node.now)
    channel = node.channel("t", "c")
    assert (channel.deferred_count, channel.depth, channel.in_flight_count) == (1, 0, 0)
    node.advance(499 * MS)
    assert inbox.take() == []
    node.advance(30 * MS)
    (again,) = inbox.take()
    assert (again.attempts, again.id) == (2, message.id)


def test_time_out(node: Node) -> None:
    consumer, inbox = node.subscribe("t", "c", 1, timeout=SECOND)
    node.publish("t", b"x")
    (message,) = inbox.take()
    node.advance(999 * MS)
    assert inbox.take() == []
    node.advance(30 * MS)
    (again,) = inbox.take()
    assert again.attempts == 2
    assert node.channel("t", "c").timeout_count == 1
    assert consumer.in_flight == 1
    assert consumer.finish(again.id) == []
    assert consumer.finish(message.id) == [(message.id, NOT_IN_FLIGHT)]


def test_a_message_on_a_channel_younger_than_five_seconds_times_out_too(node: Node) -> None:
    _, inbox = node.subscribe("t", "young", 1, timeout=SECOND)
    node.publish("t", b"x")
    inbox.take()
    node.advance(SECOND + 30 * MS)  # NSQ has a blind spot here: 5.1 s
    assert bodies(inbox.take()) == [b"x"]


def test_touch_moves_the_deadline_but_not_beyond_the_longest(node: Node) -> None:
    consumer, inbox = node.subscribe("t", "c", 1, timeout=SECOND)
    node.publish("t", b"x")
    (message,) = inbox.take()
    for _ in range(4):
        node.advance(700 * MS)
        assert consumer.touch(message.id, SECOND, 3 * SECOND, node.now) == ""
    assert inbox.take() == []
    node.advance(300 * MS)  # 3.1 s after delivery
    assert bodies(inbox.take()) == [b"x"]


def test_others_cannot_finish_what_is_not_theirs(node: Node) -> None:
    consumer, inbox = node.subscribe("t", "c", 1)
    other, _ = node.subscribe("t", "c")
    node.publish("t", b"x")
    (message,) = inbox.take()
    assert other.finish(message.id) == [(message.id, NOT_OWNER)]
    assert other.requeue(message.id, 0, node.now) == NOT_OWNER
    assert other.touch(message.id, 1, 1, node.now) == NOT_OWNER
    assert other.finish(b"0" * 16) == [(b"0" * 16, NOT_IN_FLIGHT)]
    assert consumer.finish(message.id) == []


def test_finishes_out_of_order(node: Node) -> None:
    consumer, inbox = node.subscribe("t", "c", 100)
    node.publish("t", *(b"%d" % i for i in range(60)))
    node.publish("t", *(b"%d" % i for i in range(60, 80)))
    got = inbox.take()
    order = got[70:] + got[10:30:2] + got[0:10] + got[69:40:-1]
    assert consumer.finish(ids(order)) == []
    node.broker.check()
    rest = [message for message in got if message not in order]
    assert consumer.in_flight == len(rest) == node.held()
    assert consumer.finish(ids(rest)) == []
    assert node.held() == 0


def test_a_batch_of_finishes_with_a_stranger_in_it(node: Node) -> None:
    consumer, inbox = node.subscribe("t", "c", 10)
    node.publish("t", b"1", b"2", b"3")
    got = inbox.take()
    assert consumer.finish(got[0].id + b"f" * 16 + got[1].id + got[1].id + got[2].id) == [
        (b"f" * 16, NOT_IN_FLIGHT),
        (got[1].id, NOT_IN_FLIGHT),
    ]
    assert consumer.in_flight == 0


def test_disconnect_leaves_messages_to_their_time_out(node: Node) -> None:
    consumer, inbox = node.subscribe("t", "c", 1, timeout=SECOND)
    node.publish("t", b"x")
    assert bodies(inbox.take()) == [b"x"]
    _, other_inbox = node.subscribe("t", "c", 1)
    consumer.leave(node.broker)
    node.turn()
    assert other_inbox.take() == []
    node.broker.check()
    node.advance(SECOND + 30 * MS)
    assert bodies(other_inbox.take()) == [b"x"]


def test_consumers_share_fairly(node: Node) -> None:
    inboxes = [node.subscribe("t", "c", 2500)[1] for _ in range(4)]
    node.publish("t", *(b"%d" % i for i in range(1000)))
    assert [len(inbox.take()) for inbox in inboxes] == [250] * 4


def test_nothing_is_taken_for_a_full_output_buffer(node: Node) -> None:
    consumer, inbox = node.subscribe("t", "c", 2500)
    inbox.space = 0
    consumer.refresh()
    node.publish("t", b"x")
    assert inbox.take() == []
    inbox.space = 1
    consumer.refresh()
    node.turn()
    assert bodies(inbox.take()) == [b"x"]


def test_room_bounds_what_is_taken_at_once() -> None:
    node = Node()
    inbox = Inbox(room=3000)
    consumer = Client(node.channel("t", "c"), inbox, SECOND, 0)
    consumer.set_ready(2500)
    node.broker.topic("t").publish([b"x" * 966] * 10, 9660)
    node.broker.commit()
    node.broker.serve()
    assert len(inbox.take()) == 3


def test_pause_channel(node: Node) -> None:
    consumer, inbox = node.subscribe("t", "c", 5, timeout=SECOND)
    node.publish("t", b"1")
    (one,) = inbox.take()
    channel = node.channel("t", "c")
    node.broker.pause(channel, True)
    assert inbox.flushes
    node.publish("t", b"2")
    assert inbox.take() == []
    assert channel.depth == 1
    assert consumer.finish(one.id) == []
    node.broker.pause(channel, False)
    node.turn()
    assert bodies(inbox.take()) == [b"2"]


def test_pause_topic_keeps_messages_for_all_channels_made_meanwhile(node: Node) -> None:
    _, a = node.subscribe("t", "a", 10)
    topic = node.broker.topic("t")
    node.broker.pause(topic, True)
    node.publish("t", b"x")
    _, b = node.subscribe("t", "b", 10)
    assert (a.take(), b.take(), topic.depth) == ([], [], 1)
    node.broker.pause(topic, False)
    node.turn()
    assert bodies(a.take()) == bodies(b.take()) == [b"x"]


def test_empty_channel(node: Node) -> None:
    consumer, inbox = node.subscribe("t", "c", 3)
    node.publish("t", *(b"%d" % i for i in range(9)))
    node.publish_deferred("t", b"later", SECOND)
    got = inbox.take()
    consumer.requeue(got[0].id, SECOND, node.now)
    channel = node.channel("t", "c")
    assert channel.deferred_count == 2
    consumer.set_ready(0)
    channel.empty()
    assert (channel.depth, channel.in_flight_count, channel.deferred_count) == (0, 0, 0)
    assert consumer.in_flight == 0
    assert node.held() == 0
    assert consumer.finish(got[1].id) == [(got[1].id, NOT_IN_FLIGHT)]
    assert channel.message_count == 10
    consumer.set_ready(5)
    node.advance(2 * SECOND)
    assert inbox.take() == []
    node.publish("t", b"new")
    assert bodies(inbox.take()) == [b"new"]


def test_empty_topic_drops_only_what_no_channel_has(node: Node) -> None:
    consumer, inbox = node.subscribe("t", "c", 0)
    node.publish("t", b"mine")
    topic = node.broker.topic("t")
    node.broker.pause(topic, True)
    node.publish("t", b"gone")
    node.publish_deferred("t", b"gone too", SECOND)
    topic.empty()
    assert topic.depth == 0
    node.broker.pause(topic, False)
    node.publish("t", b"next")
    consumer.set_ready(10)
    node.advance(2 * SECOND)
    assert bodies(inbox.take()) == [b"mine", b"next"]


def test_delete_channel_disconnects_and_starts_clean(node: Node) -> None:
    _, inbox = node.subscribe("t", "c", 1)
    node.publish("t", b"1", b"2")
    node.broker.directory.delete_channel(node.broker.topics["t"], "c")
    assert inbox.gone
    assert node.held() == 0
    node.publish("t", b"3")
    _, again = node.subscribe("t", "c", 10)
    assert bodies(again.take()) == [b"3"]


def test_delete_topic_frees_everything(node: Node) -> None:
    _, inbox = node.subscribe("t", "c", 1)
    node.publish("t", b"1", b"2")
    node.publish_deferred("t", b"3", SECOND)
    node.broker.delete_topic("t")
    assert inbox.gone
    assert node.held() == 0
    node.publish("t", b"4")
    _, again = node.subscribe("t", "c", 10)
    assert bodies(again.take()) == [b"4"]


def test_messages_published_in_the_turn_of_the_deletion_do_not_harm(node: Node) -> None:
    topic = node.broker.topic("t")
    topic.publish([b"x"], 1)
    node.broker.delete_topic("t")
    topic.publish([b"y"], 1)  # by somebody who still holds the topic
    node.turn()
    assert node.held() == 0
    assert topic.offsets.end == 0  # nothing of it is in the log


def test_ephemeral_channel_goes_with_its_last_consumer(node: Node) -> None:
    a, _ = node.subscribe("t", "c#ephemeral", 1)
    b, _ = node.subscribe("t", "c#ephemeral", 1)
    a.leave(node.broker)
    assert "c#ephemeral" in node.broker.topic("t").channels
    b.leave(node.broker)
    assert node.broker.topic("t").channels == {}
    assert "t" in node.broker.topics


def test_ephemeral_topic_goes_with_its_last_channel(node: Node) -> None:
    node.broker.topic("e#ephemeral")
    assert "e#ephemeral" in node.broker.topics
    a, _ = node.subscribe("e#ephemeral", "c#ephemeral", 1)
    a.leave(node.broker)
    assert "e#ephemeral" not in node.broker.topics


def test_ephemeral_channel_drops_new_messages_beyond_its_queue() -> None:
    node = Node(Limits(mem_queue_size=3))
    consumer, inbox = node.subscribe("t", "c#ephemeral", 0)
    for i in range(5):
        node.publish("t", b"%d" % i)
    channel = node.channel("t", "c#ephemeral")
    assert (channel.depth, channel.dropped_count) == (3, 2)
    assert node.held() == 3
    consumer.set_ready(2)
    node.turn()
    node.publish("t", b"5", b"6", b"7")
    consumer.set_ready(100)
    node.turn()
    assert bodies(inbox.take()) == [b"0", b"1", b"2", b"5", b"6"]
    node.broker.check()


def test_ephemeral_topic_without_channels_is_bounded() -> None:
    node = Node(Limits(mem_queue_size=3))
    node.publish("e#ephemeral", *(b"%d" % i for i in range(5)))
    node.publish("e#ephemeral", b"5")
    _, inbox = node.subscribe("e#ephemeral", "c", 10)
    assert bodies(inbox.take()) == [b"0", b"1", b"2"]
    node.broker.check()


def test_deferred_publish_reaches_each_channel_once_when_due(node: Node) -> None:
    (_, a), (_, b) = node.subscribe("t", "a", 10), node.subscribe("t", "b", 10)
    node.publish_deferred("t", b"later", SECOND)
    node.publish("t", b"now")
    assert bodies(a.take()) == bodies(b.take()) == [b"now"]
    assert node.channel("t", "a").deferred_count == 1
    _, late = node.subscribe("t", "late", 10)
    node.advance(SECOND - MS)
    assert a.take() == []
    node.advance(30 * MS)
    got = a.take()
    assert bodies(got) == bodies(b.take()) == [b"later"]
    assert got[0].attempts == 1
    assert late.take() == []


def test_deferred_publish_that_comes_due_before_there_is_a_channel(node: Node) -> None:
    node.publish_deferred("t", b"x", SECOND)
    node.advance(5 * SECOND)
    _, inbox = node.subscribe("t", "c", 10)
    node.advance(30 * MS)
    assert bodies(inbox.take()) == [b"x"]


def test_deferred_publish_before_there_is_a_channel_keeps_its_delay(node: Node) -> None:
    node.publish_deferred("t", b"x", 5 * SECOND)
    node.advance(SECOND)
    _, inbox = node.subscribe("t", "c", 10)
    assert node.channel("t", "c").deferred_count == 1
    node.advance(3990 * MS)
    assert inbox.take() == []
    node.advance(40 * MS)
    assert bodies(inbox.take()) == [b"x"]


def test_a_deferred_message_waits_while_its_topic_is_paused(node: Node) -> None:
    _, inbox = node.subscribe("t", "c", 10)
    topic = node.broker.topic("t")
    node.broker.pause(topic, True)
    node.publish_deferred("t", b"x", SECOND)
    node.advance(2 * SECOND)
    assert inbox.take() == []
    node.broker.pause(topic, False)
    node.advance(30 * MS)
    assert bodies(inbox.take()) == [b"x"]


def test_a_starting_topic_hands_out_nothing_until_its_channels_are_known(node: Node) -> None:
    node.broker.directory.ask_for_channels = True
    _, inbox = node.subscribe("t", "mine", 10)
    node.publish("t", b"first")
    assert inbox.take() == []
    topic = node.broker.topic("t")
    topic.channel("elsewhere")
    topic.start()
    node.turn()
    assert bodies(inbox.take()) == [b"first"]
    assert node.channel("t", "elsewhere").depth == 1


def test_changes_are_told(node: Node) -> None:
    node.subscribe("t", "c", 0)
    node.broker.pause(node.channel("t", "c"), True)
    node.broker.directory.delete_channel(node.broker.topics["t"], "c")
    node.broker.topic("e#ephemeral")
    kinds = [(change.kind, change.channel, change.lasting) for change in node.broker.fetch_changes()]
    assert kinds == [
        (ChangeKind.TOPIC_CREATED, "", True),
        (ChangeKind.CHANNEL_CREATED, "c", True),
        (ChangeKind.PAUSED, "c", True),
        (ChangeKind.CHANNEL_DELETED, "c", True),
        (ChangeKind.TOPIC_CREATED, "", False),
    ]
    assert node.broker.fetch_changes() == []


def test_sampling_keeps_its_share_and_forgets_the_rest(node: Node) -> None:
    inbox = Inbox()
    channel = node.channel("t", "c")
    consumer = Client(channel, inbox, SECOND, 24)
    consumer.set_ready(2500)
    node.publish("t", *(b"%d" % i for i in range(2000)))
    got = inbox.take()
    assert 400 < len(got) < 600  # 25 %
    assert consumer.in_flight == len(got) == node.held()
    assert channel.depth == 0
    assert consumer.finish_count == 0
    consumer.finish(ids(got))
    assert node.held() == 0


@each("mem_queue_size", [0, 10])
@each("backlog", [0, 300])
def test_a_delayed_message_finished_before_the_cursor_came_by(mem_queue_size: int, backlog: int) -> None:
    """It came by the retry lane; what is left of its place in the sequence must neither stop nor mislead the cursor."""
    node = Node(Limits(mem_queue_size=mem_queue_size))
    consumer, inbox = node.subscribe("t", "c", 1)
    node.publish("t", *(b"%d" % i for i in range(backlog)))
    node.publish_deferred("t", b"later", MS)
    node.advance(60 * MS)
    node.publish("t", b"last")
    seen = []
    for _ in range(backlog + 2):
        got = inbox.take()
        seen += bodies(got)
        consumer.finish(ids(got))
        node.turn()
    assert sorted(seen) == sorted([*(b"%d" % i for i in range(backlog)), b"later", b"last"])
    assert (node.held(), node.channel("t", "c").depth) == (0, 0)
    node.channel("t", "c").empty()
    node.broker.check()


def test_the_last_consumer_of_an_ephemeral_channel_leaves_nothing_behind(node: Node) -> None:
    consumer, inbox = node.subscribe("t", "c#ephemeral", 5)
    node.publish("t", b"1", b"2")
    alive = weakref.ref(inbox)
    gc.collect()
    gc.disable()  # the daemon never collects old garbage: reference counts must do
    try:
        consumer.leave(node.broker)
        del consumer, inbox
        assert alive() is None
    finally:
        gc.enable()
    assert node.held() == 0


def test_a_leaver_keeps_its_messages_but_not_its_connection(node: Node) -> None:
    consumer, inbox = node.subscribe("t", "c", 5)
    node.publish("t", b"1")
    alive = weakref.ref(inbox)
    consumer.leave(node.broker)
    del inbox
    gc.collect()
    assert alive() is None
    assert node.channel("t", "c").in_flight_count == 1
    node.advance(61 * SECOND)
    assert node.channel("t", "c").depth == 1
    assert node.channel("t", "c").in_flight.runs() == []


def test_a_smaller_window_flushes_like_none(node: Node) -> None:
    consumer, inbox = node.subscribe("t", "c", 10)
    node.publish("t", b"1", b"2")
    inbox.flushes = 0
    consumer.set_ready(3)
    assert inbox.flushes == 0
    consumer.set_ready(2)
    assert inbox.flushes == 1


def test_an_ephemeral_topic_is_bounded_while_it_starts() -> None:
    node = Node(Limits(mem_queue_size=3))
    node.broker.directory.ask_for_channels = True
    node.channel("e#ephemeral", "c")
    node.publish("e#ephemeral", *(b"%d" % i for i in range(9)))
    assert node.broker.topic("e#ephemeral").depth == 3
    node.broker.check()


def test_a_backlog_with_a_delayed_message_in_it_is_bounded_too() -> None:
    node = Node(Limits(mem_queue_size=3))
    topic = node.broker.topic("t")
    consumer, inbox = node.subscribe("t", "c#ephemeral", 0)
    node.broker.pause(topic, True)
    node.publish("t", b"0", b"1")
    node.publish_deferred("t", b"later", MS)
    node.publish("t", b"2", b"3", b"4")
    node.broker.pause(topic, False)
    assert node.channel("t", "c#ephemeral").depth == 3
    consumer.set_ready(100)
    node.advance(60 * MS)
    assert sorted(bodies(inbox.take())) == [b"0", b"1", b"2", b"later"]
    node.broker.check()


def test_an_idle_channel_keeps_nothing_of_what_is_finished(node: Node) -> None:
    consumer, inbox = node.subscribe("t", "c", 2500)
    node.publish("t", *[b"x"] * 2000)
    consumer.finish(ids(inbox.take()))
    channel = node.channel("t", "c")
    assert (channel.backlog._extent, channel.in_flight._fresh, channel.in_flight.runs()) == (None, [], [])

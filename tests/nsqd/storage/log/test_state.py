"""The state of a topic in a checkpoint: read as it was written."""

from array import array
from random import Random

from nsqd.core.channel.state import ChannelState
from nsqd.core.sequence.put_batch import JobOptions
from nsqd.core.timing.deferred import counts_of
from nsqd.core.timing.deferred_pages import DeferredPages
from nsqd.core.timing.pause import Pause
from nsqd.core.topic_state import TopicState, state_of
from nsqd.storage.log.state import decode_topic, encode_topic
from nsqd.storage.sequence import Sequence
from shared.topic_config import Durability, TopicConfig
from tests.nsqd.core.node import SECOND
from tests.nsqd.storage.sim_node import SimNode

HOUR = 3600 * SECOND


def read(content: bytes) -> tuple[TopicState, Sequence]:
    return decode_topic(content, {}, {})


def channel_of(state: TopicState) -> ChannelState:
    (channel,) = state.readers.values()
    assert isinstance(channel, ChannelState)
    return channel


def test_a_topic_is_read_as_it_was_written() -> None:
    one = SimNode()
    topic = one.broker.topic("t")
    topic.configure(TopicConfig(Durability.OS, HOUR, 5, max_attempts=7))
    consumer, inbox = one.subscribe(ready=4)
    one.turn(lambda: topic.publish([b"x"] * 10, 10), lambda: topic.intake.publish_deferred(b"y", one.clock.now + HOUR))
    taken = inbox.take()
    consumer.requeue(taken[0].id, 30 * SECOND, one.clock.now)
    consumer.requeue(taken[1].id, HOUR, one.clock.now)
    one.turn(
        lambda: one.broker.pause(topic, True), lambda: topic.intake.publish_deferred(b"z", one.clock.now + 10 * SECOND)
    )
    wall, offset = one.clock.wall, one.clock.wall - one.clock.now
    state, sequence = read(encode_topic(state_of(topic, one.clock.now), one.store.find_sequence(topic.number), offset))
    assert (state.number, state.name, state.end, state.distributed) == (topic.number, "t", 12, 11)
    assert (state.paused, state.delayed) == (Pause("", wall // SECOND, 0), {11: wall + 10 * SECOND})
    assert state.config == topic.config
    channel = channel_of(state)
    assert (channel.name, channel.paused, channel.start, channel.cursor, channel.buried) == ("a", None, 0, 6, {})
    assert list(channel.passed.missing(11)) == [(6, 10)]
    failed = counts_of(1, 1)
    near = [(0, wall + 30 * SECOND, failed), (2, 0, 1), (3, 0, 1), (4, 0, 1), (5, 0, 1)]
    assert sorted(channel.pages.entries()) == sorted([*near, (1, wall + HOUR, failed), (10, wall + HOUR, 0)])
    assert sum(held.count for held in sequence.extents) == 12
    assert [bytes(held.refcounts) for held in sequence.extents] == [b"\1" * 10, b"\1\0"]


def test_of_what_waits_packed_any_part_can_be_taken() -> None:
    random = Random(3)
    for _ in range(20):
        ordinals = random.sample(range(20_000), 500)
        parts = ordinals[:9], ordinals[9:]
        far = DeferredPages([array("q", [n for ordinal in part for n in (ordinal, 5, 1)]) for part in parts])
        left = set(ordinals)
        for _ in range(30):
            first = random.randrange(20_000)
            end = first + random.choice((1, 10, 5000, 15_000))
            if random.random() < 0.5:
                assert far.remove_one(first) == (first in left)
                left.discard(first)
            else:
                far.remove_span(first, end)
                left -= set(range(first, end))
        assert (list(far.ordinals()), {ordinal for ordinal, _, _ in far.entries()}) == (sorted(left), left)
        assert [ordinal for ordinal, flag in enumerate(far.flags(0, 20_000)) if flag] == sorted(left)


def test_a_tube_does_not_give_up_what_a_channel_that_begins_in_the_past_owes() -> None:
    one = SimNode()
    one.broker.tubes.made("t")
    topic = one.broker.topics["t"]
    topic.configure(TopicConfig(retention=HOUR))
    topic.intake.put([b"job"], JobOptions(was_put=True))
    one.turn()
    # in an extent of its own
    topic.intake.put([b"later"], JobOptions(delay=90, due=one.clock.now + 90 * SECOND, was_put=True))
    one.turn()
    tube = one.broker.tubes.tube("t")
    job = tube.jobs.get(0)
    one.turn(lambda: tube.finish(job))
    one.checkpoint()
    topic.channel_from("a", 0, one.clock.now)
    one.turn()
    again = SimNode(one.disk.kill(), Durability.ALWAYS, one.clock)
    assert again.log.start_results.roots, "it begins with the checkpoint"
    channel = again.broker.topics["t"].channels["a"]
    assert channel.depth == 2
    sequence = again.store.find_sequence(topic.number)
    assert [bytes(held.refcounts) for held in sequence.live()] == [b"\1", b"\2"]

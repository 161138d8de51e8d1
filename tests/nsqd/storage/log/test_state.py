"""The state of a topic in a checkpoint: read as it was written."""

from array import array
from random import Random

from nsqd.core.sequence.put_batch import JobOptions
from nsqd.core.timing.deferred_pages import DeferredPages
from nsqd.core.topic_state import TopicState
from nsqd.storage.log.state import decode_topic
from nsqd.storage.sequence import Sequence
from shared.topic_config import Durability, TopicConfig
from tests.nsqd.core.node import SECOND
from tests.nsqd.storage.sim_node import SimNode

HOUR = 3600 * SECOND


def read(content: bytes) -> tuple[TopicState, Sequence]:
    return decode_topic(content, {}, {})


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

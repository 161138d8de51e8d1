"""A group that a kill cut off anywhere: after each of its records, what is there must make sense by itself."""

from collections.abc import Callable, Iterator
from random import Random

import pytest

from nsqd.core.broker import Broker
from nsqd.core.channel.actions import ChosenMessage, bury, move
from nsqd.core.limits import Limits
from nsqd.core.message.attributes import NONE, Attributes
from nsqd.core.message.frame import message_id
from nsqd.core.sequence.put_batch import JobOptions
from nsqd.storage.log.files import segment_name
from nsqd.storage.log.records import HEADER_SIZE, decode
from shared.topic_config import Durability
from tests.cases import each
from tests.nsqd.storage.sim_disk import SimDisk
from tests.nsqd.storage.sim_node import Clock, SimNode
from tests.nsqd.storage.survey import SeenTopic, survey

Act = Callable[[Broker], None]
FIRST_ID = b"0007000000000001"  # of the first message that is published


def start(disk: SimDisk, clock: Clock) -> SimNode:
    return SimNode(disk, Durability.ALWAYS, clock, Random(1), Limits(mem_queue_size=100))


class Torn:
    """A node that did something in its last turn."""

    def __init__(self, before: Act, last: Act) -> None:
        self.clock = Clock()
        self.node = start(SimDisk(), self.clock)
        self.node.turn(lambda: before(self.node.broker))
        self.written = self.node.log.writer.written.position
        self.node.turn(lambda: last(self.node.broker))

    def restarts(self) -> Iterator[SimNode]:
        """Yield the node after a kill that left none, one, ... all records of the last group."""
        writer = self.node.log.writer
        name = segment_name(writer.base, 0)
        data = self.node.disk.content(name)
        at = HEADER_SIZE + self.written - writer.base
        while at:
            disk = self.node.disk.kill()
            disk.put(name, data[:at])
            yield start(disk, self.clock.after(0, self.clock.now, rebooted=False))
            at = decode(data, at, self.node.log.writer._seed)

    def seen(self) -> list[dict[str, SeenTopic]]:
        return [survey(node, {b"0.": FIRST_ID}) for node in self.restarts()]


def bodies(seen: dict[str, SeenTopic], topic: str, channel: str) -> set[bytes]:
    return set(seen[topic].channels[channel].arrivals) if topic in seen and channel in seen[topic].channels else set()


def with_channels(*names: str) -> Act:
    def make(broker: Broker) -> None:
        for name in names:
            broker.topic("t").channel(name)
        broker.topic("t").publish([b"0."], 2)

    return make


@pytest.mark.parametrize("attributes", [NONE, Attributes(headers=(("n", "1"),), key="k1")])
def test_what_is_for_one_channel_alone_never_comes_to_another(attributes: Attributes) -> None:
    def publish(broker: Broker) -> None:
        topic = broker.topics["t"]
        assert topic.publish_to(topic.channels["a"], [b"1.k1", b"2.k1"], attributes) == 0

    torn = Torn(with_channels("a", "b", "x#ephemeral"), publish)
    found = torn.seen()
    assert len(found) > 2
    assert [bodies(seen, "t", "b") for seen in found] == [{b"0."}] * len(found)
    both = {b"0.", b"1.k1", b"2.k1"}
    assert [bodies(seen, "t", "a") for seen in found] == [{b"0."}] * 2 + [both] * (len(found) - 2)
    knows = ["k1" in seen["t"].keys for seen in found]
    assert knows == [bool(attributes) and len(bodies(seen, "t", "a")) > 1 for seen in found]


def chosen(broker: Broker, ordinal: int) -> list[ChosenMessage]:
    topic = broker.topics["t"]
    return [ChosenMessage(ordinal, message_id(topic.journal.frame_in_memory(ordinal)))]


@each("more", ["nothing", "empty", "delete", "create"])
def test_a_message_that_is_moved_is_there_or_here(more: str) -> None:
    """In the same turn something else may write out what was collected so far."""

    def last(broker: Broker) -> None:
        topic, other = broker.topics["t"], broker.topic("other")
        channel = topic.channels["a"]
        other.channel("c")

        def publish(ordinals: list[int]) -> None:
            other.publish([b"moved"] * len(ordinals), 5 * len(ordinals))
            other.seal(broker.wall)

        assert move(broker.topics["t"].distribution, channel, chosen(broker, 0), publish) == 1
        if more == "empty":
            topic.channels["b"].empty()
        elif more == "delete":
            topic.delete_channel("b")
        elif more == "create":
            topic.channel("new")

    for seen in Torn(with_channels("a", "b"), last).seen():
        assert bodies(seen, "t", "a") == {b"0."} or bodies(seen, "other", "c") == {b"moved"}, seen


def test_a_message_that_is_buried_in_the_turn_of_its_delivery_stays_owed() -> None:
    def last(broker: Broker) -> None:
        assert (
            bury(broker.topics["t"].distribution, broker.topics["t"].channels["a"], chosen(broker, 0), "by hand") == 1
        )

    reasons = [seen["t"].channels["a"].arrivals[b"0."].buried for seen in Torn(with_channels("a"), last).seen()]
    assert reasons == [""] * (len(reasons) - 1) + ["by hand"]


def test_jobs_that_are_put_together_come_together_and_one_that_was_deleted_stays_so() -> None:
    def put(broker: Broker) -> None:
        broker.tubes.attach(broker.topic("t"))
        broker.topics["t"].intake.put([b"0", b"1"], JobOptions(5, 60, 0, 0, True))

    def last(broker: Broker) -> None:
        topic = broker.topics["t"]
        topic.intake.put([b"2", b"3"], JobOptions(5, 60, 0, 0, True))
        broker.seal_puts()
        tube = broker.tubes.tube("t")
        job = tube.jobs.get(0)
        tube.bury(job, 7)
        tube.finish(job)

    found = []
    for node in Torn(put, last).restarts():
        tube = node.broker.tubes.tube("t")
        found.append([job.ordinal for job in tube.jobs])
    assert (found[0], found[-1]) == ([0, 1], [1, 2, 3])
    assert all(ordinals in ([0, 1], [0, 1, 2, 3], [1, 2, 3]) for ordinals in found)


def test_a_topic_that_is_deleted_and_made_again_never_shows_the_old_messages() -> None:
    def last(broker: Broker) -> None:
        broker.delete_topic("t")
        broker.topic("t").channel("a")
        broker.topics["t"].publish([b"1."], 2)

    found = Torn(with_channels("a", "b"), last).seen()
    contents = [(sorted(seen["t"].channels), bodies(seen, "t", "a")) for seen in found if "t" in seen]
    assert (contents[0], contents[-1]) == ((["a", "b"], {b"0."}), (["a"], {b"1."}))
    assert not any(len(there) > 1 for _, there in contents)


def test_channels_that_nsqlookupd_names_get_what_was_published_before() -> None:
    def before(broker: Broker) -> None:
        broker.directory.ask_for_channels = True
        broker.topic("t").publish([b"0."], 2)

    def last(broker: Broker) -> None:
        topic = broker.topics["t"]
        topic.channel("a")
        topic.channel("b")
        topic.start()

    for seen in Torn(before, last).seen():
        for channel in seen["t"].channels:
            assert b"0." in bodies(seen, "t", channel) or b"0." in seen["t"].backlog

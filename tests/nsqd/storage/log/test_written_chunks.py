"""Chunks of waiting messages that a checkpoint writes before the state of their topic, while the messages change."""

from collections.abc import Callable

import pytest

from nsqd.core import records
from nsqd.core.channel import actions
from nsqd.core.channel.actions import ChosenMessage
from nsqd.core.records import RecordKind
from nsqd.core.topic_state import TopicState, state_of
from nsqd.storage.log import checkpoint
from nsqd.storage.log.replay import Replay
from nsqd.storage.log.sources import LiveSource, contents
from nsqd.storage.log.state import MissingChunk, decode_topic, encode_topic
from nsqd.storage.log.store import REST_NS
from shared.topic_config import Durability
from tests.cases import each
from tests.nsqd.core.node import SECOND
from tests.nsqd.storage.sim_node import SimNode
from tests.small_chunks import CHUNK

HOUR = 3600 * SECOND
COUNT = 10 * CHUNK

Waiting = dict[int, dict[int, bytes]]


class World:
    """A node with a topic whose channel "a" has deferred messages, and whose delay queue has others."""

    def __init__(self) -> None:
        self.node = SimNode(durability=Durability.OS)
        self.clock = self.node.clock
        consumer, inbox = self.node.subscribe(ready=COUNT, timeout=HOUR)
        self.topic, self.channel = self.node.broker.topics["t"], consumer.channel
        self.node.publish(COUNT)
        self.ids = [message.id for message in inbox.take()]
        for message_id in self.ids:
            consumer.requeue(message_id, HOUR, self.clock.now)
        for _ in range(COUNT):
            self.topic.intake.publish_with([b"y"], due=self.clock.now + HOUR)
        self.node.turn(lambda: None)
        self.source = LiveSource(self.node.broker, self.node.store)

    def written(self, meanwhile: Callable[[], object]) -> tuple[Waiting, bytes]:
        """The checkpoint's WAITING records and STATE_TOPIC; `meanwhile` happens after half of the former."""
        waiting: Waiting = {}
        for kind, content in contents(self.source):
            if kind is RecordKind.WAITING:
                topic, number = records.WAITING.unpack_from(content)
                waiting.setdefault(topic, {})[number] = content[records.WAITING.size :]
                if number == CHUNK * 2:
                    self.node.turn(meanwhile)
            elif kind is RecordKind.STATE_TOPIC:
                return waiting, content
        raise AssertionError("no state")

    def in_one_piece(self) -> TopicState:
        content = encode_topic(
            state_of(self.topic, self.clock.now), self.node.store.find_sequence(self.topic.number), self.source.offset
        )
        return decode_topic(content, {}, {})[0]


def entries(state: TopicState) -> tuple[dict[int, int], list[tuple[int, int, int]]]:
    (channel,) = state.readers.values()
    return state.delayed, sorted(channel.pages.entries())


@pytest.fixture
def world() -> World:
    return World()


def act(world: World, name: str) -> None:
    chosen = [ChosenMessage(ordinal, world.ids[ordinal]) for ordinal in (0, 7, COUNT - 1)]
    if name == "finish":
        actions.finish(world.topic.distribution, world.channel, chosen)
    elif name == "requeue":
        actions.requeue(world.topic.distribution, world.channel, chosen, world.clock.now + 2 * HOUR, world.clock.now)
    elif name == "publish":
        for _ in range(2 * CHUNK):
            world.topic.intake.publish_with([b"z"], due=world.clock.now + HOUR)
    elif name == "empty":
        world.channel.empty()
    elif name == "approach":
        world.channel.deferred.approach(world.clock.now + 2 * HOUR, CHUNK + 1)


@each("name", ["nothing", "finish", "requeue", "publish", "empty", "approach"], world=World)
def test_the_state_is_that_of_its_own_turn_whatever_happened_meanwhile(world: World, name: str) -> None:
    waiting, content = world.written(lambda: act(world, name))
    (chunks,) = waiting.values()
    assert len(chunks) >= 2 * (COUNT // CHUNK - 1)
    assert all(len(chunk) == CHUNK * 24 for chunk in chunks.values())
    assert entries(decode_topic(content, {}, waiting)[0]) == entries(world.in_one_piece())


def test_without_a_corrupt_chunk_what_is_known_of_the_topic_is_better(world: World) -> None:
    waiting, content = world.written(lambda: None)
    del waiting[world.topic.number][0]
    with pytest.raises(MissingChunk):
        decode_topic(content, {world.topic.number: world.in_one_piece()}, waiting)


def test_chunks_of_a_checkpoint_that_was_not_ended_are_not_mixed_up_with_the_next_ones(world: World) -> None:
    replay = Replay()
    waiting, _ = world.written(lambda: None)
    for number, chunk in waiting[world.topic.number].items():
        replay._note_waiting(records.WAITING.pack(world.topic.number, number) + chunk)
    replay._state(records.STATE.pack(1, 1))
    assert not replay._waiting


def test_a_turn_writes_a_bounded_part_of_a_checkpoint(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint, "SLICE_BYTES", 2 * CHUNK * 24)
    checkpoints, turns = world.node.log.checkpoints, 0
    checkpoints._begin()
    world.clock.advance(REST_NS)
    while checkpoints._contents is not None:
        world.node.turn(lambda: None)
        turns += 1
    assert turns >= 2 * (COUNT // CHUNK - 1) // 2
    assert checkpoints.written == 1

"""Chunks of messages that a checkpoint writes before the state of their topic, while the messages change."""

from collections.abc import Callable

import pytest

from nsqd.core import records
from nsqd.core.channel import actions
from nsqd.core.channel.actions import ChosenMessage
from nsqd.core.channel.buried import DeadLetter
from nsqd.core.message.frame import message_id
from nsqd.core.records import RecordKind
from nsqd.core.topic_state import TopicState, state_of
from nsqd.storage.log import checkpoint
from nsqd.storage.log.reader import LogRecords
from nsqd.storage.log.reading import replayed
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

Chunks = dict[int, dict[int, bytes]]
State = tuple[dict[int, int], list[tuple[int, int, int]], list[tuple[bytes, DeadLetter]]]


class World:
    """A node with a topic whose channel has COUNT messages in each state, and whose delay queue has others.

    Ordinals from 0 on are deferred for long, from COUNT on for seconds, from 2 COUNT on in flight, then buried, then back.
    """

    def __init__(self) -> None:
        self.node = SimNode(durability=Durability.OS)
        self.clock = self.node.clock
        consumer, inbox = self.node.subscribe(ready=3 * COUNT, timeout=HOUR)
        self.topic, self.channel = self.node.broker.topics["t"], consumer.channel
        self.node.publish(2 * COUNT)
        for _ in range(COUNT):
            self.node.publish()
        self.ids = [message.id for message in inbox.take()]
        for place, one in enumerate(self.ids[: 2 * COUNT]):
            consumer.requeue(one, HOUR if place < COUNT else SECOND * place, self.clock.now)
        consumer.set_ready(0)
        self.consumer = consumer
        self.node.publish(2 * COUNT)
        self.buried, back = ([self.id_of(one + at) for one in range(COUNT)] for at in (3 * COUNT, 4 * COUNT))
        for chosen in (self.buried, back):
            actions.bury(self.topic.distribution, self.channel, chosen, "by hand")
        actions.kick(self.channel, [one.message_id for one in back])
        for _ in range(COUNT):
            self.topic.intake.publish_with([b"y"], due=self.clock.now + HOUR)
        self.node.turn(lambda: None)
        self.source = LiveSource(self.node.broker, self.node.store)

    def id_of(self, ordinal: int) -> ChosenMessage:
        return ChosenMessage(ordinal, message_id(self.channel.backlog.extents.frame_in_memory(ordinal, False)))

    def written(self, *meanwhile: Callable[[], object], every: int = 10) -> tuple[Chunks, bytes]:
        """The checkpoint's CHUNK records and STATE_TOPIC; each of `meanwhile` happens after `every` of the former."""
        chunks: Chunks = {}
        left = list(meanwhile)
        for kind, content in contents(self.source):
            if kind is RecordKind.CHUNK:
                topic, number = records.CHUNK.unpack_from(content)
                chunks.setdefault(topic, {})[number] = content[records.CHUNK.size :]
                if number % every == every - 1 and left:
                    self.node.turn(left.pop(0))
                    self.node.turn(lambda: None)
            elif kind is RecordKind.STATE_TOPIC:
                assert not left
                return chunks, content
        raise AssertionError("no state")

    def in_one_piece(self) -> TopicState:
        content = encode_topic(
            state_of(self.topic, self.clock.now), self.node.store.find_sequence(self.topic.number), self.source.offset
        )
        return decode_topic(content, {}, {})[0]


def entries(state: TopicState) -> State:
    (channel,) = state.readers.values()
    returned = [(ordinal, due, counts) for ordinal, (counts, due) in channel.returned.items()]
    return state.delayed, sorted([*channel.pages.entries(), *returned]), list(channel.buried.values())


@pytest.fixture
def world() -> World:
    return World()


def act(world: World, name: str) -> None:
    chosen = [
        ChosenMessage(at + ordinal, world.ids[at + ordinal])
        for at in (0, COUNT, 2 * COUNT)
        for ordinal in (0, 7, COUNT - 1)
    ]
    if name == "finish":
        actions.finish(world.topic.distribution, world.channel, chosen)
    elif name == "requeue":
        actions.requeue(world.topic.distribution, world.channel, chosen, world.clock.now + 2 * HOUR, world.clock.now)
    elif name == "publish":
        for _ in range(2 * CHUNK):
            world.topic.intake.publish_with([b"z"], due=world.clock.now + HOUR)
    elif name == "bury":
        actions.bury(world.topic.distribution, world.channel, chosen, "late")
    elif name == "kick":
        actions.kick(world.channel, [one.message_id for one in world.buried[1:7]])
    elif name == "kick all":
        actions.kick(world.channel, [one.message_id for one in world.buried])
    elif name == "move":
        back = [world.id_of(4 * COUNT + one) for one in (0, 7, COUNT - 1)]
        actions.bury(world.topic.distribution, world.channel, [*back, world.buried[0]], "again")
    elif name == "answer":
        for at in (8, 1, 4):
            world.consumer.finish(world.ids[2 * COUNT + at])
        world.consumer.requeue(world.ids[2 * COUNT + 5], 0, world.clock.now)
        world.consumer.touch(world.ids[2 * COUNT + 10], HOUR, HOUR, world.clock.now)
    elif name == "time out":
        world.clock.advance(2 * HOUR)
    elif name == "become due":
        world.clock.advance((COUNT + 5) * SECOND)
    elif name == "deliver":
        world.consumer.set_ready(CHUNK + 2)
    elif name == "empty":
        world.channel.empty()
    elif name == "approach":
        world.channel.deferred.approach(world.clock.now + 2 * HOUR, CHUNK + 1)


DEEDS = ["nothing", "finish", "requeue", "publish", "bury", "kick", "kick all", "move", "deliver", "answer"]
LATER = ["empty", "approach", "become due", "time out"]


def test_all_but_the_last_messages_of_each_kind_are_written_ahead_of_the_state(world: World) -> None:
    written, content = world.written(lambda: None)
    (chunks,) = written.values()
    assert world.channel.counts() == (COUNT, COUNT, 3 * COUNT, COUNT)
    assert len(chunks) >= 6 * (COUNT // CHUNK - 2)
    assert len(content) < len(encode_topic(state_of(world.topic, world.clock.now), None, 0)) / 3


@each("first", DEEDS + LATER[1:])
@each("second", DEEDS + LATER)
def test_the_state_is_that_of_its_own_turn_whatever_happened_meanwhile(first: str, second: str) -> None:
    world = World()
    written, content = world.written(lambda: act(world, first), lambda: act(world, second), every=20)
    assert entries(decode_topic(content, {}, written)[0]) == entries(world.in_one_piece())


def test_chunks_that_changed_meanwhile_are_written_again_ahead_of_the_state(world: World) -> None:
    every_third = [one.message_id for one in world.buried[::CHUNK]]
    _, unchanged = world.written(lambda: None)
    meanwhile = [lambda: None] * 4 + [lambda: actions.finish_buried(world.channel, every_third) and None]
    _, changed = world.written(*meanwhile)
    assert len(changed) < len(unchanged) + 200


def test_a_start_after_any_turn_of_a_checkpoint_finds_every_message_as_it_was(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoint, "SLICE_BYTES", 1)
    node, checkpoints, turns = world.node, world.node.log.checkpoints, 0
    deeds = iter(DEEDS)
    checkpoints._begin()
    while checkpoints._contents is not None:
        deed = next(deeds, "nothing") if turns % 4 == 3 else "nothing"
        node.turn(lambda deed=deed: act(world, deed))
        turns += 1
        replay = replayed(LogRecords(node.disk.kill()))[0]
        replay.conclude()
        assert entries(replay.topics[world.topic.number]) == entries(world.in_one_piece())
    assert turns > 6 * (COUNT // CHUNK - 2)


def test_without_a_corrupt_chunk_what_is_known_of_the_topic_is_better(world: World) -> None:
    written, content = world.written(lambda: None)
    chunks = written[world.topic.number]
    for number in (0, len(chunks) - 1):
        others = {one: chunk for one, chunk in chunks.items() if one != number}
        with pytest.raises(MissingChunk):
            decode_topic(content, {world.topic.number: world.in_one_piece()}, {world.topic.number: others})
        found = decode_topic(content, {}, {world.topic.number: others})[0]
        assert sum(map(len, entries(found))) == sum(map(len, entries(world.in_one_piece()))) - CHUNK


def test_chunks_of_a_checkpoint_that_was_not_ended_are_not_mixed_up_with_the_next_ones(world: World) -> None:
    replay = Replay()
    written, _ = world.written(lambda: None)
    for number, chunk in written[world.topic.number].items():
        replay._note_chunk(records.CHUNK.pack(world.topic.number, number) + chunk)
    replay._state(records.STATE.pack(1, 1))
    assert not replay._chunks


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

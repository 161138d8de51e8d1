"""The Store in memory: frames are freed when nobody owes them, extents when none of theirs is left."""

from hypothesis import given
from hypothesis import strategies as st

from nsqd.storage.held import EXTENT_BYTES, EXTENT_MESSAGES, MOST_IN_A_BYTE
from nsqd.storage.memory import MemoryStore

TOPIC, CHANNEL = 1, 2


def store() -> MemoryStore:
    return MemoryStore(lambda ceiling: True)


def publish(memory: MemoryStore, first: int, count: int, due: int = 0, channels: int = 1) -> None:
    frames = [b"frame %d" % (first + i) for i in range(count)]
    memory.publish(TOPIC, first, frames, b"i" * 16 * count, 20, due)
    memory.distribute(TOPIC, first, first + count, channels)


def extents(memory: MemoryStore) -> int:
    return len(memory._topics[TOPIC].held)


def test_small_batches_share_an_extent_and_a_full_one_is_closed() -> None:
    memory = store()
    for first in range(0, EXTENT_MESSAGES + 10, 2):
        publish(memory, first, 2)
    assert extents(memory) == 2
    assert memory.read(TOPIC, 5).frames[5] == b"frame 5"
    assert memory.read(TOPIC, EXTENT_MESSAGES + 3).first == EXTENT_MESSAGES


def test_delayed_messages_stand_apart() -> None:
    memory = store()
    publish(memory, 0, 1)
    publish(memory, 1, 1, due=5)
    publish(memory, 2, 1, due=9)
    publish(memory, 3, 1)
    assert [memory.read(TOPIC, i).delayed for i in range(4)] == [False, True, True, False]
    assert extents(memory) == 3


def test_finished_extents_are_dropped() -> None:
    memory = store()
    for first in range(0, 10 * EXTENT_MESSAGES, EXTENT_MESSAGES):
        publish(memory, first, EXTENT_MESSAGES)
    for first in range(0, 9 * EXTENT_MESSAGES, 64):
        memory.finish(TOPIC, CHANNEL, first, 64)
    assert memory.held()[0] == EXTENT_MESSAGES
    assert extents(memory) <= 2  # swept when half are dead
    memory.finish(TOPIC, CHANNEL, 9 * EXTENT_MESSAGES, EXTENT_MESSAGES)
    assert memory.held() == (0, 0)
    publish(memory, 10 * EXTENT_MESSAGES, 3)
    assert memory.held()[0] == 3


def test_more_channels_than_a_byte_counts() -> None:
    memory, channels = store(), MOST_IN_A_BYTE + 10
    publish(memory, 0, 2, channels=3)
    publish(memory, 2, 2, channels=channels)
    for channel in range(channels):
        assert memory.held()[0] == (4 if channel < 3 else 2)
        memory.finish(TOPIC, channel, 2, 2)
        if channel < 3:
            memory.finish(TOPIC, channel, 0, 2)
    assert memory.held()[0] == 0


def test_a_large_batch_is_split() -> None:
    memory = store()
    publish(memory, 0, 3 * EXTENT_MESSAGES + 1)
    assert extents(memory) == 4
    assert memory.read(TOPIC, 2 * EXTENT_MESSAGES).first == 2 * EXTENT_MESSAGES


def test_what_is_gone_leads_to_what_comes_next() -> None:
    memory = store()
    publish(memory, 0, 1)
    publish(memory, 1, 1, due=5)
    publish(memory, 2, 1)
    memory.finish(TOPIC, CHANNEL, 1, 1)
    memory._topics[TOPIC]._dead = 10
    memory._topics[TOPIC].drop()
    assert extents(memory) == 2
    assert memory.read(TOPIC, 1).first == 2
    assert (memory.read(TOPIC, 3).first, memory.read(TOPIC, 3).frames) == (3, [])


def test_a_hole_takes_the_end_away() -> None:
    memory = store()
    publish(memory, 0, 4)
    memory.publish(TOPIC, 4, [b"x", b"y"], b"i" * 32, 20, 0)
    memory.hole(TOPIC, 4, 6)
    assert memory.held()[0] == 4
    memory.finish(TOPIC, CHANNEL, 0, 4)
    assert memory.held()[0] == 0
    publish(memory, 6, 1)
    assert memory.read(TOPIC, 6).frames[6 - memory.read(TOPIC, 6).first] == b"frame 6"


@given(st.lists(st.integers(1, 40), min_size=1, max_size=30), st.integers(1, 4), st.randoms(use_true_random=False))
def test_a_frame_lives_exactly_as_long_as_somebody_owes_it(sizes: list[int], channels: int, random) -> None:  # type: ignore[no-untyped-def]
    memory, first = store(), 0
    for size in sizes:
        publish(memory, first, size, channels=channels)
        first += size
    owed = dict.fromkeys(range(first), channels)
    steps = [(channel, ordinal) for channel in range(channels) for ordinal in range(first)]
    random.shuffle(steps)
    for channel, ordinal in steps:
        memory.finish(TOPIC, channel, ordinal, 1)
        owed[ordinal] -= 1
        if ordinal % 7 == 0:
            assert memory.held()[0] == sum(count > 0 for count in owed.values())
    assert memory.held() == (0, 0)


def test_large_messages_make_small_extents() -> None:
    """An extent is kept in memory, and read back, as a whole: a gigabyte would be too much."""
    memory = MemoryStore(lambda ceiling: True)
    frames = [bytes(EXTENT_BYTES // 2)] * 5
    memory.publish(TOPIC, 0, frames, bytes(5 * 16), len(frames[0]), 0)
    assert [len(held.extent.frames) for held in memory.sequence(TOPIC).held if held.extent] == [2, 2, 1]
    memory.publish(TOPIC, 5, [b"small"], bytes(16), 5, 0)
    memory.publish(TOPIC, 6, frames[:2], bytes(2 * 16), len(frames[0]), 0)
    memory.publish(TOPIC, 8, frames[:1], bytes(16), len(frames[0]), 0)
    assert [held.first for held in memory.sequence(TOPIC).held] == [0, 2, 4, 8]
    cold = memory.sequence(TOPIC + 1)
    cold.append_cold(0, 5, False, 5 * EXTENT_BYTES // 2)
    cold.append_cold(5, 1, False, 10)
    assert [held.first for held in cold.held] == [0, 2, 4]

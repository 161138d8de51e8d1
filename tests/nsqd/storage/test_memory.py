"""The Store in memory: frames are freed when no reader references them, extents when they have no frames."""

from hypothesis import given
from hypothesis import strategies as st

from nsqd.storage.memory import MemoryTopic
from nsqd.storage.sequence import Sequence
from nsqd.storage.stored_extent import MOST_IN_A_BYTE


def topic() -> MemoryTopic:
    return MemoryTopic(Sequence())


def publish(
    memory: MemoryTopic, first: int, count: int, due: int = 0, channels: int = 1, *, at_once: bool = True
) -> None:
    frames = [b"frame %d" % (first + i) for i in range(count)]
    memory.publish(first, frames, b"i" * 16 * count, 20, due, b"", channels if at_once else 0)
    if not at_once:
        memory.distribute(first, first + count, channels)


def finish(memory: MemoryTopic, first: int, count: int) -> None:
    memory.reader(1, "c", 0, 0).finish(first, count)


def held(memory: MemoryTopic) -> tuple[int, int]:
    frames = [frame for one in memory.sequence.extents if one.extent for frame in one.extent.frames if frame]
    return len(frames), sum(map(len, frames))


def extents(memory: MemoryTopic) -> int:
    return len(memory.sequence.extents)


def test_more_channels_than_a_byte_counts() -> None:
    memory, channels = topic(), MOST_IN_A_BYTE + 10
    publish(memory, 0, 2, channels=3)
    publish(memory, 2, 2, channels=channels)
    for channel in range(channels):
        assert held(memory)[0] == (4 if channel < 3 else 2)
        finish(memory, 2, 2)
        if channel < 3:
            finish(memory, 0, 2)
    assert held(memory)[0] == 0


def test_a_hole_takes_the_end_away() -> None:
    memory = topic()
    publish(memory, 0, 4)
    memory.publish(4, [b"x", b"y"], b"i" * 32, 20, 0, b"", 0)
    memory.hole(4, 6)
    assert held(memory)[0] == 4
    finish(memory, 0, 4)
    assert held(memory)[0] == 0
    publish(memory, 6, 1)
    assert memory.read(6).frames[6 - memory.read(6).first] == b"frame 6"


@given(
    st.lists(st.integers(1, 40), min_size=1, max_size=30), st.integers(1, 4), st.randoms(use_true_random=False),
    st.booleans(),
)  # fmt: skip
def test_a_frame_is_kept_exactly_as_long_as_a_reader_references_it(
    sizes: list[int], channels: int, random, at_once: bool
) -> None:
    memory, first = topic(), 0
    for size in sizes:
        publish(memory, first, size, channels=channels, at_once=at_once)
        first += size
    unfinished = dict.fromkeys(range(first), channels)
    steps = [(channel, ordinal) for channel in range(channels) for ordinal in range(first)]
    random.shuffle(steps)
    for _, ordinal in steps:
        finish(memory, ordinal, 1)
        unfinished[ordinal] -= 1
        if ordinal % 7 == 0:
            assert held(memory)[0] == sum(count > 0 for count in unfinished.values())
    assert held(memory) == (0, 0)


def test_a_channel_from_the_past_reads_back_only_extents_in_which_a_frame_is_missing() -> None:
    memory = topic()
    publish(memory, 0, 3)
    sequence = memory.sequence
    for channels in range(2, MOST_IN_A_BYTE + 3):
        assert sequence.add_references(0, 3) == []
        assert [sequence.references(one) for one in range(3)] == 3 * [channels]
    for _ in range(MOST_IN_A_BYTE + 2):
        finish(memory, 1, 1)
    assert sequence.add_references(0, 3) == sequence.extents
    assert sequence.extents[0].released == 0

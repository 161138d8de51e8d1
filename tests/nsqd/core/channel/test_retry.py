"""The retry queue: most of it is packed, but it is delivered as if it were a list."""

from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nsqd.core.channel import retry
from nsqd.core.channel.retry import RetryQueue
from nsqd.core.timing.deferred import PAGED_SIZE, Message, unpack
from tests.effort import tries

CHUNK = 3  # messages
Entries = list[tuple[int, int, int]]  # (position, ordinal, counts)


@pytest.fixture(autouse=True)
def small_chunks() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(retry, "CHUNK_BYTES", CHUNK * PAGED_SIZE)
        yield


def queue_of(count: int) -> RetryQueue:
    return RetryQueue((ordinal // 2, Message(ordinal, 7, ordinal % 3)) for ordinal in range(count))


def entries(queue: RetryQueue, start: int = 0) -> Entries:
    return [(position, message.ordinal, message.counts) for position, message in queue.entries(start)]


@settings(max_examples=tries(200))
@given(st.lists(st.tuples(st.sampled_from(["append", "pop", "first", "remove"]), st.integers(0, 30)), max_size=60))
def test_it_is_a_list_of_which_the_first_messages_are_objects(steps: list[tuple[str, int]]) -> None:
    queue, expected, ordinal = RetryQueue(), Entries(), 0
    for step, number in steps:
        if step == "append":
            for _ in range(number % 8):
                queue.append((number, Message(ordinal, 2, 1)))
                expected.append((number, ordinal, Message(ordinal, 2, 1).counts))
                ordinal += 1
        elif step == "pop" and expected:
            position, message = queue.popleft()
            assert (position, message.ordinal, message.counts) == expected.pop(0)
        elif step == "first":
            queue.appendleft((0, Message(ordinal, 0)))
            expected.insert(0, (0, ordinal, 0))
            ordinal += 1
        elif step == "remove":
            wanted = {one for _, one, _ in expected if one % 7 == number % 7}
            taken = [message.ordinal for message in queue.remove_ordinals({*wanted, 1 << 40})]
            assert sorted(taken) == sorted(wanted)
            expected = [entry for entry in expected if entry[1] not in wanted]
        queue.check()
        assert queue.size == len(expected)
        assert entries(queue, number) == expected[number:]
        packed = [entry for chunk in queue.packed() for entry in unpack(chunk)]
        assert packed == [(one, 0, counts) for _, one, counts in expected]


def test_a_full_chunk_stays_the_same_object_until_it_is_taken_or_one_of_its_messages_is_removed() -> None:
    queue = queue_of(5 * CHUNK + 1)
    before = queue.frozen_chunks()
    assert [len(chunk) for chunk in before] == 4 * [CHUNK * PAGED_SIZE]
    queue.append((99, Message(99, 1)))
    queue.popleft()
    queue.remove_ordinals({2 * CHUNK})
    after = queue.frozen_chunks()
    assert [one is other for one, other in zip(before, after, strict=True)] == [True, False, True, True]
    assert {id(chunk) for chunk in after} <= {id(chunk) for chunk in queue.packed()}
    for _ in range(CHUNK - 1):
        queue.popleft()
    assert (len(queue), queue.frozen_chunks()) == (CHUNK, after[1:]), "the next one was unpacked"


def test_messages_are_looked_for_up_to_the_last_one_that_is_taken_out(monkeypatch: pytest.MonkeyPatch) -> None:
    queue, looked = queue_of(9 * CHUNK), []
    inner = retry._without
    monkeypatch.setattr(retry, "_without", lambda chunk, *more: looked.append(chunk) or inner(chunk, *more))
    assert [message.ordinal for message in queue.remove_ordinals({1, 2 * CHUNK})] == [1, 2 * CHUNK]
    assert len(looked) == 2

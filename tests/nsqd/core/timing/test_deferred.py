"""Deferred messages: near and far, in order, never early, and far ones at 24 bytes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsqd.core.timing import deferred as module
from nsqd.core.timing.deferred import MINUTE, PAGED_SIZE, Deferred, Message, pack
from tests.small_chunks import CHUNK, entries_of

SECOND = 1_000_000_000


def drain(deferred: Deferred, now: int) -> list[int]:
    out: list[int] = []
    while True:
        wake = deferred.wake_at()
        moved = deferred.approach(now, 7)
        due = deferred.pop_due(now, 7)
        out += [message.ordinal for message in due]
        deferred.check()
        if not due and not moved:
            assert wake is None or wake > now
            return out


def test_messages_can_be_taken_out_from_an_ordinal_on_or_a_few_at_a_time() -> None:
    deferred = Deferred()
    for ordinal, due in ((1, SECOND), (2, 3 * MINUTE), (3, 2 * SECOND), (4, 4 * MINUTE)):
        deferred.push(due, Message(ordinal, 0), 0)
    deferred.remove_from(3)
    assert deferred.count == 2
    assert sorted(message.ordinal for _, message in deferred.items()) == [1, 2]
    deferred.check()
    deferred = Deferred()
    for ordinal in range(1000):
        deferred.push((ordinal % 4 + 1) * MINUTE, Message(ordinal, 1), 0)
    assert sorted(one for part in deferred.snapshot() for one in part) == list(range(1000))
    taken: list[int] = []
    while ordinals := deferred.pop_batch(70):
        assert len(ordinals) <= 70
        taken += ordinals
        deferred.check()
    assert sorted(taken) == list(range(1000))
    assert (deferred.count, deferred.wake_at()) == (0, None)


@given(st.lists(st.integers(0, 10 * MINUTE), max_size=60), st.integers(SECOND, 2 * MINUTE))
def test_each_comes_once_and_never_early(dues: list[int], step: int) -> None:
    deferred = Deferred()
    for ordinal, due in enumerate(dues):
        deferred.push(due, Message(ordinal, 0), 0)
    now, seen = 0, []
    while deferred.count:
        now += step
        for ordinal in drain(deferred, now):
            assert now - step <= dues[ordinal] <= now or dues[ordinal] <= now  # never early
            seen.append(ordinal)
        assert all(due > now for ordinal, due in enumerate(dues) if ordinal not in seen)  # never forgotten
    assert sorted(seen) == list(range(len(dues)))


def test_a_page_grows_only_at_its_end_whether_it_was_loaded_or_pushed() -> None:
    deferred, packed = Deferred(), b"".join(pack(ordinal, 2 * MINUTE, 1) for ordinal in range(3000))
    deferred.push(2 * MINUTE, Message(3000, 1), 0)
    deferred.load(packed)
    deferred.push(2 * MINUTE, Message(3001, 1), 0)
    deferred.check()
    frozen = deferred.frozen_chunks()
    before = b"".join(frozen)
    deferred.push(2 * MINUTE, Message(3002, 1), 0)
    deferred.approach(2 * MINUTE, 100)
    assert b"".join(frozen) == before
    assert deferred.count == 3003
    deferred.check()


STEPS = st.tuples(st.sampled_from(["push", "pop", "remove", "batch"]), st.integers(0, 40))


@given(st.lists(STEPS, max_size=60))
def test_packed_messages_are_all_that_wait_and_full_chunks_never_change(
    steps: list[tuple[str, int]],
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "CHUNK_BYTES", CHUNK * PAGED_SIZE)
        deferred, now, expected = Deferred(), 0, dict[int, tuple[int, int, int]]()
        for step, (deed, number) in enumerate(steps):
            frozen = deferred.frozen_chunks()
            before = list(map(bytes, frozen))
            if deed == "push":
                due = number * 3 * SECOND
                deferred.push(due, Message(step, 2, 1), now)
                expected[step] = step, due, Message(step, 2, 1).counts
            elif deed == "pop":
                now += number * SECOND
                deferred.approach(now, number)
                for message in deferred.pop_due(now, number // 4 + 1):
                    del expected[message.ordinal]
            elif deed == "remove":
                for message in deferred.remove_ordinals({number, number + 1}):
                    del expected[message.ordinal]
            elif number > 30:
                for ordinal in deferred.pop_batch(number // 10):
                    del expected[ordinal]
            deferred.check()
            assert entries_of(deferred.packed()) == sorted(expected.values())
            assert list(map(bytes, frozen)) == before


def test_chunks_of_messages_that_have_left_are_dropped_although_each_has_one_that_waits() -> None:
    deferred = Deferred()
    for now in range(100 * module.CHUNK_BYTES // PAGED_SIZE):
        deferred.push(MINUTE if now % 1000 == 0 else now + 10, Message(now, 1), now)
        deferred.pop_due(now, 100)
    assert len(deferred.frozen_chunks()) <= 3
    deferred.check()

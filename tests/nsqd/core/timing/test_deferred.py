"""Deferred messages: near and far, in order, never early, and far ones at 24 bytes."""

from hypothesis import given
from hypothesis import strategies as st

from nsqd.core.timing.deferred import MINUTE, Deferred, Message, pack

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

"""Messages in flight: runs that are finished in order, that are split, whose deadline passes; and their consumers."""

from collections import deque
from collections.abc import Sequence
from struct import pack

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsqd.core.channel import inflight
from nsqd.core.channel.inflight import NOT_IN_FLIGHT, NOT_OWNER, InFlight, Run
from nsqd.core.timing.deferred import PAGED_SIZE, Message
from nsqd.core.timing.duequeue import SLACK
from tests.cases import each
from tests.small_chunks import CHUNK, entries_of

NOW, DEADLINE = 1000, 2000


class Holder:
    """The consumer to whom messages are delivered."""

    def __init__(self) -> None:
        self.in_flight = 0
        self.runs: deque[Run] = deque()
        self.answered = self.answered_at = self.stuck_at = -1


def name(ordinal: int) -> bytes:
    return b"%016d" % ordinal


def names(first: int, count: int) -> bytes:
    return b"".join(map(name, range(first, first + count)))


def deliver(flight: InFlight, owner: Holder, first: int, count: int, deadline: int = DEADLINE) -> None:
    stamps = pack(f">{count}q", *range(first, first + count))
    flight.hold_run(owner, first, names(first, count), NOW, deadline, stamps)


def ordinals(flight: InFlight) -> list[int]:
    return sorted(ordinal for run in flight.runs() for ordinal in run.ordinals())


@pytest.fixture
def flight():  # type: ignore[no-untyped-def]
    flight = InFlight()
    yield flight
    flight.check()


@pytest.fixture
def owner() -> Holder:
    return Holder()


def test_a_run_is_taken_whole_or_from_its_front_and_one_call_takes_no_more(flight: InFlight, owner: Holder) -> None:
    deliver(flight, owner, 10, 5)
    deliver(flight, owner, 15, 2)
    assert repr(flight) == "<InFlight: 7 in 2 runs>"
    taken = flight.take_next(owner, names(10, 2), 0)
    run, first, ids = taken
    assert (first, ids, len(run)) == (10, names(10, 2), 3)
    assert (flight.count, owner.in_flight, ordinals(flight)) == (5, 5, [12, 13, 14, 15, 16])
    for at, expected in ((0, (12, names(12, 3))), (48, (15, names(15, 2)))):
        taken = flight.take_next(owner, names(12, 5), at)
        assert taken[1:] == expected
    assert (flight.count, owner.in_flight, flight.runs(), owner.runs) == (0, 0, [], deque())
    assert flight.take_due(1 << 62) is None, "finished messages do not expire"


@each("ordinal", range(6), flight=InFlight, owner=Holder)
def test_each_message_of_two_runs_can_be_taken_first(flight: InFlight, owner: Holder, ordinal: int) -> None:
    """Also the last of a run: it belongs to that run, and the next stays in order."""
    deliver(flight, owner, 0, 3)
    deliver(flight, owner, 3, 3)
    assert repr(flight.runs()[0]) == "<Run from 0: 3 in order, attempt 1, until 2000>"
    found = flight.take_out(owner, name(ordinal))
    assert found[1] == ordinal
    apart = [run.first for run in flight.runs() if run.loose is not None]
    assert apart == {0: [], 1: [0], 2: [0]}.get(ordinal, [0, 3])
    if ordinal == 1:
        assert repr(flight.runs()[0]) == "<Run from 0: 2 fallen apart, attempt 1, until 2000>"
    assert flight.take_out(owner, name(ordinal)) is None
    flight.check()


def test_an_id_across_two_others_is_none(flight: InFlight, owner: Holder) -> None:
    flight.hold_run(owner, 0, b"a" * 24 + b"b" * 8, NOW, DEADLINE, b"")
    assert flight.why_not(b"a" * 12 + b"a" * 4) == NOT_OWNER
    assert flight.why_not(b"a" * 4 + b"b" * 8 + b"c" * 4) == NOT_IN_FLIGHT
    assert not flight.runs()[0].holds(b"a" * 10 + b"b" * 6)
    assert flight.runs()[0].holds(b"a" * 8 + b"b" * 8)


# timeouts


def test_the_earliest_deadline_comes_first_and_not_before_its_time(flight: InFlight, owner: Holder) -> None:
    deliver(flight, owner, 0, 2, DEADLINE + 1)
    deliver(flight, owner, 2, 2, DEADLINE)
    assert flight.next_due() == DEADLINE
    assert flight.take_due(DEADLINE - 1) is None
    run = flight.take_due(DEADLINE)
    assert flight.expire(run, 9) == [2, 3]
    assert flight.take_due(DEADLINE) is None
    assert (flight.next_due(), ordinals(flight), owner.in_flight) == (DEADLINE + 1, [0, 1], 2)


def test_runs_that_are_over_are_not_kept(flight: InFlight, owner: Holder) -> None:
    deliver(flight, owner, 0, 1)  # it stays
    for ordinal in range(1, 1000):
        deliver(flight, owner, ordinal, 1)
        flight.take_out(owner, name(ordinal)) if ordinal % 2 else flight.take_next(owner, name(ordinal), 0)
        assert len(flight._fresh) <= 2 * 2 + SLACK  # two runs were in flight
    assert flight.why_not(name(0)) == NOT_OWNER


@given(st.data())
def test_any_order_takes_each_message_once(data: st.DataObject) -> None:
    """Any ids in batches of any order: messages in flight are taken out, others are reported, and counts agree."""
    flight, owners, expected = InFlight(), [Holder(), Holder()], {}
    first, passed = 0, list[int]()
    for _ in range(data.draw(st.integers(1, 5))):
        owner, count = data.draw(st.sampled_from(owners)), data.draw(st.integers(1, 4))
        together: Sequence[int] = range(first, first + count)
        if not data.draw(st.booleans()):
            deliver(flight, owner, first, count)
        else:
            together, passed = passed or together[::2], [] if passed else [*passed, *together[1::2]]
            ids = b"".join(map(name, together))
            flight.hold_batch(owner, list(together), list(map(name, together)), ids, NOW, DEADLINE, b"")
        expected |= dict.fromkeys(together, owner)
        first += count
    for _ in range(6):
        owner = data.draw(st.sampled_from(owners))
        batch = data.draw(st.lists(st.integers(0, first), max_size=6))
        if data.draw(st.booleans()):
            batch.sort()
        ids, at = b"".join(map(name, batch)), 0
        while at < len(ids):
            ordinal = batch[at // 16]
            together_taken = flight.take_from_batch(owner, ids, at)
            if together_taken is not None:
                run, index, count = together_taken
                found = run.batch[index : index + count]
                assert [*run.groups[index : index + count]] == [*map(name, found)]
                assert b"".join(map(name, found)) == ids[at : at + 16 * count]
                assert all(expected.pop(one) is owner for one in found)
                at += 16 * count
                continue
            taken = flight.take_next(owner, ids, at)
            if taken is None:
                claimed = ordinal in expected
                assert expected.get(ordinal) is not owner
                assert flight.why_not(name(ordinal)) == (NOT_OWNER if claimed else NOT_IN_FLIGHT)
                at += 16
                continue
            _, found, matched = taken
            assert found == ordinal
            assert matched == names(found, len(matched) // 16)
            for one in range(found, found + len(matched) // 16):
                assert expected.pop(one) is owner
            at += len(matched)
        flight.check()
        assert ordinals(flight) == sorted(expected)
        assert all([*run.groups_in_flight()] == [*map(name, run.ordinals())] for run in flight.runs() if run.groups)


# checkpoints

DEEDS = ["deliver", "batch", "single", "take", "due", "put back", "clear", "pack", "describe"]


@given(st.lists(st.tuples(st.sampled_from(DEEDS), st.integers(0, 6)), max_size=40))
def test_chunks_less_the_messages_that_have_left_are_the_messages_in_flight(deeds: list[tuple[str, int]]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(inflight, "CHUNK_BYTES", CHUNK * PAGED_SIZE)
        flight, owner, packing = InFlight(), Holder(), iter(())
        for step, (deed, number) in enumerate(deeds):
            first, now = step * 100, DEADLINE + step
            if deed == "deliver":
                deliver(flight, owner, first, number + 1, now)
            elif deed == "batch":
                together = range(first, first + 2 * number + 1, 2)
                flight.hold_batch(owner, together, (), b"".join(map(name, together)), NOW, now, b"")
            elif deed == "single":
                flight.hold_single(owner, Message(first, 2, 1), name(first), NOW, now, b"")
            elif deed == "take" and flight.count:
                ids = b"".join(map(name, ordinals(flight)[number:][: number + 1]))
                if flight.take_from_batch(owner, ids, 0) is None:
                    flight.take_next(owner, ids, 0)
            elif deed in ("due", "put back") and (run := flight.take_due(now)) is not None:
                if deed == "due":
                    flight.expire(run, number)
                if len(run):
                    flight.put_back(run)
            elif deed == "clear" and number == 0:
                flight.clear()
            elif deed == "pack":
                packing = packing if number else flight.frozen_chunks()
                for _ in range(number):
                    next(packing, None)
            elif deed == "describe":
                assert [one for one, _, _ in entries_of(flight.packed())] == ordinals(flight)
            flight.check()
        counts = {
            one: Message(one, run.attempts, run.failures).counts for run in flight.runs() for one in run.ordinals()
        }
        assert entries_of(flight.packed()) == [(one, 0, counts[one]) for one in sorted(counts)]


def test_messages_that_were_packed_are_not_packed_again_until_the_checkpoint_is_written(
    flight: InFlight, owner: Holder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inflight, "CHUNK_BYTES", CHUNK * PAGED_SIZE)
    for ordinal in range(3 * CHUNK + 1):
        deliver(flight, owner, ordinal, 1)
    chunks = list(flight.frozen_chunks())
    assert [len(chunk) for chunk in chunks] == 3 * [CHUNK * PAGED_SIZE]
    flight.take_next(owner, name(0), 0)
    assert list(flight.frozen_chunks()) == []
    *packed, rest = flight.packed()
    assert [chunk for chunk, _ in packed] == chunks
    assert [len(gone) // 8 for _, gone in packed] == [1, 0, 0]
    assert entries_of([rest]) == [(3 * CHUNK, 0, 1)]
    assert len(list(flight.frozen_chunks())) == 3

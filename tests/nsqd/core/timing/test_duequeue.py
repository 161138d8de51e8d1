"""The priority queue by time: order, removal by handle, and the bound on tombstones after any sequence."""

import gc
import weakref

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsqd.core.timing import duequeue
from nsqd.core.timing.duequeue import SLACK, DueQueue
from tests.nsqd.core.listed import result_of


class Item:
    """Something that can be weakly referred to."""


def test_removed_items_do_not_come_out_and_are_freed_at_once_and_clear_voids_handles() -> None:
    queue: DueQueue[Item] = DueQueue()
    item = Item()
    alive = weakref.ref(item)
    handle = queue.push(1, item)
    assert queue.remove(handle) is item
    assert queue.remove(handle) is None
    del item
    gc.collect()
    assert alive() is None
    assert queue.next_due() is None
    handle = queue.push(1, Item())
    queue.clear()
    other = Item()
    queue.push(1, other)
    assert queue.remove(handle) is None
    assert queue.pop_due(1, 1) == [other]


@given(
    st.lists(st.tuples(st.sampled_from(["push", "push", "remove", "pop", "look"]), st.integers(0, 50)), max_size=900)
)
def test_bound_and_order_after_any_sequence(steps: list[tuple[str, int]]) -> None:
    queue: DueQueue[int] = DueQueue()
    model: dict[int, int] = {}  # handle -> due
    for step, number in steps:
        if step == "push":
            handle = queue.push(number, len(model))
            model[handle] = number
        elif step == "remove" and model:
            handle = list(model)[number % len(model)]
            assert queue.remove(handle) is not None
            del model[handle]
        elif step == "pop":
            popped = queue.pop_due(number, 3)
            expected = sorted((due, handle) for handle, due in model.items() if due <= number)[:3]
            assert len(popped) == len(expected)
            for _, handle in expected:
                del model[handle]
        assert len(queue) == len(model)
        assert len(queue._heap) <= 2 * len(model) + SLACK
        queue.check()
        if step == "look":
            assert queue.next_due() == min(model.values(), default=None)


def test_popping_keeps_the_bound() -> None:
    queue: DueQueue[int] = DueQueue()
    far = [queue.push(10, 0) for _ in range(1064)]
    for _ in range(1000):
        queue.push(1, 0)
    for handle in far:
        queue.remove(handle)
    queue.pop_due(1, 2000)
    queue.check()


def test_chosen_items_are_taken_out_with_their_times() -> None:
    queue: DueQueue[int] = DueQueue()
    handles = [queue.push(number, number) for number in (5, 1, 3, 2, 4)]
    queue.remove(handles[2])
    assert sorted(queue.remove_chosen(lambda number: number % 2 == 1)) == [(1, 1), (5, 5)]
    assert queue.pop_due(9, 9) == [2, 4]
    queue.check()


@given(st.lists(st.integers(0, 20), max_size=60), st.sets(st.integers(0, 59)), st.integers(0, 59), st.integers(1, 9))
def test_items_are_listed_in_order_from_any_place(dues: list[int], removed: set[int], place: int, count: int) -> None:
    queue: DueQueue[int] = DueQueue()
    for due in dues:
        queue.push(due, due)
    for handle in removed:
        queue.remove(handle)
    left = sorted((due, handle, due) for handle, due in enumerate(dues) if handle not in removed)
    assert list(queue.ascending()) == left
    even = [entry for entry in left if entry[2] % 2 == 0]
    for after in [(-1, -1), *(entry[:2] for entry in left[place : place + 1])]:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(duequeue, "WALKED_AT_ONCE", 7)
            found = result_of(queue.after(after, count, lambda due: due % 2 == 0))
        assert found == [entry for entry in even if entry[:2] > after][:count]


def test_an_item_that_is_removed_while_others_are_looked_at_keeps_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(duequeue, "WALKED_AT_ONCE", 2)
    queue: DueQueue[str] = DueQueue()
    handles = [queue.push(due, name) for due, name in enumerate("abcde")]
    steps = queue.after((0, handles[0]), 3, lambda _: True)
    next(steps)
    next(steps)
    queue.remove(handles[2])
    queue.push(0, "first")
    assert result_of(steps) == [(1, 1, "b"), (2, 2, None), (3, 3, "d")]

"""What was done is shown once, on its own page, to whoever did it."""

from __future__ import annotations

from itertools import count

from admin.flashes import KEPT, MOST, Flashes


class World:
    """Flashes with a clock that the test sets, and tokens t1, t2, ..."""

    def __init__(self) -> None:
        self.now = 100.0
        numbers = count(1)
        self.flashes = Flashes(lambda: self.now, lambda: f"t{next(numbers)}")


def test_it_is_taken_once() -> None:
    flashes = World().flashes
    token = flashes.put("ann", "/topics/t", {"did": "pause"})
    assert flashes.take(token, "ann", "/topics/t") == {"did": "pause"}
    assert flashes.take(token, "ann", "/topics/t") == {}


def test_no_other_page_and_nobody_else_takes_it() -> None:
    flashes = World().flashes
    token = flashes.put("ann", "/topics/t", {"did": "pause"})
    assert flashes.take(token, "eve", "/topics/t") == {}
    assert flashes.take(token, "ann", "/nodes") == {}
    assert flashes.take("t9", "ann", "/topics/t") == {}
    assert flashes.take(token, "ann", "/topics/t") == {"did": "pause"}


def test_it_ends_and_the_oldest_makes_room() -> None:
    world = World()
    token = world.flashes.put("ann", "/", {"did": "pause"})
    world.now += KEPT
    assert world.flashes.take(token, "ann", "/") == {}
    first = world.flashes.put("ann", "/", {"did": "pause"})
    last = [world.flashes.put("ann", "/", {"did": "empty"}) for _ in range(MOST)][-1]
    assert world.flashes.take(first, "ann", "/") == {}
    assert world.flashes.take(last, "ann", "/") == {"did": "empty"}

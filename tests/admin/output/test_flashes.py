"""What was done is shown once, on its own page, to whoever did it."""

from itertools import count

from admin.output.flashes import KEPT, MOST, Flashes
from tests.admin.asking import Clock

DONE = {"did": "pause"}


def test_it_is_taken_once_on_its_page_by_whoever_did_it_and_ends() -> None:
    clock, numbers = Clock(100.0), count(1)
    flashes = Flashes(clock, lambda: f"t{next(numbers)}")
    token = flashes.put("ann", "/topics/t", DONE)
    for others in ((token, "eve", "/topics/t"), (token, "ann", "/nodes"), ("t9", "ann", "/topics/t")):
        assert flashes.take(*others) == {}
    assert flashes.take(token, "ann", "/topics/t") == DONE
    assert flashes.take(token, "ann", "/topics/t") == {}
    token = flashes.put("ann", "/", DONE)
    clock.now += KEPT
    assert flashes.take(token, "ann", "/") == {}
    first = flashes.put("ann", "/", DONE)
    last = [flashes.put("ann", "/", {"did": "empty"}) for _ in range(MOST)][-1]
    assert flashes.take(first, "ann", "/") == {}, "the oldest makes room"
    assert flashes.take(last, "ann", "/") == {"did": "empty"}

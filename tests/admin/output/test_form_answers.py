"""The result of an action is shown once, to its user and not by the address; a refused form requests its page as it was."""

from itertools import count

from admin.output.form_answers import KEPT, MOST, Flashes, asked_again, split_result
from tests.admin.asking import Clock


def test_the_address_does_not_say_what_was_done() -> None:
    shown, page, result = split_result("/tube?name=a%2Bb&after=&did=kick&n=3&key=")
    assert (shown, page) == ("/tube", "/tube?name=a%2Bb&after=")
    assert result == {"did": "kick", "n": "3", "key": ""}


def test_a_refused_form_asks_for_its_page_and_keeps_what_it_would_have_acted_on() -> None:
    page = {"name": "t", "node": "n:1", "state": "buried"}
    form = page | {"action": "kick", "confirm": "x", "csrf": "secret", "body": "b"}
    assert asked_again(form) == page
    many = {"count": "5", "per_second": "1"}
    assert asked_again(form | many) == page | many | {"many": "kick"}
    # without its filters, the form that comes back would finish all messages
    chosen = {"header": "a=b", "min_attempts": "3", "before": "1h", "since": "2d", "search": "x", "reason": "r"}
    assert asked_again(chosen | {"confirm": "4"}) == chosen
    assert asked_again({"action": "move", "count": "5", "to": "t"}) == {"count": "5", "to": "t", "many": "move"}


DONE = {"did": "pause"}


def test_a_result_is_shown_once_on_its_page_to_its_user_and_expires() -> None:
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

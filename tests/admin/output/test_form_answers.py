"""What an action returns is parted into an address and what was done; a refused form asks for its page as it was."""

from admin.output.form_answers import asked_again, split_result
from tests.cases import each


@each("where, parts", [
        ("/topics/t?did=pause", ("/topics/t", "/topics/t", {"did": "pause"})),
        ("/tasks/7", ("/tasks/7", "/tasks/7", {})),
        (
            "/tube?name=a%2Bb&node=n%3A1&after=&did=kick&n=3",
            ("/tube", "/tube?name=a%2Bb&node=n%3A1&after=", {"did": "kick", "n": "3"}),
        ),
        (
            "/topics/t?published=duplicate&key=&at=n%3A1",
            ("/topics/t", "/topics/t", {"published": "duplicate", "key": "", "at": "n:1"}),
        ),
    ])  # fmt: skip
def test_the_address_does_not_say_what_was_done(where: str, parts: tuple[str, str, dict[str, str]]) -> None:
    assert split_result(where) == parts


def test_a_refused_form_asks_for_its_page_and_keeps_what_it_would_have_acted_on() -> None:
    page = {"name": "t", "node": "n:1", "state": "buried"}
    form = page | {"action": "kick", "confirm": "x", "csrf": "secret", "body": "b"}
    assert asked_again(form) == page
    many = {"count": "5", "per_second": "1"}
    assert asked_again(form | many) == page | many | {"many": "kick"}
    # without its filters, the form that comes back would finish all messages
    chosen = {"header": "a=b", "min_attempts": "3", "before": "1h", "since": "2d", "contains": "x", "reason": "r"}
    assert asked_again(chosen | {"confirm": "4"}) == chosen
    assert asked_again({"action": "move", "count": "5", "to": "t"}) == {"count": "5", "to": "t", "many": "move"}

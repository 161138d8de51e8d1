from shared.counted import counted
from tests.cases import each


@each(
    "number, noun, text",
    [
        (0, "message", "0 messages"),
        (1, "message", "1 message"),
        (1234, "buried job", "1,234 buried jobs"),
        (1, "more copy", "1 more copy"),
        (2, "more copy", "2 more copies"),
        (2, "day", "2 days"),
        (2, "match", "2 matches"),
        (3, "publish", "3 publishes"),
        (3, "alias", "3 aliases"),
    ],
)
def test_a_number_agrees_with_its_noun(number: int, noun: str, text: str) -> None:
    assert counted(number, noun) == text

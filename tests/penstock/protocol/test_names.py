"""Topic and channel names.

See docs/design/nsq-protocol.md#names.
"""

from penstock.protocol import is_ephemeral, is_valid_name
from tests.cases import each


@each("name", ["a", "A.b-c_9", "...", "x" * 64, "a#ephemeral", "x" * 54 + "#ephemeral", "-", "0", ".a"])
def test_legal(name: str) -> None:
    assert is_valid_name(name)


@each(
    "name",
    [
        "",
        "x" * 65,
        "x" * 55 + "#ephemeral",  # the suffix counts
        "#ephemeral",
        "a#other",
        "a#ephemeral#ephemeral",
        "a b",
        "a/b",
        "a\n",
        "a\0",
        "ü",
        "٣",  # a digit, but not an ASCII one
        ".",
        "..",
        "..#ephemeral",
    ],
)
def test_illegal(name: str) -> None:
    assert not is_valid_name(name)


def test_ephemeral() -> None:
    assert is_ephemeral("a#ephemeral")
    assert not is_ephemeral("a")

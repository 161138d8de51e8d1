"""Topic and channel names."""

from penstock.protocol import is_ephemeral, is_valid_name


def test_names() -> None:
    legal = ("a", "A.b-c_9", "...", "x" * 64, "a#ephemeral", "x" * 54 + "#ephemeral", "-", "0", ".a")
    illegal = (
        "", "x" * 65, "x" * 55 + "#ephemeral",  # the suffix counts
        "#ephemeral", "a#other", "a#ephemeral#ephemeral", "a b", "a/b", "a\n", "a\0", "ü", "٣",  # a digit, but not an ASCII one
        ".", "..", "..#ephemeral",
    )  # fmt: skip
    assert [name for name in legal if not is_valid_name(name)] == []
    assert [name for name in illegal if is_valid_name(name)] == []
    assert is_ephemeral("a#ephemeral")
    assert not is_ephemeral("a")

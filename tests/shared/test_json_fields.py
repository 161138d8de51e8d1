"""Fields of JSON from nodes that may lie."""

from shared.json_fields import all_texts


def test_names_are_kept_as_they_are_only_if_all_are_ascii() -> None:
    names = ["a", "b"]
    assert all_texts(names) is names
    assert all_texts(["a", "\ud800", "\u00e9", 5, None]) == ["a", "\ufffd", "\u00e9", "", ""]
    assert all_texts(["a", "\ud800"]) == ["a", "\ufffd"]

"""Edits of an auth file's text: the entry changes, and comments, order and all other entries do not."""

import tomllib

import pytest

from shared.auth.edit import added, changed, patterns_of, removed, written
from tests.cases import each

A, B = "a" * 64, "b" * 64
FILE = f"""# ours

[[role]]
name = "orders"  # theirs
rules = [
  {{ verbs = ["act"], topics = ["orders.*"] }},
]

# Ann, since May
[[user]]
  name = "ann"
  roles = ["orders",  "viewer"]  # until June
  sha256 = '{A}'

# the robot
[[token]]
name = "ann"
sha256 = "{B}"
roles = ["viewer"]
# the end
"""


def test_values_of_an_entry_change_in_their_lines_and_are_toml() -> None:
    new = changed(FILE, "user", "ann", {"roles": ["viewer"], "sha256": None, "topics": ["re:a\\.b", "c"]})
    assert new == FILE.replace('["orders",  "viewer"]', '["viewer"]').replace(f"  sha256 = '{A}'\n", "").replace(
        '  name = "ann"\n', '  name = "ann"\n  topics = [\'re:a\\.b\', "c"]\n'
    )
    assert changed(FILE, "user", "ann", {}) == FILE

    for value in ("a", 'a"b', "a\\b", ["a", 'b"', "re:\\d"], []):
        assert tomllib.loads(f"x = {written(value)}") == {"x": value}
    for wrong in ("it's", "a\nb", "\x00"):
        with pytest.raises(ValueError, match="by hand"):
            written(wrong)
    assert patterns_of("orders.*,re:a|b") == ["orders.*", "re:a|b"]


def test_an_entry_that_is_not_there_is_added_at_the_end_if_its_name_is_not_taken() -> None:
    new = changed(FILE, "user", "bob", {"roles": ["orders"], "password": None, "topics": ["x"]})
    assert new == FILE + '\n[[user]]\nname = "bob"\nroles = ["orders"]\ntopics = ["x"]\n'
    assert changed("", "user", "bob", {"roles": ["viewer"]}) == '[[user]]\nname = "bob"\nroles = ["viewer"]\n'
    with pytest.raises(ValueError, match="the role 'none' is not known"):
        changed(FILE, "user", "bob", {"roles": ["none"]})
    text = changed("", "token", "ann", {"sha256": "0" * 64, "roles": ["viewer"]})
    with pytest.raises(ValueError, match="Ann differs from ann, a token, in case only: choose another name"):
        changed(text, "user", "Ann", {"password": None, "roles": ["viewer"]})
    assert 'name = "ann"' in changed(text, "user", "ann", {"password": None, "roles": ["viewer"]})


def test_an_entry_is_removed_without_the_comments_of_the_next_one() -> None:
    entry = FILE[FILE.index("[[user]]") : FILE.index("# the robot")]
    assert removed(FILE, "user", "ann") == (FILE.replace(entry, ""), 1)
    assert removed(FILE, "token", "bob") == (FILE, 0)
    last = f'[[token]]\nname = "ann"\nsha256 = "{B}"\nroles = ["viewer"]\n'
    assert removed(FILE, "token", "ann") == (FILE.replace(last, ""), 1)
    two = added(FILE, "token", ['name = "ann"', f'sha256 = "{"c" * 64}"', 'roles = ["viewer"]'])
    assert removed(two, "token", "ann", but_last=True) == (two.replace(last, ""), 1)
    assert removed(two, "token", "ann")[1] == 2


@each("text", [
    'user = [{ name = "ann", roles = ["viewer"] }]\n', '[["user"]]\nname = "ann"\nroles = ["viewer"]\n',
    '[[user]]\nname = "ann"\nroles = [\n"viewer"\n]\n', '[[user]]\nname = "ann"\nroles = ["viewer"] \n"topics" = ["a"]\n',
])  # fmt: skip
def test_what_is_written_in_another_way_is_not_changed_by_half(text: str) -> None:
    for values in ({"roles": ["admin"]}, {"topics": ["b"]}):
        try:
            new = changed(text, "user", "ann", values)
        except ValueError:
            continue
        assert tomllib.loads(new)["user"] == [tomllib.loads(text)["user"][0] | values]
    try:
        new, _ = removed(text, "user", "ann")
    except ValueError:
        return
    assert not tomllib.loads(new).get("user")


@each("text", ['user = [{ name = "ann", roles = ["viewer"] }]\n', "x = ["])
def test_what_cannot_be_edited_says_so(text: str) -> None:
    for edit in (lambda: changed(text, "user", "ann", {"roles": ["admin"]}), lambda: removed(text, "user", "ann")):
        with pytest.raises(ValueError, match=r"edit the file|line|end of document"):
            edit()

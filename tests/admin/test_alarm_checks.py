"""Each rule: a look in which it holds, and its neighbors in which it does not."""

from __future__ import annotations

from tests.admin.looks import channel, look, words


def test_buried() -> None:
    settings = ("buried.messages=5",)
    assert words("buried", look({("t", "c"): channel(buried=5)}), settings=settings) == {"t/c": "5 buried"}
    assert not words("buried", look({("t", "c"): channel(buried=4)}), settings=settings)

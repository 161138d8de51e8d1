"""The identities that use a node the most; lies included."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from admin.nodes.talkers import MOST, Talker, top_talkers


def test_those_with_the_most_bytes_come_first() -> None:
    told = [{"name": f"n{number}", "bytes": number, "messages": 1} for number in range(MOST + 5)]
    found = top_talkers({"identities": told})
    assert [one.name for one in found] == [f"n{number}" for number in range(MOST + 4, 4, -1)]
    assert found[0] == Talker("n14", 0, 0, 1, 14, 0, 0, 0)
    assert top_talkers({}) == []


_KEYS = st.sampled_from(["name", "bytes", "messages", "throttled", "connections"])
_ANY = st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.lists(st.integers())


@given(st.dictionaries(st.just("identities"), _ANY | st.lists(_ANY | st.dictionaries(_KEYS, _ANY))))
def test_whatever_a_node_says_is_shown_or_left_out(answer: dict[str, Any]) -> None:
    found = top_talkers(answer)
    assert len(found) <= MOST
    assert all(isinstance(one.name, str) and isinstance(one.bytes, int) for one in found)

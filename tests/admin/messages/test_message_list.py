"""One list of the messages of several nodes: merged, page by page, and searched."""

import base64
import contextlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from admin.messages import message_list
from admin.messages.message_list import (
    MOST_SCANNED,
    MOST_SHOWN,
    MOST_TOKEN,
    ListPosition,
    MessageList,
    MessageLists,
    merged,
    read_token,
    token_of,
)
from admin.nodes.upstreams import Refused, UpstreamError
from shared.http.errors import HttpError
from tests.admin.asking import in_loop
from tests.admin.fake_nodes import FakeNode, queries_of
from tests.cases import each

ASKED = {"topic": "t", "channel": "c", "state": "ready", "preview": "0"}


def page(nodes: dict[str, FakeNode], token: str = "", **asked: str) -> MessageList:
    lists = MessageLists(queries_of(**nodes))
    find = lists.search if "contains" in asked else lists.page
    return in_loop(lambda: find(list(nodes), ASKED | asked, token))


def pages(nodes: dict[str, FakeNode], **asked: str) -> list[MessageList]:
    found = [page(nodes, **asked)]
    while found[-1].following:
        found.append(page(nodes, found[-1].following, **asked))
        assert len(found) < 1000
    return found


def shown(found: MessageList) -> list[tuple[str, int]]:
    return [(one["node"], one["offset"]) for one in found.messages]


@given(st.lists(st.lists(st.integers(0, 1000), max_size=150), min_size=1, max_size=4))
def test_the_pages_together_have_every_message_once(times: list[list[int]]) -> None:
    nodes = {f"n{place}": FakeNode(dict(enumerate(sorted(one)))) for place, one in enumerate(times)}
    found = pages(nodes)
    messages = [one for each in found for one in each.messages]
    assert [one["timestamp"] for one in messages] == sorted(one["timestamp"] for one in messages)
    every = sorted((name, one) for name, node in nodes.items() for one in node.messages)
    assert sorted(shown(MessageList(messages))) == every
    assert all(len(one.messages) <= MOST_SHOWN for one in found)
    assert all(len(one.messages) == MOST_SHOWN for one in found[:-1])
    assert found[0].counts["ready"] == len(messages)


def test_each_node_is_asked_once_for_a_page() -> None:
    nodes = {name: FakeNode({one: one for one in range(100)}) for name in "abc"}
    found = page(nodes)
    assert [len(node.asked) for node in nodes.values()] == [1, 1, 1]
    assert found.counts == {"ready": 300, "in_flight": 0, "deferred": 0, "buried": 3}


def test_a_node_that_fails_is_named_and_goes_on_with_the_next_page() -> None:
    nodes = {name: FakeNode({one: one for one in range(30)}) for name in "ab"}
    nodes["b"].failure = UpstreamError("b:1 did not answer")
    found = page(nodes)
    assert (shown(found), found.errors) == ([("a", one) for one in range(20)], ["b:1 did not answer"])
    nodes["b"].failure = None
    assert shown(page(nodes, found.following)) == [("b", one) for one in range(20)]


def test_a_node_without_the_channel_is_passed_over_unless_all_are() -> None:
    gone = Refused("404", 404)
    nodes = {"a": FakeNode({1: 1}), "b": FakeNode({}, gone)}
    found = page(nodes)
    assert (shown(found), found.errors) == ([("a", 1)], [])
    nodes["a"].failure = gone
    with pytest.raises(HttpError, match="No node that answers has this channel"):
        page(nodes)


def test_the_order_is_by_what_matters_in_the_state() -> None:
    listed = {"a": [{"ready_at": 5, "timestamp": 1}, {"ready_at": 3}], "b": [{"ready_at": 4, "timestamp": 2}]}
    assert [one["ready_at"] for _, one in merged(listed, "deferred", 9)] == [4, 5, 3]
    assert [name for name, _ in merged(listed, "ready", 2)] == ["a", "a"]


def test_a_search_has_all_matches_of_all_nodes_in_order() -> None:
    nodes = {"a": FakeNode({one: one for one in range(1000)}), "b": FakeNode({one: one for one in range(500)})}
    found = pages(nodes, contains="99")
    wanted = [(name, one) for name, node in nodes.items() for one in node.messages if "99" in str(one)]
    assert sorted(shown(MessageList([one for each in found for one in each.messages]))) == wanted
    assert sum(one.scanned for one in found) == 1500
    # it ends at its limits, and continues
    nodes = {"a": FakeNode({one: one for one in range(MOST_SCANNED + 7)})}
    found = page(nodes, contains="none")
    assert (found.messages, found.scanned) == ([], MOST_SCANNED)
    rest = page(nodes, found.following, contains="none")
    assert (rest.scanned, rest.following) == (7, "")


def test_a_search_leaves_out_nodes_that_fail_or_hang(monkeypatch: pytest.MonkeyPatch) -> None:
    found = page({"a": FakeNode({5: 1}), "c": FakeNode({5: 1}, UpstreamError("c is gone"))}, contains="5")
    assert (shown(found), found.errors) == ([("a", 5)], ["c is gone"])
    monkeypatch.setattr(message_list, "PATIENCE", 0.0)
    found = page({"a": FakeNode({1: 1}, hangs=True)})
    assert found.errors == ["a did not answer in time. Its messages are not listed."]


def test_a_token_says_where_each_node_goes_on() -> None:
    places = {"a:1": ListPosition("7", 3), "b:1": ListPosition(ended=True), "c:1": ListPosition()}
    assert read_token(token_of(places), ["a:1", "b:1", "c:1", "new:1"]) == places | {"new:1": ListPosition()}
    assert read_token(token_of(places), ["c:1"]) == {"c:1": ListPosition()}  # no other server is asked
    assert token_of({"b:1": ListPosition(ended=True)}) == ""


def packed(listed: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(listed).encode()).decode()


@each("token", [
        "x", "%%%", "\u20ac", "A" * (MOST_TOKEN + 1), packed(7), packed([7]), packed([["a", "b"]]), packed([["a", 1, 1]]),
        packed([["a", "1", "1"]]), packed([["a", "1", -2]]), packed([["a", "1", 10**9]]), packed([["a", "x" * 101, 1]]),
        packed([[["a"], "1", 1]]), packed([["a", "1", True]]), packed([["a", "", 0]] * 51), packed([None]),
    ])  # fmt: skip
def test_a_damaged_token_is_refused(token: str) -> None:
    with pytest.raises(HttpError) as refused:
        read_token(token, ["a"])
    assert refused.value.status == 400


@given(st.text(max_size=100) | st.binary(max_size=100).map(lambda one: base64.urlsafe_b64encode(one).decode()))
def test_whatever_a_token_is_it_is_read_or_refused(token: str) -> None:
    with contextlib.suppress(HttpError):
        assert list(read_token(token, ["a"])) == ["a"]

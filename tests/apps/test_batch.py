"""`penstock batch`, as a user types it, on a node in the test's process."""

import json
from collections.abc import Callable
from unittest.mock import Mock

import pytest

from apps import node_client
from tests.apps.program import penstock as penstock  # the fixture
from tests.local_node import SECOND, LocalNode
from tests.nsqd.http.asking import drained, post

Penstock = Callable[..., tuple[int, bytes, str]]


@pytest.fixture
def node() -> LocalNode:
    return LocalNode()


def test_a_batch_is_listed_closed_shown_and_awaited(
    node: LocalNode, penstock: Penstock, monkeypatch: pytest.MonkeyPatch
) -> None:
    post(node, "/topic/create", topic="t")
    post(node, "/channel/create", topic="t", channel="c")
    post(node, "/pub", "x", topic="t", batch="b")
    assert penstock("batch", "close", "empty") == penstock("batch", "close", "b") == (0, b"", "")
    node.advance(2 * SECOND)
    lines = penstock("batch", "list")[1].decode().splitlines()
    assert [line.split()[:3] for line in lines] == [
        ["BATCH", "STATE", "MEMBERS"], ["b", "closed", "1"], ["empty", "done", "0"],
    ]  # fmt: skip
    assert [json.loads(one)["batch"] for one in penstock("batch", "list", "--json")[1].splitlines()] == ["b", "empty"]
    assert json.loads(penstock("batch", "show", "b")[1])["pending"] == 1
    code, _, why = penstock("batch", "wait", "b", "--timeout", "0s")
    assert (code, "is closed, and not done" in why) == (1, True)

    drained(node, "t", "c", 1)
    opened = Mock(side_effect=node_client.open_client)
    monkeypatch.setattr(node_client, "open_client", opened)
    assert json.loads(penstock("batch", "wait", "b")[1])["finished"] == 1
    opened.assert_called_once()  # a command that prints the token may ask the user


def test_errors_say_what_to_do(node: LocalNode, penstock: Penstock) -> None:
    for command, name, why in (("show", "none", "has no such batch"), ("close", "a b", "1 to 64 printable")):
        code, _, error = penstock("batch", command, name)
        assert (code, why in error) == (1, True), error

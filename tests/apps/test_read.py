"""`penstock read` and `cursors`, as a user types them, on a node in the test's process."""

import json
from collections.abc import Callable

import pytest

from tests.apps.program import penstock as penstock  # the fixture
from tests.local_node import LocalNode

BODIES = [b"one", "zw\u00f6lf\u2028".encode(), b"\xff\0three", b"four"]
Penstock = Callable[..., tuple[int, bytes, str]]


def post(node: LocalNode, path: str, body: bytes = b"", **arguments: str) -> None:
    node.client.post(path, params=arguments, content=body).raise_for_status()


@pytest.fixture
def node() -> LocalNode:
    node = LocalNode()
    post(node, "/topic/create", topic="t", retention="1h")
    post(node, "/channel/create", topic="t", channel="c")
    for body in BODIES:
        post(node, "/pub", body, topic="t")
    return node


def test_read_prints_what_is_retained(node: LocalNode, penstock: Penstock) -> None:
    assert penstock("read", "t") == (0, b"\n".join(BODIES) + b"\n", "")
    assert penstock("read", "t", "--from", "3") == (0, b"four\n", "")
    assert penstock("read", "t", "--from=-1h", "--to", "1") == (0, b"one\n", "")
    assert penstock("read", "t", "-n", "1") == (0, b"one\n", "")
    assert penstock("read", "t", "-f", "-n", "4") == (0, b"\n".join(BODIES) + b"\n", "")
    code, out, _ = penstock("read", "t", "--json")
    lines = [json.loads(line) for line in out.splitlines()]
    assert (code, [line["offset"] for line in lines]) == (0, [0, 1, 2, 3])
    assert lines[1]["body"] == BODIES[1].decode()


def test_a_cursor_is_read_from_and_moved_behind_what_was_printed(node: LocalNode, penstock: Penstock) -> None:
    assert penstock("read", "t", "--cursor", "me", "-n", "1") == (0, b"one\n", "")
    assert penstock("cursors", "t") == (0, b"me: offset 1, lag 3\n", "")
    assert penstock("read", "t", "--cursor", "me") == (0, b"\n".join(BODIES[1:]) + b"\n", "")
    assert penstock("read", "t", "--cursor", "me") == (0, b"", "")
    post(node, "/topic/cursor", topic="t", name="owned", to="2", owner="spark")
    cursors = [json.loads(line) for line in penstock("cursors", "t", "--json")[1].splitlines()]
    assert [(one["name"], one["offset"], one["owner"]) for one in cursors] == [("me", 4, ""), ("owned", 2, "spark")]
    assert penstock("cursors", "t", "--delete", "owned")[0] == 1
    assert penstock("cursors", "t", "--delete", "owned", "--owner", "spark")[0] == 0
    assert penstock("cursors", "t")[1] == b"me: offset 4, lag 0\n"
    assert penstock("read", "t", "--cursor", "me", "--from", "1")[0] == 2
    post(node, "/topic/cursor", topic="t", name="owned", to="2", owner="spark")
    code, out, why = penstock("read", "t", "--cursor", "owned")
    assert (code, out, "--owner spark" in why) == (1, b"", True)
    assert penstock("read", "t", "--cursor", "owned", "--owner", "spark")[1] == b"\n".join(BODIES[2:]) + b"\n"


def test_a_cursor_that_retention_has_passed_goes_on_with_what_is_left(node: LocalNode, penstock: Penstock) -> None:
    assert penstock("read", "t", "--cursor", "slow", "-n", "1")[1] == b"one\n"
    post(node, "/topic/config", topic="t", retention="0s", retention_bytes="0")
    post(node, "/topic/config", topic="t", retention="1h")
    post(node, "/pub", b"new", topic="t")
    assert penstock("read", "t", "--cursor", "slow") == (
        0,
        b"new\n",
        "penstock: 3 messages expired before cursor slow read them\n",
    )
    assert penstock("read", "t", "--cursor", "slow") == (0, b"", "")


def test_errors_say_what_to_do(penstock: Penstock) -> None:
    code, _, error = penstock("read", "nowhere")
    assert (code, error.split(":")[1].strip()) == (1, "TOPIC_NOT_FOUND")
    assert "penstock topics lists the existing ones" in error
    code, _, error = penstock("read", "t", "--from", "99")
    assert (code, "no message with this offset was published yet" in error) == (1, True)
    assert penstock("read", "t", "-n", "x")[0] == 2
    assert penstock("read", "t", "--cursor", "me", "--from", "1")[2] == "penstock read: use either --from or --cursor\n"
    assert penstock("read", "t", "--follow", "--to", "1")[2] == "penstock read: use either --follow or --to\n"
    for options, why in (("-f", "--all-nodes goes with neither"), ("--to=1", "an offset belongs to one log")):
        assert penstock("read", "t", "--all-nodes", options)[2].startswith(f"penstock read: {why}")

"""`penstock read`, `cursors`, `peek`, `queues` and the actions, as a user types them, on a node in the test's process."""

import json
from collections.abc import Callable

import pytest

from tests.apps.program import penstock as penstock  # the fixture
from tests.disque_client import Client as Disque
from tests.local_node import LocalNode

BODIES = [b"one", "zw\u00f6lf\u2028".encode(), b"\xff\0three", b"four"]
MOMENT = 10_000_000  # ns, in which all bytes arrive
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
    assert penstock("read", "t", "--cursor", "me", "--from", "1")[0] == 1
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


def test_peek_and_act(node: LocalNode, penstock: Penstock) -> None:
    assert penstock("peek", "t", "c", "-n", "2") == (0, b"\n".join(BODIES[:2]) + b"\n", "")
    assert penstock("bury", "t", "c", "--offset", "0,2", "--reason", "odd") == (0, b"2 buried\n", "")
    assert penstock("peek", "t", "c", "--state", "buried") == (0, b"one\n\xff\0three\n", "")
    assert penstock("kick", "t", "c", "--state", "buried") == (0, b"1 kicked\n", "")
    assert penstock("requeue", "t", "c", "--offset=3", "--delay=90000") == (0, b"1 requeued\n", "")
    assert penstock("finish", "t", "c", "--offset", "1", "--json") == (0, b'{"finished": 1}\n', "")
    assert penstock("move", "t", "c", "--state", "ready", "--to", "u") == (0, b"1 moved\n", "")
    assert penstock("peek", "t", "c") == (0, b"", "")
    code, out, _ = penstock("peek", "t", "c", "--state", "deferred", "--json")
    assert (code, json.loads(out)["body"]) == (0, "four")


def test_errors_say_what_to_do(penstock: Penstock) -> None:
    code, _, error = penstock("read", "nowhere")
    assert (code, error.split(":")[1].strip()) == (1, "TOPIC_NOT_FOUND")
    assert "127.0.0.1:4151" in error
    code, _, error = penstock("read", "t", "--from", "99")
    assert (code, "no message with this offset was published yet" in error) == (1, True)
    code, _, error = penstock("kick", "t", "c")
    assert (code, "either --offset or --state" in error) == (2, True)
    assert penstock("read", "t", "-n", "x")[0] == 2
    assert penstock("peek", "t")[0] == 2


def test_queues_are_listed_and_their_jobs_acted_on(node: LocalNode, penstock: Penstock) -> None:
    disque, waiting = Disque(node.connect("DISQUE")), Disque(node.connect("DISQUE"))
    ids = [
        disque.do("ADDJOB", "mail", body, 0, *more)
        for body, more in ((b"a", ()), (b"\xff", ()), (b"c", ("DELAY", 900)))
    ]
    disque.do("ADDJOB", "other", "x", 0)
    disque.do("PAUSE", "shut", "in")
    waiting.send("GETJOB", "FROM", "shut")
    node.advance(MOMENT)
    assert penstock("queues") == (
        0,
        b"mail: 2 ready, 0 out, 1 delayed, 0 buried\n"
        b"other: 1 ready, 0 out, 0 delayed, 0 buried\n"
        b"shut: 0 ready, 0 out, 0 delayed, 0 buried; 1 clients of Disque wait; paused in\n",
        "",
    )
    queues = json.loads(penstock("queues", "mail", "--json")[1])
    assert (queues["tube_name"], queues["ready_count"], queues["queue_paused"]) == ("mail", 2, "none")
    code, out, why = penstock("queues", "other", "nowhere")
    assert (code, out[:6], "queue nowhere was not found" in why) == (1, b"other:", True)
    # pauses
    assert penstock("queues", "mail", "other", "--pause", "out", "--by", "ann")[:2] == (
        0, b"mail: paused out\nother: paused out\n",
    )  # fmt: skip
    assert disque.get("mail") == []
    assert penstock("queues", "mail", "--pause", "none")[1] == b"mail: resumed\n"
    assert penstock("queues", "--pause", "in")[0] == 1
    # jobs
    queue = ("--queue", "mail")
    assert penstock("peek", *queue) == (0, b"a\n\xff\n", "")
    assert (
        penstock("peek", "--state", "delayed", *queue)[1]
        == penstock("peek", "--state", "deferred", *queue)[1]
        == b"c\n"
    )
    listed = [json.loads(line) for line in penstock("peek", "--json", *queue)[1].splitlines()]
    assert [job["disque_id"] for job in listed] == ids[:2]
    assert penstock("bury", "--id", f"{ids[0]},{listed[1]['id']}", *queue)[:2] == (0, b"2 buried\n")
    assert penstock("kick", "--state", "buried", "--count", "9", *queue)[:2] == (0, b"2 kicked\n")
    assert disque.get("mail", 1) == [b"a"]
    assert penstock("peek", "--state", "active", *queue)[1] == b"a\n"
    assert penstock("requeue", "--id", ids[0], *queue)[:2] == (0, b"1 released\n")
    assert penstock("finish", "--id", ids[0], *queue)[:2] == (0, b"1 deleted\n")
    assert penstock("kick", "--id", ids[2], "--json", *queue)[1] == b'{"kicked": 1}\n'


@pytest.mark.parametrize(("words", "code", "why"), [
    (("peek",), 2, "name TOPIC and CHANNEL, or --queue"), (("peek", "t"), 2, "name TOPIC and CHANNEL, or --queue"),
    (("peek", "t", "c", "--queue", "q"), 2, "name either TOPIC and CHANNEL, or --queue"),
    (("peek", "--queue", "nowhere"), 1, "TUBE_NOT_FOUND: list the existing ones with `penstock queues"),
    (("peek", "t", "c", "--state", "gone"), 2, "expected ready, in_flight, deferred or buried"),
    (("move", "--queue", "q", "--to", "t", "--state", "ready"), 2, "only messages of a channel"),
    (("finish", "--queue", "q", "--offset", "1"), 2, "--offset names messages of a channel, and --id jobs"),
    (("finish", "t", "c", "--id", "1"), 2, "--offset names messages of a channel, and --id jobs"),
    (("finish", "--queue", "q"), 2, "give either --id or --state"),
    (("finish", "t", "c"), 2, "give either --offset or --state"),
    (("requeue", "--queue", "q", "--id", "1", "--delay", "5"), 2, "--delay is for messages of a channel"),
    (("kick", "--queue", "t", "--id", "x"), 1, "INVALID_ARG_ID: a job's id is a number"),
])  # fmt: skip
def test_what_a_command_cannot_act_on(penstock: Penstock, words: tuple[str, ...], code: int, why: str) -> None:
    found = penstock(*words)
    assert found[:2] == (code, b"")
    assert why in " ".join(found[2].split())

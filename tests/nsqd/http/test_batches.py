"""/batch and /batches: batches over kills and checkpoints, the counts, rights and bad input."""

from typing import Any

import pytest

from tests.cases import each
from tests.local_node import SECOND, LocalNode, MemorySocket
from tests.nsqd.http.asking import ask, drained, get, post, reply_of


def pub(node: LocalNode, body: str = "x", topic: str = "t", **arguments: str) -> Any:
    answer = ask(node, "POST", "/pub", body, topic=topic, **arguments)
    return answer.text if answer.status_code == 200 else reply_of(answer)


def shown(node: LocalNode, **more: str) -> dict[str, Any]:
    """Return the batch `b` without its times."""
    node.advance(2 * SECOND)
    found: dict[str, Any] = get(node, "/batch", batch="b", **more)
    assert found.pop("created") <= found.pop("changed") <= node.clock.wall // SECOND
    return found


def whole(sock: MemorySocket) -> bytes:
    return b"".join(iter(lambda: sock.recv(65536), b""))


def started(*flags: str) -> LocalNode:
    node = LocalNode(*flags)
    for topic in ("t", "done"):
        post(node, "/topic/create", topic=topic)
        post(node, "/channel/create", topic=topic, channel="c")
    return node


@pytest.fixture
def node() -> LocalNode:
    return started()


@each("has_checkpoint", [False, True])
def test_a_batch_and_its_follow_up_survive_kills(has_checkpoint: bool) -> None:
    def again(node: LocalNode) -> LocalNode:
        for _ in range(2 * has_checkpoint):
            node.log.checkpoints._begin()
            node.advance(SECOND)
        return node.killed()

    node = started()
    for body in "123":
        assert pub(node, body, batch="b") == "OK"
    assert pub(node, "bye", "done", after="b", key="k") == "OK"
    assert ask(node, "POST", "/pub", "bye", topic="done", after="b", key="k").headers["X-Nsq-Duplicates"] == "1"
    open_ = {"batch": "b", "state": "open", "members": 3, "follow_ups": 1}
    assert shown(node) == open_
    node = again(node)
    assert shown(node, counts="true") == {**open_, "pending": 3, "finished": 0, "buried": 0}
    post(node, "/channel/messages/bury", topic="t", channel="c", offset=0)
    post(node, "/channel/messages/finish", topic="t", channel="c", offset="1")
    post(node, "/batch/close", batch="b")
    node = again(node)
    closed = {**open_, "state": "closed"}
    assert shown(node, counts="true") == {**closed, "pending": 1, "finished": 1, "buried": 1}
    post(node, "/channel/messages/finish", topic="t", channel="c", offset="2")
    done = {"batch": "b", "state": "done", "members": 3, "follow_ups": 0, "pending": 0, "finished": 2, "buried": 1}
    assert shown(node) == done
    node = again(node)
    assert shown(node) == done
    (message,) = get(node, "/channel/messages", topic="done", channel="c", state="ready")["messages"]
    assert message["headers"] == {"after": "b", "after-finished": "2", "after-buried": "1"}
    assert pub(node, batch="b") == (409, "BATCH_DONE")
    assert drained(node, "done", "c", 1) == [b"bye"]


def test_a_request_waits_until_the_batch_is_done_or_in_vain(node: LocalNode) -> None:
    pub(node, batch="b")
    assert get(node, "/batch", batch="b", wait="3s")["state"] == "open"
    assert reply_of(ask(node, "GET", "/batch", batch="none", wait="3s")) == (404, "BATCH_NOT_FOUND")
    assert reply_of(ask(node, "GET", "/batch", batch="b", wait="61s")) == (400, "INVALID_ARG_WAIT")
    with node.connect("HTTP") as waiting, node.connect("HTTP") as other:
        for sock, wait in ((waiting, 60), (other, 9)):
            sock.sendall(b"GET /batch?batch=b&wait=%ds HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n" % wait)
        node.advance(10 * SECOND)
        assert b'"open"' in whole(other)
        post(node, "/batch/close", batch="b")
        assert drained(node, "t", "c", 1) == [b"x"]
        node.advance(2 * SECOND)
        assert b'"done"' in whole(waiting)
    assert not node.broker.context.batches._waiting
    assert get(node, "/batch", batch="b", wait="60s")["state"] == "done"


def test_requests_that_wait_end_when_the_node_stops(node: LocalNode) -> None:
    pub(node, batch="b")
    batches, woken = node.broker.context.batches, list[int]()
    batches.wait("b", lambda: woken.append(1))
    batches.stop()
    batches.wait("b", lambda: woken.append(2))
    assert woken == [1, 2]


def test_many_messages_and_the_list(node: LocalNode) -> None:
    assert ask(node, "POST", "/mpub", "1\n2\n3", topic="t", batch="b").text == "OK"
    assert ask(node, "POST", "/mpub", "4\n5", topic="done", after="b", batch="a").text == "OK"
    assert reply_of(ask(node, "POST", "/pub", "6", topic="t", after="a", batch="b")) == (409, "BATCH_CYCLE")
    metrics = node.client.get("/metrics").text
    assert ("nsqd_batches 2.0" in metrics, "nsqd_follow_ups 2.0" in metrics) == (True, True)
    first = get(node, "/batches", limit=1)
    assert ([one["batch"] for one in first["batches"]], first["count"], first["after"]) == (["a"], 2, "a")
    second = get(node, "/batches", limit=1, after="a")
    assert ([one["batch"] for one in second["batches"]], second["after"]) == (["b"], "")
    post(node, "/batch/close", batch="b")
    assert len(drained(node, "t", "c", 3)) == 3
    node.advance(3 * SECOND)
    assert get(node, "/batch", batch="a")["members"] == 2
    assert sorted(drained(node, "done", "c", 2)) == [b"4", b"5"]


def test_a_member_in_an_ephemeral_topic_is_gone_after_a_restart(node: LocalNode) -> None:
    pub(node, topic="t#ephemeral", batch="b")
    post(node, "/batch/close", batch="b")
    assert shown(node)["state"] == "closed"
    assert shown(node.killed())["state"] == "done"


@each(
    "path, refusal",
    [
        ("/pub?topic=t&batch=", (400, "INVALID_BATCH")),
        ("/pub?topic=t&batch=a%20b", (400, "INVALID_BATCH")),
        (f"/pub?topic=t&batch={'b' * 65}", (400, "INVALID_BATCH")),
        ("/pub?topic=t&after=none", (404, "BATCH_NOT_FOUND")),
        ("/pub?topic=t&after=b&defer=5", (400, "INVALID_AFTER")),
        ("/pub?topic=t&after=b&channel=c", (400, "INVALID_AFTER")),
        ("/pub?topic=t&after=b&key=k&unique=pending", (400, "INVALID_AFTER")),
        ("/pub?topic=t&after=b&producer=p&sequence=1", (400, "INVALID_AFTER")),
        ("/pub?topic=t&after=b&batch=b", (409, "BATCH_CYCLE")),
        ("/batch/close", (400, "MISSING_ARG_BATCH")),
        ("/batch/close?batch=", (400, "INVALID_BATCH")),
    ],
)
def test_bad_requests(path: str, refusal: tuple[int, str]) -> None:
    node = started()
    pub(node, batch="b")
    assert reply_of(node.client.post(path, content=b"x")) == refusal
    assert reply_of(node.client.get("/batch?batch=none")) == (404, "BATCH_NOT_FOUND")

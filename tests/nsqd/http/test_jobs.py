"""POST /tube/jobs/...: actions that name no jobs are refused, and a tube without jobs is deleted."""

from typing import Any

from tests.cases import each
from tests.local_node import LocalNode
from tests.nsqd.http.asking import ask, get, reply_of


def put(node: LocalNode, *bodies: bytes) -> None:
    with node.connect("BEANSTALK") as client:
        client.sendall(b"use t\r\n" + b"".join(b"put 5 0 60 %d\r\n%s\r\n" % (len(body), body) for body in bodies))
        received = b""
        while received.count(b"\r\n") <= len(bodies):
            received += client.recv(1000)


@each("tube, arguments, refusal", [
    ("t", {}, (400, "MISSING_ARG_ID")), ("t", {"state": "ready"}, (400, "MISSING_ARG_COUNT")),
    ("t", {"state": "ready", "count": "0"}, (400, "MISSING_ARG_COUNT")), ("none", {"id": "1"}, (404, "TUBE_NOT_FOUND")),
])  # fmt: skip
def test_an_action_without_jobs(tube: str, arguments: dict[str, Any], refusal: tuple[int, str]) -> None:
    node = LocalNode()
    put(node, b"a")
    assert reply_of(ask(node, "POST", "/tube/jobs/delete", tube=tube, **arguments)) == refusal
    assert get(node, "/tube/jobs", tube="t", state="ready")["total"] == 1


def test_a_tube_that_an_action_empties_is_deleted_and_one_that_keeps_a_job_is_not() -> None:
    node = LocalNode()
    put(node, b"a", b"b")
    act = {"tube": "t", "state": "ready", "count": 1}
    assert reply_of(ask(node, "POST", "/tube/jobs/delete", **act)) == {"deleted": 1}
    assert get(node, "/tube/jobs", tube="t", state="ready")["total"] == 1
    assert reply_of(ask(node, "POST", "/tube/jobs/delete", **act)) == {"deleted": 1}
    node.advance(1_000_000_000)
    assert get(node, "/tube/jobs", tube="t", state="ready") == (404, "TUBE_NOT_FOUND")

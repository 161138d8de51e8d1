"""/debug/trace: what happened to a message."""

from tests.local_node import LocalNode
from tests.nsqd.http.asking import consumer, get, post


def test_the_trace_of_a_message() -> None:
    node = LocalNode("-debug-routes")
    with consumer(node, "told", ready=1) as client:
        post(node, "/pub", b"x", topic="told")
        message = client.message().id
        client.send(b"FIN " + message + b"\nCLS\n")
        assert client.frame() == (0, b"CLOSE_WAIT")
    answer = node.client.get("/debug/trace", params={"id": message.decode()})
    lines = answer.text.splitlines()
    assert len(lines) >= 3, "published, delivered and finished"
    assert all(": message " in line for line in lines), lines
    assert get(node, "/debug/trace", id="f" * 16) == (404, "MESSAGE_NOT_FOUND")


def test_without_debug_routes_there_is_none() -> None:
    assert get(LocalNode(), "/debug/trace", id="f" * 16) == (404, "NOT_FOUND")

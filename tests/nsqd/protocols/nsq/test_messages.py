"""Redelivery after the node was killed."""

from tests.daemons import OK, Conversation, sized
from tests.local_node import SECOND, LocalNode


def test_what_was_in_flight_comes_back_with_its_attempts_and_what_was_deferred_at_its_time() -> None:
    node = LocalNode()
    with Conversation(node, b"  V2SUB t c\nRDY 10\n") as client, Conversation(node, b"  V2") as producer:
        assert client.frame() == OK
        for body in (b"in flight", b"done"):
            producer.send(b"PUB t\n" + sized(body))
            assert producer.frame() == OK
        kept, done = client.message(), client.message()
        sent = node.clock.wall
        client.send(b"FIN " + done.id + b"\nDPUB t 1500\n" + sized(b"later"))
        assert client.frame() == OK
        node = node.killed(down=SECOND // 2)
    with Conversation(node, b"  V2SUB t c\nRDY 10\n") as client:
        assert client.frame() == OK
        again, later = client.message(), client.message()
        assert (again.id, again.attempts, again.body) == (kept.id, 2, b"in flight")
        assert (later.body, later.attempts) == (b"later", 1)
        assert 1.5 <= (node.clock.wall - sent) / SECOND < 2

"""Messages in and out of a whole node: their order, and redelivery after the node was killed."""

import pytest

from tests.daemons import OK, Conversation, several, sized
from tests.local_node import SECOND, LocalNode


@pytest.fixture(scope="module")
def node() -> LocalNode:
    return LocalNode()


def publish(node: LocalNode, topic: bytes, *bodies: bytes) -> None:
    with Conversation(node, b"  V2" + b"".join(b"PUB %s\n" % topic + sized(body) for body in bodies)) as producer:
        assert [producer.frame() for _ in bodies] == [OK] * len(bodies)


def test_ids_are_never_issued_twice() -> None:
    node, ids = LocalNode(), list[bytes]()
    for _ in range(3):
        with Conversation(node, b"  V2SUB t c\nRDY 2500\n") as client, Conversation(node, b"  V2") as producer:
            assert client.frame() == OK
            producer.send(b"MPUB t\n" + several(*[b"x"] * 500))
            assert producer.frame() == OK
            kept = [client.message().id for _ in ids]  # they are not finished
            assert sorted(kept) == ids
            ids += [client.message().id for _ in range(500)]
            node = node.killed()
    assert len(set(ids)) == len(ids) == 1500
    assert ids == sorted(ids)


def test_what_was_in_flight_comes_back_with_its_attempts_and_what_was_deferred_at_its_time() -> None:
    node = LocalNode()
    with Conversation(node, b"  V2SUB t c\nRDY 10\n") as client:
        assert client.frame() == OK
        publish(node, b"t", b"in flight", b"done")
        messages = {message.body: message for message in (client.message(), client.message())}
        sent = node.clock.wall
        client.send(b"FIN " + messages[b"done"].id + b"\nDPUB t 1500\n" + sized(b"later"))
        assert client.frame() == OK
        node = node.killed(down=SECOND // 2)
    with Conversation(node, b"  V2SUB t c\nRDY 10\n") as client:
        assert client.frame() == OK
        again = client.message()
        assert (again.id, again.attempts, again.body) == (messages[b"in flight"].id, 2, b"in flight")
        later = client.message()
        assert (later.body, later.attempts) == (b"later", 1)
        assert 1.5 <= (node.clock.wall - sent) / SECOND < 2

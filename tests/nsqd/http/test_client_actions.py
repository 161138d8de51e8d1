"""The client that has a message, and its end; and where a channel has shards: one connection, and messages of several logs."""

from typing import Any

import pytest

from nsqd.http.client_actions import ClientActions
from nsqd.http.messages import Messages
from shared.http.errors import HttpError
from shared.http.route import handlers
from tests.cases import each
from tests.nsqd.core.node import Node
from tests.nsqd.core.promoted import promote
from tests.nsqd.http.asking import handled_json, http_node
from tests.nsqd.http.test_messages import STATES
from tests.nsqd.protocols.nsq.wire import Wire

CHANNEL = {"topic": "t", "channel": "c"}
ADDRESS = "10.0.0.1:5555"
NOTHING = dict.fromkeys(STATES, 0)


class World:
    """A node with a channel in two logs, and two clients."""

    def __init__(self) -> None:
        self.node = Node()
        self.node.channel("t", "c")
        self.node.publish("t", b"own0", b"own1")
        promote(self.node, 8, "t", "c", b"a0", b"a1")
        self.wire, self.other = Wire(self.node), Wire(self.node, address="10.0.0.2")
        peers = [self.other.peer, self.wire.peer]
        inner = http_node(self.node.broker, peers=lambda: peers)
        self._routes = handlers(one.parsing() for one in [*Messages(inner).routes(), *ClientActions(inner).routes()])
        for wire, ready in ((self.other, 0), (self.wire, 3)):
            wire.send(b"SUB t c\nRDY %d\n" % ready)

    def __call__(self, path: str, **arguments: str) -> dict[str, Any]:
        (handler,) = self._routes[path].values()
        answer = handled_json(handler, **CHANNEL | arguments)
        self.node.turn()
        return answer

    def in_flight(self) -> list[dict[str, Any]]:
        page = self("/channel/messages", state="in_flight")
        found: list[dict[str, Any]] = page["messages"]
        while "next" in page:
            page = self("/channel/messages", state="in_flight", after=page["next"])
            found += page["messages"]
        return found


def test_messages_of_all_logs_have_the_client_of_the_connection() -> None:
    world = World()
    found = world.in_flight()
    assert [one["client"]["remote_address"] for one in found] == [ADDRESS] * 3
    assert {one["offset"] >> 48 for one in found} == {0, 1}
    world.wire.peer.disconnected()
    assert [one.get("client") for one in world.in_flight()] == [None] * 3


def test_a_client_that_is_disconnected_gives_back_what_it_has_of_all_logs() -> None:
    world = World()
    assert world("/channel/messages", state="ready")["counts"] == NOTHING | {"ready": 1, "in_flight": 3}
    assert world("/client/disconnect", client=ADDRESS) == {"disconnected": 1, "requeued": 3}
    assert (world.wire.peer.closing, world.other.peer.closing) == (True, False)
    assert world("/channel/messages", state="ready")["counts"] == NOTHING | {"ready": 4}
    world.node.broker.check()


@each("arguments, error", [
    ({"client": ""}, "CLIENT_NOT_FOUND"), ({"client": "@"}, "CLIENT_NOT_FOUND"),
    ({"client": "10.0.0.3:5555"}, "CLIENT_NOT_FOUND"), ({"client": ADDRESS, "channel": "d"}, "CHANNEL_NOT_FOUND"),
    ({"client": ADDRESS, "topic": "u"}, "TOPIC_NOT_FOUND"),
])  # fmt: skip
def test_what_is_refused(arguments: dict[str, str], error: str) -> None:
    world = World()
    with pytest.raises(HttpError, match=error):
        world("/client/disconnect", **arguments)
    assert len(world.in_flight()) == 3

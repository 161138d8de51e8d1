"""Act on the clients of a channel.

    POST /client/disconnect?topic=t&channel=c&client=ADDRESS     end the connection of a consumer

ADDRESS is the "remote_address" of /stats. The answer is {"disconnected": 1, "requeued": N}: the client's messages in flight are
ready again at once, or buried if they were delivered too often. The client gets the error E_INVALID, and may connect again. 404
CLIENT_NOT_FOUND if no client at that address consumes the channel; clients of a unix socket have no address.
"""

from starlette.requests import Request
from starlette.responses import Response

from nsqd.http.arguments import TOPIC_AND_CHANNEL, existing_channel
from nsqd.http.node import Node
from nsqd.http.stats_client import address_of
from shared.auth.verbs import Verb
from shared.http.api import json_response
from shared.http.argument import any_text
from shared.http.errors import HttpError
from shared.http.route import Route, on_channel


class ClientActions:
    """The route that disconnects a client."""

    def __init__(self, node: Node) -> None:
        self._node = node

    def routes(self) -> list[Route]:
        return [
            Route("POST /client/disconnect", self.disconnect, on_channel(Verb.ACT), (*TOPIC_AND_CHANNEL, any_text("client")),
                  "End the connection of a consumer"),
        ]  # fmt: skip

    async def disconnect(self, request: Request, topic: str, channel: str, client: str) -> Response:
        """End the connection of one consumer."""
        count = await self._node.bridge.call(lambda: self._disconnect(topic, channel, client))
        return json_response({"disconnected": 1, "requeued": count})

    def _disconnect(self, topic: str, channel: str, address: str) -> int:
        """Disconnect the consumer. Return how many messages it had in flight. Runs in the trio thread. Raises HttpError."""
        existing_channel(self._node.broker, topic, channel)
        for peer in self._node.peers():
            if peer.remote_ip and address_of(peer) == address and peer.subscription.consumes() == (topic, channel):
                return peer.disconnect()
        raise HttpError(404, "CLIENT_NOT_FOUND")

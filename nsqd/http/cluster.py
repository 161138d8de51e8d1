"""GET /cluster: the nodes of the cluster, as this node knows them.

    {"name": "penstock", "node": 0, "nodes": [{"node": 0, "address": "127.0.0.1:4154", "http_address": "127.0.0.1:4151",
      "standing": "member", "connected": false, "suspected": false, "restarting": false, "incarnation": 1790000000,
      "log_id": "...", "lease": 16777217}, ...]}

`connected` is false for the node that answers. `standing` is member, left or forgotten. `lease`: the message id of that node
below which ids may have been issued, as far as this node was told. A node that is in no cluster answers 404 NO_CLUSTER.
"""

from starlette.requests import Request
from starlette.responses import Response

from nsqd.http.node import Node
from shared.http.api import Routes, json_response
from shared.http.errors import HttpError


class ClusterRoute:
    """The route about the cluster."""

    def __init__(self, node: Node) -> None:
        self._node = node

    def routes(self) -> Routes:
        """Return the path, its method and its handler."""
        return {"/cluster": {"GET": self.cluster}}

    async def cluster(self, request: Request) -> Response:
        """Answer what this node knows of the nodes of its cluster."""
        nodes = await self._node.bridge.call(self._node.cluster)
        if nodes is None:
            raise HttpError(404, "NO_CLUSTER")
        options = self._node.options
        return json_response({"name": options.cluster_name, "node": options.node_number(), "nodes": nodes})

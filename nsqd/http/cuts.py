"""/debug/cluster/cut and /heal: a partition between this node and another one, for failover drills. Only with -debug-routes.

    POST /debug/cluster/cut?node=1&for=30s      partition this node from node 1 for 30 s; without `for`, until it is healed
    POST /debug/cluster/heal?node=1             end the partition; without `node`, all partitions

Both return {"cut_off": [1]}: the numbers of the nodes that this one is partitioned from. `penstock chaos partition` asks both
sides. Only the cluster port is partitioned: clients, nsqlookupd and HTTP are as before. A restart ends the partition. 404
NO_CLUSTER on a node that is in no cluster; 400 MISSING_ARG_NODE, INVALID_ARG_NODE, also for the node's own number, and
INVALID_ARG_FOR.
"""

from starlette.requests import Request
from starlette.responses import Response

from nsqd.core.cluster_view import ClusterView
from nsqd.http.cluster import MOST_NUMBER
from nsqd.http.node import Node
from shared.http.api import json_response
from shared.http.argument import bounded, duration
from shared.http.errors import HttpError
from shared.http.route import ADMIN, Route
from shared.values import SECOND

LONGEST = 24 * 3600 * SECOND  # ns that a cut may last, if it ends by itself


class CutRoutes:
    """The two routes of -debug-routes that begin and end partitions."""

    def __init__(self, node: Node) -> None:
        self._node = node

    def routes(self) -> list[Route]:
        return [
            Route("POST /debug/cluster/cut", self.cut, ADMIN, (bounded("node", MOST_NUMBER), duration("for", 0, 0, LONGEST)),
                  "Partition this node from another node of the cluster"),
            Route("POST /debug/cluster/heal", self.heal, ADMIN, (bounded("node", MOST_NUMBER, None),),
                  "End the partition from one node, or from all"),
        ]  # fmt: skip

    async def cut(self, request: Request, node: int, for_: int) -> Response:
        """Partition this node from another one, for some ns; 0: until it is healed."""

        def begin() -> list[int]:
            try:
                return self._view().cut_off(node, for_)
            except ValueError:
                raise HttpError(400, "INVALID_ARG_NODE") from None

        # not `call`: its reply waits for copies, perhaps on the partitioned node
        return json_response({"cut_off": await self._node.bridge.observe(begin)})

    async def heal(self, request: Request, node: int | None) -> Response:
        """End the partition from a node, or from all."""
        return json_response({"cut_off": await self._node.bridge.observe(lambda: self._view().heal(node))})

    def _view(self) -> ClusterView:
        if self._node.cluster is None:
            raise HttpError(404, "NO_CLUSTER")
        return self._node.cluster

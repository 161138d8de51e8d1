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
from nsqd.http.node import Node
from shared.http.api import json_response, query
from shared.http.argument import bounded
from shared.http.errors import HttpError
from shared.http.route import ADMIN, Route
from shared.values import SECOND, parse_duration

MOST_NUMBER = 1023  # of a node
LONGEST = 24 * 3600 * SECOND  # ns that a cut may last, if it ends by itself
_NODE = bounded("node", MOST_NUMBER, 0)
_NODE_OR_ALL = bounded("node", MOST_NUMBER, None)


class CutRoutes:
    """The two routes for partitions."""

    def __init__(self, node: Node) -> None:
        self._node = node

    def routes(self) -> list[Route]:
        return [
            Route(
                "POST /debug/cluster/cut",
                self.cut,
                ADMIN,
                "node, ?for",
                "Partition this node from another node of the cluster",
            ),
            Route(
                "POST /debug/cluster/heal", self.heal, ADMIN, "?node", "End the partition from one node, or from all"
            ),
        ]

    async def cut(self, request: Request) -> Response:
        """Partition this node from another one."""
        arguments = query(request)
        if "node" not in arguments:
            raise HttpError(400, "MISSING_ARG_NODE")
        number, duration = _NODE.value_in(arguments), _duration(arguments.get("for", "0"))

        def begin() -> list[int]:
            try:
                return self._view().cut_off(number, duration)
            except ValueError:
                raise HttpError(400, "INVALID_ARG_NODE") from None

        # not `call`: its reply waits for copies, perhaps on the partitioned node
        return json_response({"cut_off": await self._node.bridge.observe(begin)})

    async def heal(self, request: Request) -> Response:
        """End the partition from a node, or from all."""
        arguments = query(request)
        number = _NODE_OR_ALL.value_in(arguments)
        return json_response({"cut_off": await self._node.bridge.observe(lambda: self._view().heal(number))})

    def _view(self) -> ClusterView:
        if self._node.cluster is None:
            raise HttpError(404, "NO_CLUSTER")
        return self._node.cluster


def _duration(text: str) -> int:
    """Return the ns of a duration in Go's syntax, at most LONGEST. Raises HttpError 400."""
    try:
        duration = parse_duration(text)
    except ValueError:
        raise HttpError(400, "INVALID_ARG_FOR") from None
    if not 0 <= duration <= LONGEST:
        raise HttpError(400, "INVALID_ARG_FOR")
    return duration

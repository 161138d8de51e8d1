"""GET /ping, /info, /livez, /readyz: for load balancers, clients and monitoring.

A node that drains (drain.py) is alive and well, but not ready: only /readyz says so, with 503 `NOK - DRAINING`. A NOK of /ping
would get the node killed with the messages that it still has. So is a node of a cluster that does not know yet how topics are
configured: 503 `NOK - NOREPL`.
"""

from starlette.requests import Request
from starlette.responses import Response

from nsqd.http.node import Node
from shared.http.api import json_response, live, plain
from shared.http.extensions import wants_extensions
from shared.version import PENSTOCK_VERSION


class HealthRoutes:
    """The four routes about the state of the node."""

    def __init__(self, node: Node) -> None:
        self._node = node

    async def ping(self, request: Request) -> Response:
        """Answer OK, or 500 while the disk fails."""
        health = self._node.health()
        return plain(200 if health == "OK" else 500, health)

    async def info(self, request: Request) -> Response:
        """Answer the node's addresses and version, and the limits of what clients may ask for."""
        options = self._node.options
        additions = {
            "https_port": self._node.info.https_port,
            "topology_zone": options.topology_zone,
            "topology_region": options.topology_region,
        }
        return json_response(
            {
                "version": self._node.info.version,
                "broadcast_address": self._node.info.broadcast_address,
                "hostname": self._node.info.hostname,
                "http_port": self._node.info.http_port,
                "tcp_port": self._node.info.tcp_port,
                "start_time": self._node.info.start_time,
                "max_heartbeat_interval": options.max_heartbeat_interval,
                "max_output_buffer_size": options.max_output_buffer_size,
                "max_output_buffer_timeout": options.max_output_buffer_timeout,
                "max_deflate_level": options.max_deflate_level,
                # the release of 1.3.0 does not know these keys
                **{key: value for key, value in additions.items() if value},
                **({"penstock_version": PENSTOCK_VERSION} if wants_extensions(request) else {}),
            }
        )

    async def livez(self, request: Request) -> Response:
        """Answer 200 while the trio thread runs its turns."""
        return await live(self._node.bridge)

    async def readyz(self, request: Request) -> Response:
        """Answer 200 while the node takes messages, else 503."""
        health = self._node.health()
        unready = self._node.broker.unready
        if health == "OK" and unready:
            health = f"NOK - {unready}"
        return plain(200 if health == "OK" else 503, health)

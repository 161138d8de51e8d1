"""GET and PUT /config/<option>: every option by its TOML name; two of them can be changed while the node runs.

Secrets in addresses are hidden.
"""

from starlette.requests import Request
from starlette.responses import Response

from nsqd.http.node import Node
from nsqd.option_values import statsd_prefix
from nsqd.options import NsqdOptions
from shared.http.api import read_body
from shared.http.errors import HttpError
from shared.http.options import LOG_LEVEL, go_log_level, option_response, read_addresses, set_log_level
from shared.options import specs
from shared.tls.options import TLS_REQUIRED, TLS_VERSIONS

LOOKUPDS = "nsqlookupd_tcp_addresses"
MOST_LOOKUPDS = 100  # each is a task that dials forever: 30,000 took all descriptors, and the turn for 18 s


class Config:
    """The two routes that show and change options."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._names = {spec.key: spec.name for spec in specs(NsqdOptions, "nsqd") if spec.in_file}

    async def get(self, request: Request) -> Response:
        """Answer the value of an option: a string as it is, anything else as JSON."""
        return await self._answer(_key(request))

    async def put(self, request: Request) -> Response:
        """Change an option, and answer its new value."""
        body = await read_body(request, self._node.options.max_msg_size, "INVALID_VALUE")
        if not body:
            raise HttpError(413, "INVALID_VALUE")
        key = _key(request)
        if key == LOOKUPDS:
            addresses = read_addresses(body, MOST_LOOKUPDS)
            await self._node.bridge.call(lambda: self._node.set_lookupds(addresses))
        elif key == LOG_LEVEL:
            set_log_level(body)
        else:
            raise HttpError(400, "INVALID_OPTION")
        return await self._answer(key)

    async def _answer(self, key: str) -> Response:
        if key not in self._names:
            raise HttpError(400, "INVALID_OPTION")
        value = self._in_force().get(key, getattr(self._node.options, self._names[key]))
        if key == LOOKUPDS:
            value = await self._node.bridge.call(self._node.lookupds)
        return option_response(value)

    def _in_force(self) -> dict[str, object]:
        """Return values that differ from the options, by key: values found out at start, and those that Go has as numbers."""
        options, info = self._node.options, self._node.info
        return {
            "id": options.node_number(),
            "broadcast_address": info.broadcast_address,
            "broadcast_tcp_port": info.tcp_port,
            "broadcast_http_port": info.http_port,
            # a string, as in NSQ, unless there are several
            "tcp_address": options.tcp_address[0] if len(options.tcp_address) == 1 else options.tcp_address,
            LOG_LEVEL: go_log_level(),
            "statsd_prefix": statsd_prefix(options.statsd_prefix, info.broadcast_address, info.http_port),
            "tls_required": TLS_REQUIRED[options.tls_required],
            "tls_min_version": TLS_VERSIONS[options.tls_min_version],
            # JSON numbers as Go writes them: 1 instead of 1.0
            "e2e_processing_latency_percentiles": [
                1 if p == 1 else p for p in options.e2e_processing_latency_percentile
            ],
        }


def _key(request: Request) -> str:
    path: str = request.scope["path"]
    return path.rpartition("/")[2]

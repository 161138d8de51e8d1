"""GET and PUT /config/<option>: every option by its TOML name; two of them can be changed while the node runs.

Secrets in addresses are hidden.
"""

import json
import logging

from starlette.requests import Request
from starlette.responses import Response

from nsqd.http.node import Node
from nsqd.option_values import TLS_REQUIRED, TLS_VERSIONS, statsd_prefix
from nsqd.options import NsqdOptions
from shared.http.api import json_response, read_body, text_response
from shared.http.errors import HttpError
from shared.log import LEVELS, level_name, log
from shared.options import specs
from shared.secrets import hide
from shared.text import without_surrogates

LOOKUPDS, LOG_LEVEL = "nsqlookupd_tcp_addresses", "log_level"
MOST_LOOKUPDS = 100  # each is a task that dials for ever: 30,000 took all descriptors, and the turn for 18 s
_GO_LEVELS = {"debug": 1, "info": 2, "warn": 3, "error": 4, "fatal": 5}


class Config:
    """The two routes."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._names = {spec.key: spec.name for spec in specs(NsqdOptions, "nsqd") if spec.in_file}

    async def get(self, request: Request) -> Response:
        """Strings as they are, all else as JSON."""
        return await self._answer(_key(request))

    async def put(self, request: Request) -> Response:
        """Change an option; the answer is its new value."""
        body = await read_body(request, self._node.options.max_msg_size, "INVALID_VALUE")
        if not body:
            raise HttpError(413, "INVALID_VALUE")
        key = _key(request)
        if key == LOOKUPDS:
            addresses = _addresses(body)
            await self._node.bridge.call(lambda: self._node.set_lookupds(addresses))
        elif key == LOG_LEVEL:
            level = body.decode("latin-1").lower()
            if level not in LEVELS:
                raise HttpError(400, "INVALID_VALUE")
            logging.Logger.setLevel(log, LEVELS[level])
        else:
            raise HttpError(400, "INVALID_OPTION")
        return await self._answer(key)

    async def _answer(self, key: str) -> Response:
        if key not in self._names:
            raise HttpError(400, "INVALID_OPTION")
        value = self._in_force().get(key, getattr(self._node.options, self._names[key]))
        if key == LOOKUPDS:
            value = await self._node.bridge.call(self._node.lookupds)
        value = hide(value)
        if isinstance(value, str):
            return text_response(without_surrogates(value))  # odd bytes in argv
        return json_response(value)

    def _in_force(self) -> dict[str, object]:
        """By key: what is only found out at start, and what Go has as a number."""
        options, info = self._node.options, self._node.info
        return {
            "id": options.node_number(),
            "broadcast_address": info.broadcast_address,
            "broadcast_tcp_port": info.tcp_port,
            "broadcast_http_port": info.http_port,
            LOG_LEVEL: _GO_LEVELS[level_name()],
            "statsd_prefix": statsd_prefix(options.statsd_prefix, info.broadcast_address, info.http_port),
            "tls_required": TLS_REQUIRED[options.tls_required],
            "tls_min_version": TLS_VERSIONS[options.tls_min_version],
            # JSON numbers as Go writes them: 1, not 1.0
            "e2e_processing_latency_percentiles": [
                1 if p == 1 else p for p in options.e2e_processing_latency_percentile
            ],
        }


def _key(request: Request) -> str:
    path: str = request.scope["path"]
    return path.rpartition("/")[2]


def _addresses(body: bytes) -> list[str]:
    try:
        addresses = json.loads(body)
    except (ValueError, RecursionError):
        raise HttpError(400, "INVALID_VALUE") from None
    if not isinstance(addresses, list) or not all(isinstance(address, str) for address in addresses):
        raise HttpError(400, "INVALID_VALUE")
    if len(addresses) > MOST_LOOKUPDS:
        raise HttpError(400, "INVALID_VALUE")
    return [without_surrogates(address) for address in addresses]

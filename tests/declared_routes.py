"""All routes that nsqd and nsqlookupd declare, by method and path."""

from dataclasses import replace
from unittest.mock import MagicMock

from lookupd.http import Handlers
from nsqd.http.routes import routes
from nsqd.options import NsqdOptions
from shared.http.route import Route

NODE = MagicMock(options=replace(NsqdOptions(), debug_routes=True))  # with an auth file, and a trace
NSQD: dict[str, Route] = {one.key: one for one in routes(NODE)}
REGISTRY = MagicMock()  # in place of all parts of nsqlookupd
LOOKUPD: dict[str, Route] = {one.key: one for one in Handlers(*[REGISTRY] * 5).routes()}

"""All routes that nsqd and nsqlookupd declare, by method and path."""

from unittest.mock import MagicMock

from lookupd.http import Handlers
from nsqd.http.routes import routes
from shared.http.route import Route

NSQD: dict[str, Route] = {one.key: one for one in routes(MagicMock(options=MagicMock(metrics_auth=False)))}
LOOKUPD: dict[str, Route] = {one.key: one for one in Handlers(*[MagicMock()] * 5).routes()}

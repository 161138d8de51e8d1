"""The pages: rendered by the server, so that they can be read without scripts. Looking at a page changes nothing.

Each view returns the fields of its template (see admin.layout). Views, not templates, leave out what a user may not see.
"""

from __future__ import annotations

from dataclasses import dataclass

from starlette.requests import Request

from admin.access import who_asks
from admin.cluster import AllFailed
from admin.layout import EVERY, Fields, PageRenderer
from admin.node_pages import NodePages
from admin.queries import Queries
from admin.record_pages import RecordPages
from admin.topic_pages import TopicPages
from admin.upstreams import UpstreamError
from shared.http.api import Routes

OFTEN = {"/tasks/{task}": 0.5}  # s between two refreshes of a page, if not EVERY


@dataclass(slots=True)
class Pages:
    """The request handlers of the pages."""

    queries: Queries
    renderer: PageRenderer
    topics: TopicPages
    nodes: NodePages
    records: RecordPages

    def routes(self) -> Routes:
        """Return the handlers of every path, by method."""
        views = {**self.topics.views(), **self.nodes.views(), **self.records.views()}
        routes = {
            path: {"GET": self.renderer.page_handler(view, OFTEN.get(path, EVERY))} for path, view in views.items()
        }
        routes["/static/{asset}"] = {"GET": self.renderer.asset}
        routes["/series/{topic}"] = {"GET": self.renderer.raw_handler(self.topics.series)}
        routes["/names"] = {"GET": self.renderer.raw_handler(self.topics.names)}
        return routes

    async def banners(self, request: Request) -> Fields:
        """Return what appears above every page: nodes that do not answer, and what is paused."""
        who = who_asks(request)
        try:
            paused = [one for one in await self.queries.pauses() if who.sees(one["name"].partition("/")[0])]
        except (AllFailed, UpstreamError):
            paused = []  # the page itself shows the error
        stale = [
            f"no valid answer from {node} for {seconds:.0f} s"
            for node, seconds in self.queries.fallback.stale().items()
        ]
        return {"paused": paused, "stale": stale, "has_cluster": await self._has_cluster()}

    async def _has_cluster(self) -> bool:
        """Return whether any node is in a cluster, as far as is known."""
        try:
            await self.queries.clusters_or_stale()
        except (AllFailed, UpstreamError):
            pass  # the page itself shows the error
        return self.queries.has_cluster

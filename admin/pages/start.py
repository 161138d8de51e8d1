"""The pages: rendered by the server, so that they can be read without scripts. A GET of a page changes nothing.

Each view returns the fields of its template (see admin.output.layout). Views, not templates, check what a user may see.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass

from starlette.requests import Request

from admin.alarms.pages import AlarmPages
from admin.alarms.subject import Place
from admin.nodes.cluster import AllFailed
from admin.nodes.inventory import NodeRecord, words_of
from admin.nodes.upstreams import UpstreamError
from admin.output.layout import EVERY, Fields, parameters
from admin.output.site import Site
from admin.pages.channel_page import ChannelPage
from admin.pages.node_pages import NodePages
from admin.pages.record_pages import RecordPages
from admin.pages.topic_pages import TopicPages
from admin.users.access import place_of, who_asks
from admin.users.roles import Who
from shared.http.api import Routes, query

MOST_TUBES = 20  # paused tubes that are named
MOST_DOWN = 10  # nodes that are down with a banner of their own
OFTEN = {"/tasks/{task}": 0.5}  # s between two refreshes of a page, if not EVERY


@dataclass(slots=True)
class Pages:
    """The request handlers of the pages."""

    site: Site
    topics: TopicPages
    nodes: NodePages
    records: RecordPages
    alarms: AlarmPages

    def routes(self) -> Routes:
        """Return the handlers of every path, by method."""
        views = {**self.topics.views(), **self.nodes.views(), **self.records.views(), **self.alarms.views()}
        routes = {
            path: {"GET": self.site.renderer.page_handler(view, OFTEN.get(path, EVERY))} for path, view in views.items()
        }
        routes["/static/{asset}"] = {"GET": self.site.renderer.asset}
        series = self.site.renderer.raw_handler(ChannelPage(self.site).series)
        routes |= {path: {"GET": series} for path in ("/series/{topic}", "/series/{topic}/{channel}")}
        routes["/names"] = {"GET": self.site.renderer.raw_handler(self.topics.names)}
        posted = self.alarms.routes(routes)
        return {path: {**routes.get(path, {}), **posted.get(path, {})} for path in {**routes, **posted}}

    async def banners(self, request: Request) -> Fields:
        """Return the fields of the banners above every page: nodes that do not answer, pauses and alarms."""
        who, place = who_asks(request), self._place(request)
        try:
            paused = [one for one in await self.site.queries.pauses() if who.sees(one["name"].partition("/")[0])]
        except (AllFailed, UpstreamError):
            paused = []  # the page itself shows the error
        down, fallback = self.site.queries.down(), self.site.queries.fallback
        dead = {one.address for one in down}
        stale = [
            {
                "address": address, "seconds": seconds, "data_age": fallback.data_age(address),
                "is_lookupd": address in self.site.settings.lookupds,
                "is_node": self.site.queries.inventory.find(address) is not None,
            }
            for address, seconds in fallback.stale().items()
            if address not in dead
        ]  # fmt: skip
        if place.topic and not place.node:
            paused = [one for one in paused if one["name"].partition("/")[0] == place.topic]
        with suppress(AllFailed, UpstreamError):  # the page itself shows the error
            await self.site.queries.clusters_or_stale()
        tubes = [one for one in sorted(self.alarms.monitor.last.paused_tubes) if who.sees(one[0])]
        return {
            "paused": paused, "paused_tubes": tubes[:MOST_TUBES], "stale": stale,
            "down": [self._down(one, who) for one in down[:MOST_DOWN]], "more_down": max(0, len(down) - MOST_DOWN),
            "has_cluster": self.site.queries.has_cluster, **self.alarms.banners(who, place),
        }  # fmt: skip

    def _place(self, request: Request) -> Place:
        """Return the subject of the page: its path or its query names a topic and a channel, a tube, or a node."""
        page, *more = parameters(request, self.site.options)
        asked, (topic, channel) = query(request), (*place_of(request), "", "")[:2]
        if page == "tube":
            return Place(page, asked.get("name", ""), node=asked.get("node", ""))
        node = more[0] if page == "nodes" and more else asked.get("node", "") if page == "storage" else ""
        return Place("" if topic else page, topic, channel, node)

    def _down(self, record: NodeRecord, who: Who) -> Fields:
        """Return the fields of the banner about a node that is down."""
        losses = record.losses(who.sees_all, who.visible(one.topic for one in record.stuck))
        return {
            "address": record.address, "name": record.name, "since": record.failing_since, "losses": losses,
            "words": words_of(record, self.site.queries.clock()), "is_promoted": record.led_by is not None,
        }  # fmt: skip

"""The pages of nodes: the list of all, one node, their storage, readers with cursors, and nsqlookupd's view."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from itertools import islice

from starlette.requests import Request

from admin.access import who_asks
from admin.api import JsonApi, Settings, parameters
from admin.cluster import AllFailed, Producer
from admin.cluster_state import copy_row, shortage
from admin.failures import in_words
from admin.layout import Fields, View
from admin.merge import number, objects, text
from admin.options import AdminOptions
from admin.queries import SELDOM, Queries
from admin.roles import Who
from admin.storage import drain_view, storage_view
from admin.talkers import MOST, top_talkers
from admin.tombstones import Tombstones
from admin.upstreams import UpstreamError
from admin.views import MOST_CURSORS, count, page_of, reader_rows, topic_row, whole
from shared.http.api import query

MOST_INACTIVE = 1_000  # topics without a node shown on the lookup page


@dataclass(slots=True)
class NodePages:
    """The views of the node pages. They return the fields of their templates."""

    options: AdminOptions
    settings: Settings
    queries: Queries
    api: JsonApi
    tombstones: Tombstones

    def views(self) -> Mapping[str, View]:
        """Return the view function of each path."""
        return {
            "/nodes": self.nodes,
            "/nodes/{node}": self.node,
            "/cluster": self.cluster,
            "/storage": self.storage,
            "/readers": self.readers,
            "/lookup": self.lookup,
        }

    async def nodes(self, request: Request) -> Fields:
        found, stale, who = await self.queries.producers(), self.queries.fallback.stale(), who_asks(request)
        topics = {one.address: len(who.visible(dict(one.topics))) for one in found.producers}
        penstock_nodes = await self.queries.penstock_nodes(found.producers)
        draining = await self.queries.ask_nodes_or_stale(penstock_nodes, "/node/drain", SELDOM / 2)
        return {
            "page_of": "nodes",
            "title": "Nodes",
            "nav_path": "/nodes",
            "producers": found.producers,
            "topics_of": topics,
            "ages": stale,
            "draining": {node for node, one in draining.answers.items() if one.get("draining") is True},
            "errors": found.errors,
            "lookupds": len(self.settings.lookupds),
            "tombstones": self.tombstones.seen_by(who),
            "table": [
                {"node": one.address, "hostname": one.hostname, "version": one.version, "topics": topics[one.address]}
                for one in found.producers
            ],
        }

    async def node(self, request: Request) -> Fields:
        asked, who = query(request), who_asks(request)
        producer = await self.queries.node(parameters(request, self.options, 2)[1])
        penstock_nodes = await self.queries.penstock_nodes([producer])
        names, totals, errors = await self._of_node(producer, is_penstock=bool(penstock_nodes))
        names = [name for name in who.visible(names) if asked.get("q", "").lower() in name.lower()]
        shown, page, pages = page_of(names, whole(asked.get("page", "1")))
        found = await self.queries.rows_at(producer, list(shown), is_penstock=bool(penstock_nodes))
        rows = [found[name] for name in shown if name in found]
        drain = await self.queries.ask_nodes(penstock_nodes, "/node/drain")
        # a node without an auth file has no such route, and that is no error
        use = await self.queries.ask_nodes(penstock_nodes if who.sees_all else [], "/identities", {"limit": str(MOST)})
        return {
            "page_of": "node",
            "title": f"Node {producer.address}",
            "nav_path": "",
            "node": producer.address,
            "rows": rows,
            "page": page,
            "pages": pages,
            "q": asked.get("q", "")[:64],
            "totals": [("Version", producer.version), *(totals if who.sees_all else ())],
            "talkers": top_talkers(use.answers.get(producer.address, {})),
            "drain": drain_view(drain.answers.get(producer.address, {})),
            "extended": bool(penstock_nodes),
            "errors": errors,
            "lookupds": self.settings.lookupds,
            "tombstones": self.tombstones.seen_by(who, producer.address),
            "names": list(islice(_tombstonable(who, names), 1000)),
            "table": [asdict(row) for row in rows],
        }

    async def _of_node(
        self, producer: Producer, *, is_penstock: bool
    ) -> tuple[list[str], list[tuple[str, str]], list[str]]:
        """Return the names of the node's topics, its totals, and what went wrong."""
        if is_penstock:
            gathered = await self.queries.ask_nodes([producer], "/topics/figures", {"columns": ""})
            answer = gathered.answers.get(producer.address, {})
            totals, names = answer.get("totals"), answer.get("names")
            sums = totals if isinstance(totals, dict) else {}
            pairs = [(_label(name), count(number(value))) for name, value in sums.items()]
            return [text(name) for name in names or ()] if isinstance(names, list) else [], pairs, gathered.errors
        stats = (
            await self.queries.cache.get(("node", producer.address), lambda: self.queries.cluster.stats([producer]))
        ).now
        rows = [topic_row(one["topic_name"], [one]) for one in stats.topics]
        names = ("channels", "depth", "in_flight", "deferred", "messages", "clients")
        pairs = [(_label(name), count(sum(getattr(row, name) for row in rows))) for name in names]
        return [row.name for row in rows], [("Topics", count(len(rows))), *pairs], stats.errors

    async def cluster(self, request: Request) -> Fields:
        found = await self.queries.clusters()
        return {
            "page_of": "cluster",
            "title": "Cluster",
            "nav_path": "/cluster",
            "clusters_shown": found.clusters,
            "copy_row": copy_row,
            "shortage": shortage,
            "errors": found.errors,
            "table": [
                {"cluster": one.name} | {name: value for name, value in asdict(node).items() if name in _MEMBER}
                for one in found.clusters
                for node in one.nodes
            ],
        }

    async def storage(self, request: Request) -> Fields:
        who = who_asks(request)
        penstock_nodes = await self.queries.all_penstock_nodes()
        gathered = await self.queries.ask_nodes(penstock_nodes, "/storage")
        node = query(request).get("node", "")
        views = {address: storage_view(one, who) for address, one in gathered.answers.items()}
        return {
            "page_of": "storage",
            "title": "Storage",
            "nav_path": "/storage",
            "rows": views,
            "node": node if node in views else "",
            "errors": gathered.errors,
            "table": [
                {"node": address} | {key: value for key, value in view.items() if not isinstance(value, list)}
                for address, view in views.items()
            ],
        }

    async def readers(self, request: Request) -> Fields:
        asked, who = query(request), who_asks(request)
        penstock_nodes = await self.queries.all_penstock_nodes()
        arguments = {"limit": str(MOST_CURSORS)} | ({"after": asked["after"]} if asked.get("after") else {})
        gathered = await self.queries.ask_nodes(penstock_nodes, "/cursors", arguments)
        rows = reader_rows({node: objects(one.get("cursors")) for node, one in gathered.answers.items()}, "")
        rows = [row for row in rows if who.sees(row["topic"])]
        return {
            "page_of": "readers",
            "title": "Readers",
            "nav_path": "/readers",
            "rows": rows,
            "errors": gathered.errors,
            "table": rows,
        }

    async def lookup(self, request: Request) -> Fields:
        who = who_asks(request)
        inactive: dict[str, list[str] | None] = {}
        errors, answers = [], bool(self.settings.lookupds)
        states = await asyncio.gather(*map(self._lookupd, self.settings.lookupds))
        if self.settings.lookupds:
            try:
                found = (await self.queries.cache.get("topics", self.queries.cluster.topics)).now
                question = lambda: self.api.inactive(found.names)  # noqa: E731
                inactive = (await self.queries.cache.get("inactive", question, SELDOM)).now
                errors = found.errors
            except (AllFailed, UpstreamError) as failed:  # the page that has to say so
                errors, answers = [str(failed)], False
        visible = {name: channels for name, channels in inactive.items() if who.sees(name)}
        return {
            "page_of": "lookup",
            "title": "Lookup",
            "nav_path": "/lookup",
            "lookupds": self.settings.lookupds,
            "states": states,
            "answers": answers,
            "inactive": dict(islice(visible.items(), MOST_INACTIVE)),
            "inactive_left_out": max(0, len(visible) - MOST_INACTIVE),
            "errors": errors,
        }

    async def _lookupd(self, address: str) -> LookupdState:
        """Ask one nsqlookupd how it is, apart from the others."""
        try:
            answer = await self.queries.fallback.get_object(address, "/info")
        except UpstreamError as failed:
            return LookupdState(address, "", in_words(str(failed)))
        silent = self.queries.fallback.stale().get(address)
        words = f"No valid answer for {silent:.0f} s." if silent is not None else ""
        return LookupdState(address, text(answer.get("version"))[:100], words)


@dataclass(frozen=True, slots=True)
class LookupdState:
    """An nsqlookupd as the page Lookup shows it."""

    address: str
    version: str  # "": unknown
    error: str  # "": it answers


# Columns of the exported table of nodes.
_MEMBER = (
    "node", "address", "http_address", "state", "others", "copies_possible", "copies_wanted", "replies_given_up",
    "last_position", "adopted_by", "recover",
)  # fmt: skip


def _tombstonable(who: Who, names: list[str]) -> Iterator[str]:
    """Yield the topics that the user may tombstone."""
    if who.offered()["tombstone"]:
        yield from (name for name in names if who.may("tombstone", name))


def _label(name: str) -> str:
    """Return the label of a figure: "In flight" for "in_flight"."""
    return name.replace("_", " ").capitalize()

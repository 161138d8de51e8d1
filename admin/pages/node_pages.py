"""The pages of nodes: the list of all, one node, their storage, readers with cursors, and nsqlookupd's view."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from itertools import islice

from starlette.requests import Request

from admin.alarms.monitor import Monitor
from admin.nodes.cluster import AllFailed, Producer
from admin.nodes.inventory import NodeRecord, NodeState
from admin.nodes.overview import COLUMNS, Overview, ordered, overview_of
from admin.nodes.queries import SELDOM
from admin.nodes.upstreams import UpstreamError
from admin.nodes.views import MOST_CURSORS, MOST_TALKERS, count, page_of, reader_rows, size, top_talkers, whole
from admin.output.failures import in_words
from admin.output.layout import Fields, View, parameters
from admin.output.site import Site
from admin.output.tables import (
    COPIES,
    LOG_FILES,
    LOG_TOPICS,
    LOGS,
    MEMBERS,
    NODE_TOPICS,
    NODES,
    PROMOTED,
    READERS,
    STORAGE,
    TALKERS,
)
from admin.pages.api import JsonApi
from admin.pages.storage import drain_view, storage_view
from admin.times import old
from admin.users.access import who_asks
from admin.users.roles import NOBODY, Who
from admin.users.tombstones import Tombstones
from shared.cluster.state import LogCopy, shortage
from shared.http.api import query
from shared.json_fields import JsonObject, number, objects, text

MOST_INACTIVE = 1_000  # topics without a node shown on the lookup page


@dataclass(slots=True)
class NodePages:
    """The views of the node pages. They return the fields of their templates."""

    site: Site
    api: JsonApi
    monitor: Monitor
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
        found, who, now = await self.site.queries.producers(), who_asks(request), self.site.queries.clock()
        disks = await self._disks_of(await self.site.queries.penstock_nodes(found.producers), now)
        rows = [self._row(one, who, now, disks.get(one.address)) for one in self.site.queries.inventory.all()]
        rows, asked = sorted(rows, key=lambda row: not row["is_gone"]), query(request)
        rows = NODES.sorted(rows, asked)
        return {
            "page_of": "nodes",
            "title": "Nodes",
            "nav_path": "/nodes",
            "rows": rows,
            "heads": [one for one in NODES.heads(asked) if one.key != "copies" or any(row["copies"] for row in rows)],
            "errors": found.errors,
            "lookupds": len(self.site.settings.lookupds),
            "is_cluster": any(row["copies"] for row in rows),
            "tombstones": self.tombstones.seen_by(who),
            "table": [{key: row[key] for key in _NODE} for row in rows],
        }

    async def _disks_of(self, penstock_nodes: list[Producer], now: int) -> dict[str, Disk]:
        """Ask the nodes for their figures, which the inventory notes, and return their disks."""
        await self.site.queries.ask_nodes(penstock_nodes, "/topics/figures", {"columns": "held,buried"})
        storages = await self.site.queries.ask_nodes(penstock_nodes, "/storage")
        return {
            address: Disk(one, now - self.site.queries.data_age(address))
            for address, answer in storages.answers.items()
            if (one := storage_view(answer, NOBODY))["disk_total"] > 0
        }

    def _row(self, record: NodeRecord, who: Who, now: int, disk: Disk | None) -> Fields:
        """Return what the table of nodes says of one. Each figure has its time."""
        one, state = record.producer, record.state(now)
        figures = _figures(record, state) if who.sees_all else {}
        topics = [name for name, _ in one.topics]
        return {
            "node": record.address,
            "hostname": one.hostname,
            "version": one.version,
            "tcp_port": one.tcp_port,
            "state": state.value,
            "is_gone": state.is_gone,
            "is_draining": record.is_draining,
            "since": record.failing_since,
            "reason": record.reason,
            "figures_at": record.held_at if state.is_gone else record.figures_at,
            "registered": len(one.remote_addresses) if record.is_named else 0,
            "topics": len(who.visible(topics)),
            "tombstoned": [name for name, tombstoned in one.topics if tombstoned and who.sees(name)],
            "figures": figures,
            "depth": figures.get("depth"),
            "disk_free": disk.free if disk is not None else None,
            "disk_total": disk.total if disk is not None else 0,
            "disk_at": disk.at if disk is not None else 0,
            "copies": self._copies(record.address),
        }

    def _facts(self, address: str, disk: Disk | None) -> Iterator[tuple[str, str]]:
        """Yield what the page of a node that answers tells of the node itself."""
        record, now = self.site.queries.inventory.find(address), self.site.queries.clock()
        if record is not None:
            yield "State", "draining" if record.is_draining else record.state(now).value
            yield "Version", record.producer.version
            if self.site.settings.lookupds and record.is_named:
                yield "nsqlookupds", f"{len(record.producer.remote_addresses)} of {len(self.site.settings.lookupds)}"
        if disk is not None:
            yield "Free disk", f"{size(disk.free)}, {100 * disk.free / disk.total:.0f} %{old(disk.at, now)}"
            yield "Sync p99", f"{disk.sync_p99_ms:.1f} ms{old(disk.at, now)}"
        if copies := self._copies(address):
            yield "Copies of its log", copies

    def _copies(self, address: str) -> str:
        """Return who has promoted the node's log, or which nodes have copies of it; "" if it is in no cluster."""
        found = self.monitor.last.member(address)
        if found is None:
            return ""
        cluster, member = found
        if member.led_by is not None:
            return f"promoted by node {member.led_by}"
        copies = sorted((one.state, one.follower) for one in cluster.copies if one.leader == member.node)
        return ", ".join(f"{state} at node {follower}" for state, follower in copies[:5]) or "none"

    async def _gone_node(self, record: NodeRecord, who: Who) -> Fields:
        """Return the page of a node that is down: what it told last."""
        visible = [one for one in record.stuck if who.sees(one.topic)]
        figures = record.figures if who.sees_all else {}
        return {
            "page_of": "node_down",
            "title": f"Node {record.address}",
            "nav_path": "",
            "record": record,
            "state": record.state(self.site.queries.clock()).value,
            "stuck": visible,
            "totals": [(_label(name), count(value)) for name, value in figures.items()],
            "table": [
                {
                    "topic": one.topic,
                    "messages": one.messages,
                    "buried": one.buried,
                    "told_at": one.at or record.figures_at,
                }
                for one in visible
            ],
        }

    async def node(self, request: Request) -> Fields:
        asked, who = query(request), who_asks(request)
        address = parameters(request, self.site.options, 2)[1]
        await self.site.queries.producers()
        gone = next((one for one in self.site.queries.gone() if one.address == address), None)
        if gone is not None:
            return await self._gone_node(gone, who)
        producer = await self.site.queries.node(address)
        penstock_nodes = await self.site.queries.penstock_nodes([producer])
        having, order = asked.get("q", "")[:64], NODE_TOPICS.order(asked)
        overview, totals = await self._of_node(producer, COLUMNS[order.key], is_penstock=bool(penstock_nodes))
        visible = who.visible(overview.names)
        names = ordered(visible, overview, None, 0.0, having, order.key, order.is_descending)
        shown, page, pages = page_of(names, whole(asked.get("page", "1")))
        found = await self.site.queries.rows_at(producer, list(shown), is_penstock=bool(penstock_nodes))
        rows = NODE_TOPICS.sorted((found[name] for name in shown if name in found), asked)
        drain = await self.site.queries.ask_nodes(penstock_nodes, "/node/drain")
        disk = (await self._disks_of(penstock_nodes, self.site.queries.clock())).get(address)
        # a node without an auth file has no such route, and that is no error
        use = await self.site.queries.ask_nodes(
            penstock_nodes if who.sees_all else [], "/identities", {"limit": str(MOST_TALKERS)}
        )
        return {
            "page_of": "node",
            "title": f"Node {producer.address}",
            "nav_path": "",
            "node": producer.address,
            "rows": rows,
            "page": page,
            "pages": pages,
            "q": having,
            "sort": order.key,
            "order": "desc" if order.is_descending else "asc",
            "heads": NODE_TOPICS.heads(asked),
            "totals": [*self._facts(address, disk), *(totals if who.sees_all else ())],
            "talkers": TALKERS.sorted(top_talkers(use.answers.get(producer.address, {})), asked),
            "talker_heads": TALKERS.heads(asked),
            "drain": drain_view(drain.answers.get(producer.address, {})),
            "extended": bool(penstock_nodes),
            "errors": overview.errors,
            "lookupds": self.site.settings.lookupds,
            "tombstones": self.tombstones.seen_by(who, producer.address),
            "names": list(islice(_tombstonable(who, sorted(names)), 1000)),
            "table": [asdict(row) for row in rows],
        }

    async def _of_node(
        self, producer: Producer, columns: tuple[str, ...], *, is_penstock: bool
    ) -> tuple[Overview, list[tuple[str, str]]]:
        """Return the overview of the node with these columns, and its totals."""
        if is_penstock:
            gathered = await self.site.queries.ask_nodes([producer], "/topics/figures", {"columns": ",".join(columns)})
            totals = gathered.answers.get(producer.address, {}).get("totals")
            sums = totals if isinstance(totals, dict) else {}
            overview = overview_of(gathered.answers, [], columns)
            overview.errors = gathered.errors
            return overview, [(_label(name), count(number(value))) for name, value in sums.items()]
        stats = (
            await self.site.queries.cache.get(
                ("node", producer.address), lambda: self.site.queries.cluster.stats([producer])
            )
        ).now
        overview = overview_of({}, stats.topics, columns)
        overview.errors = stats.errors
        names = ("channels", "depth", "in_flight", "deferred", "messages", "clients")
        pairs = [(_label(name), count(overview.totals[name])) for name in names]
        return overview, [("Topics", count(len(overview.names))), *pairs]

    async def cluster(self, request: Request) -> Fields:
        found, asked = await self.site.queries.clusters(), query(request)
        shown = [
            replace(
                one,
                nodes=MEMBERS.sorted(one.nodes, asked),
                logs=LOGS.sorted(one.logs, asked),
                copies=COPIES.sorted(one.copies, asked),
            )
            for one in found.clusters
        ]
        return {
            "page_of": "cluster",
            "title": "Cluster",
            "nav_path": "/cluster",
            "clusters_shown": shown,
            "member_heads": MEMBERS.heads(asked),
            "log_heads": LOGS.heads(asked),
            "copy_heads": COPIES.heads(asked),
            "copy_row": copy_row,
            "shortage": shortage,
            "errors": found.errors,
            "table": [
                {"cluster": one.name} | {name: value for name, value in asdict(node).items() if name in _MEMBER}
                for one in shown
                for node in one.nodes
            ],
        }

    async def storage(self, request: Request) -> Fields:
        who = who_asks(request)
        penstock_nodes = await self.site.queries.all_penstock_nodes()
        gathered = await self.site.queries.ask_nodes(penstock_nodes, "/storage")
        asked = query(request)
        node = asked.get("node", "")
        views = {address: storage_view(one, who) for address, one in gathered.answers.items()}
        views = dict(STORAGE.sorted(views.items(), asked))
        if node in views:
            tables = (("topics", LOG_TOPICS), ("files", LOG_FILES), ("promoted", PROMOTED))
            views[node] |= {name: table.sorted(views[node][name], asked) for name, table in tables}
        return {
            "page_of": "storage",
            "title": "Storage",
            "nav_path": "/storage",
            "rows": views,
            "node": node if node in views else "",
            "heads": STORAGE.heads(asked),
            "topic_heads": LOG_TOPICS.heads(asked),
            "file_heads": LOG_FILES.heads(asked),
            "promoted_heads": PROMOTED.heads(asked),
            "errors": gathered.errors,
            "table": [
                {"node": address, "told_at": self.site.queries.clock() - self.site.queries.data_age(address)}
                | {key: value for key, value in view.items() if not isinstance(value, list)}
                for address, view in views.items()
            ],
        }

    async def readers(self, request: Request) -> Fields:
        asked, who = query(request), who_asks(request)
        penstock_nodes = await self.site.queries.all_penstock_nodes()
        arguments = {"limit": str(MOST_CURSORS)} | ({"after": asked["after"]} if asked.get("after") else {})
        gathered = await self.site.queries.ask_nodes(penstock_nodes, "/cursors", arguments)
        rows = reader_rows({node: objects(one.get("cursors")) for node, one in gathered.answers.items()}, "")
        rows = READERS.sorted((row for row in rows if who.sees(row["topic"])), asked)
        return {
            "page_of": "readers",
            "title": "Readers",
            "nav_path": "/readers",
            "rows": rows,
            "reader_heads": READERS.heads(asked),
            "errors": gathered.errors,
            "table": rows,
        }

    async def lookup(self, request: Request) -> Fields:
        who = who_asks(request)
        inactive: dict[str, list[str] | None] = {}
        errors, answers = [], bool(self.site.settings.lookupds)
        states = await asyncio.gather(*map(self._lookupd, self.site.settings.lookupds))
        if self.site.settings.lookupds:
            try:
                found = (await self.site.queries.cache.get("topics", self.site.queries.cluster.topics)).now
                question = lambda: self.api.inactive(found.names)  # noqa: E731
                inactive = (await self.site.queries.cache.get("inactive", question, SELDOM)).now
                errors = found.errors
            except (AllFailed, UpstreamError) as failed:  # the page that has to say so
                errors, answers = [str(failed)], False
        visible = {name: channels for name, channels in inactive.items() if who.sees(name)}
        return {
            "page_of": "lookup",
            "title": "Lookup",
            "nav_path": "/lookup",
            "lookupds": self.site.settings.lookupds,
            "states": states,
            "answers": answers,
            "inactive": dict(islice(visible.items(), MOST_INACTIVE)),
            "inactive_left_out": max(0, len(visible) - MOST_INACTIVE),
            "errors": errors,
        }

    async def _lookupd(self, address: str) -> LookupdState:
        """Ask one nsqlookupd how it is, apart from the others."""
        try:
            answer = await self.site.queries.fallback.get_object(address, "/info")
        except UpstreamError as failed:
            return LookupdState(address, "", in_words(str(failed)))
        silent = self.site.queries.fallback.stale().get(address)
        words = f"No valid answer for {silent:.0f} s." if silent is not None else ""
        return LookupdState(address, text(answer.get("version"))[:100], words)


@dataclass(frozen=True, slots=True)
class LookupdState:
    """An nsqlookupd as the page Lookup shows it."""

    address: str
    version: str  # "": unknown
    error: str  # "": it answers


@dataclass(frozen=True, slots=True)
class Disk:
    """The disk of a node's log: bytes, and when the node told that, ns since the epoch."""

    storage: JsonObject  # as storage_view returns it
    at: int

    @property
    def free(self) -> int:
        return max(0, number(self.storage["disk_free"]))

    @property
    def total(self) -> int:
        return number(self.storage["disk_total"])

    @property
    def sync_p99_ms(self) -> float:
        return float(self.storage["sync_p99_ms"])


def _figures(record: NodeRecord, state: NodeState) -> Mapping[str, int]:
    """Return the figures of a node that still hold: of one that is gone, only what nobody else has."""
    if not state.is_gone:
        return record.figures
    if record.led_by is not None or not record.held_at:
        return {}
    return {
        "depth": record.held,
        "buried": max(record.figures.get("buried", 0), sum(one.buried for one in record.stuck)),
    }


# Columns of the exported tables of nodes, and of the nodes of a cluster.
_NODE = ("node", "hostname", "version", "state", "topics", "depth", "figures_at", "disk_free", "disk_at")
_MEMBER = (
    "node", "address", "http_address", "state", "others", "copies_possible", "copies_wanted", "replies_given_up",
    "last_position", "led_by", "recover",
)  # fmt: skip


def _tombstonable(who: Who, names: list[str]) -> Iterator[str]:
    """Yield the topics that the user may tombstone."""
    if who.offered()["tombstone"]:
        yield from (name for name in names if who.may("tombstone", name))


def _label(name: str) -> str:
    """Return the label of a figure: "In flight" for "in_flight"."""
    return name.replace("_", " ").capitalize()


def copy_row(copy: LogCopy) -> JsonObject:
    """Return a copy as the page shows it."""
    left = " left" if copy.state == "catching up" else ""
    return asdict(copy) | {
        "lag": f"{size(copy.behind)}{left}" if copy.behind is not None else "-",
        "written": count(copy.written) if copy.written is not None else "-",
        "durable": count(copy.durable) if copy.durable is not None else "-",
        "is_bad": copy.is_bad,
    }

"""The pages of nodes: all, one node, the cluster, storage, readers with cursors, schedules, batches, and nsqlookupd."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from itertools import islice

from starlette.requests import Request

from admin.alarms.book import Alarm
from admin.alarms.node_checks import HANGS
from admin.alarms.pages import AlarmPages
from admin.alarms.rules import BY_NAME, Severity
from admin.alarms.subject import Place
from admin.nodes.cluster import AllFailed, Producer
from admin.nodes.inventory import NodeRecord, NodeState
from admin.nodes.loads import NodeLoad
from admin.nodes.overview import Overview, columns_for, ordered, overview_of
from admin.nodes.queries import SELDOM
from admin.nodes.sorting import Table
from admin.nodes.upstreams import UpstreamError
from admin.nodes.views import (
    MOST_LISTED,
    MOST_TALKERS,
    age,
    batch_rows,
    count,
    page_of,
    rate,
    reader_rows,
    schedule_rows,
    size,
    top_talkers,
    whole,
)
from admin.output import tables
from admin.output.failures import in_words
from admin.output.layout import Fields, View, parameters
from admin.output.site import Site
from admin.pages.api import JsonApi
from admin.pages.storage import drain_view, storage_view
from admin.times import old
from admin.users.access import who_asks
from admin.users.roles import NOBODY, Who
from admin.users.tombstones import Tombstones
from shared.cluster.state import LogCopy, shortage
from shared.http.api import query
from shared.json_fields import JsonObject, number, objects, text
from shared.values import SECOND
from shared.version import version_words

MOST_INACTIVE = 1_000  # topics without a node shown on the lookup page
MOST_TOMBSTONABLE = 1_000  # topics offered on the page of a node
# Columns of the exported tables of nodes, and of the nodes of a cluster.
_NODE = (
    "node", "hostname", "version", "state", "alarms", "registered", "topics", "depth", "in_flight", "buried", "clients",
    "figures_at", "disk_free", "disk_at", "rate_in", "cpu", "memory", "started", "copies",
)  # fmt: skip
_ORDER = ("topics", "channels", "depth", "in_flight", "deferred", "buried", "clients", "messages")
_MEMBER = (
    "node", "address", "http_address", "state", "others", "copies_possible", "copies_wanted", "replies_given_up",
    "last_position", "led_by", "recover",
)  # fmt: skip


@dataclass(slots=True)
class NodePages:
    """The views of the node pages. They return the fields of their templates."""

    site: Site
    api: JsonApi
    alarms: AlarmPages
    tombstones: Tombstones

    def views(self) -> Mapping[str, View]:
        """Return the view function of each path."""
        return {
            "/nodes": self.nodes, "/nodes/{node}": self.node, "/cluster": self.cluster, "/storage": self.storage,
            "/readers": self.readers, "/schedules": self.schedules, "/batches": self.batches, "/lookup": self.lookup,
        }  # fmt: skip

    async def nodes(self, request: Request) -> Fields:
        queries, who = self.site.queries, who_asks(request)
        found, now = await queries.producers(), queries.clock()
        penstock_nodes = await queries.penstock_nodes(found.producers)
        loads, disks = await queries.loads(penstock_nodes), await self._disks_of(penstock_nodes)
        rows = [
            self._row(one, who, now, disks.get(one.address, {}), loads.get(one.address, NodeLoad()))
            for one in queries.inventory.all()
        ]
        rows = tables.NODES.sorted(sorted(rows, key=lambda row: not row["is_gone"]), query(request))
        return {
            "page_of": "nodes", "title": "Nodes", "rows": rows, "errors": found.errors,
            "totals": _totals(rows) if who.sees_all else (),
            "is_cluster": any(row["copies"] for row in rows), "lookupds": len(self.site.settings.lookupds),
            "tombstones": self.tombstones.seen_by(who), "table": [{key: row[key] for key in _NODE} for row in rows],
        }  # fmt: skip

    async def _disks_of(self, penstock_nodes: list[Producer]) -> dict[str, JsonObject]:
        """Return the storage of the nodes that report a disk. `disk_at`: when they did, ns since the epoch."""
        queries = self.site.queries
        answers = (await queries.ask_nodes(penstock_nodes, "/storage")).answers
        views = {node: storage_view(answer, NOBODY) for node, answer in answers.items()}
        reported = {node: view for node, view in views.items() if view["disk_total"] > 0}
        return {node: view | {"disk_at": queries.clock() - queries.data_age(node)} for node, view in reported.items()}

    def _row(self, record: NodeRecord, who: Who, now: int, disk: JsonObject, load: NodeLoad) -> Fields:
        """Return the row of a node in the table of nodes. Each count has its time."""
        one, state, alarms = record.producer, record.state(now), self._alarms_of(record.address, who)
        figures = _figures(record, state) if who.sees_all else {}
        return {
            "node": record.address, "hostname": one.hostname, "version": one.runs, "tcp_port": one.tcp_port,
            "state": _state(state, alarms), "alarms": ", ".join(one.rule.title for one in alarms),
            "is_critical": any(one.subject.severity is Severity.CRITICAL for one in alarms),
            "is_gone": state.is_gone, "is_draining": record.is_draining,
            "since": record.failing_since, "reason": record.reason,
            "registered": len(one.remote_addresses) if record.is_named else 0,
            "topics": len(who.visible(name for name, _ in one.topics)),
            "tombstoned": [name for name, tombstoned in one.topics if tombstoned and who.sees(name)],
            "figures_at": record.held_at if state.is_gone else record.figures_at,
            **{name: figures.get(name) for name in ("depth", "in_flight", "buried", "clients")},
            "disk_free": disk.get("disk_free"), "disk_share": disk.get("disk_share"), "disk_at": disk.get("disk_at", 0),
            "copies": self._copies(record.address), **asdict(load), "started": load.started * SECOND,
        }  # fmt: skip

    def _alarms_of(self, address: str, who: Who) -> list[Alarm]:
        """Return the urgent alarms of a node that the user may see, the worst first."""
        return [one for one in self.alarms.urgent(who) if one.subject.is_about(Place(node=address))]

    def _facts(self, address: str, disk: JsonObject, who: Who) -> Iterator[tuple[str, str]]:
        """Yield the facts about a node that answers: labels and values."""
        record, now = self.site.queries.inventory.find(address), self.site.queries.clock()
        if record is not None:
            state = _state(record.state(now), self._alarms_of(address, who))
            yield "State", "draining" if record.is_draining and state == NodeState.UP.value else state
            yield "Version", record.producer.runs
            if self.site.settings.lookupds and record.is_named:
                yield "nsqlookupds", f"{len(record.producer.remote_addresses)} of {len(self.site.settings.lookupds)}"
        if disk:
            age = old(disk["disk_at"], now)
            yield "Free disk", f"{size(disk['disk_free'])}, {disk['disk_share']:.0f} %{age}"
            yield "Sync p99", f"{disk['sync_p99_ms']:.1f} ms{age}"
        if copies := self._copies(address):
            yield "Copies of its log", copies

    def _copies(self, address: str) -> str:
        """Return the node that has promoted the log, or the nodes with copies of it; "" if the node is in no cluster."""
        found = self.alarms.monitor.last.member(address)
        if found is None:
            return ""
        cluster, member = found
        if member.led_by is not None:
            return f"promoted by node {member.led_by}"
        copies = sorted((one.state, one.follower) for one in cluster.copies if one.leader == member.node)
        return ", ".join(f"{state} at node {follower}" for state, follower in copies[:5]) or "none"

    def _gone_node(self, record: NodeRecord, who: Who) -> Fields:
        """Return the page of a node that is down: its last known counts."""
        visible = [one for one in record.stuck if who.sees(one.topic)]
        figures = record.figures if who.sees_all else {}
        return {
            "page_of": "node_down", "title": f"Node {record.address}", "record": record, "stuck": visible, "hangs": HANGS,
            "runbook": self.alarms.runbook(BY_NAME["node-down"]),
            "state": record.state(self.site.queries.clock()).value, "totals": _labeled(figures),
            "table": [
                {"topic": one.topic, "messages": one.messages, "buried": one.buried, "reported_at": one.at or record.figures_at}
                for one in visible
            ],
        }  # fmt: skip

    async def node(self, request: Request) -> Fields:
        queries, asked, who = self.site.queries, query(request), who_asks(request)
        address = parameters(request, self.site.options, 2)[1]
        await queries.producers()
        gone = next((one for one in queries.gone() if one.address == address), None)
        if gone is not None:
            return self._gone_node(gone, who)
        producer = await queries.node(address)
        penstock_nodes = await queries.penstock_nodes([producer])
        having, order = asked.get("q", "")[:64], tables.NODE_TOPICS.order(asked)
        overview, totals = await self._of_node(producer, columns_for(order.key), is_penstock=bool(penstock_nodes))
        visible = who.visible(overview.names)
        names = ordered(visible, overview, None, 0.0, having, order.key, order.is_descending)
        shown, page, pages = page_of(names, whole(asked.get("page", "1")))
        found = await queries.rows_at(producer, list(shown), is_penstock=bool(penstock_nodes))
        rows = tables.NODE_TOPICS.sorted((found[name] for name in shown if name in found), asked)
        drain = await queries.ask_nodes(penstock_nodes, "/node/drain")
        disk = (await self._disks_of(penstock_nodes)).get(address, {})
        load_facts = _load_facts((await queries.loads(penstock_nodes)).get(address, NodeLoad()), queries.clock())
        # a node without an auth file has no such route, and that is no error
        limit = {"limit": str(MOST_TALKERS)}
        use = await queries.ask_nodes(penstock_nodes if who.sees_all else [], "/identities", limit)
        tombstonable = (name for name in sorted(names) if who.may("tombstone", name))
        return {
            "page_of": "node", "title": f"Node {address}", "node": address, "rows": rows, "page": page, "pages": pages,
            "q": having, "totals": [*self._facts(address, disk, who), *load_facts, *(totals if who.sees_all else ())],
            "talkers": tables.TALKERS.sorted(top_talkers(use.answers.get(address, {})), asked),
            "drain": drain_view(drain.answers.get(address, {})), "extended": bool(penstock_nodes),
            "errors": overview.errors, "lookupds": self.site.settings.lookupds,
            "tombstones": self.tombstones.seen_by(who, address),
            "names": list(islice(tombstonable, MOST_TOMBSTONABLE)), "table": [asdict(row) for row in rows],
        }  # fmt: skip

    async def _of_node(
        self, producer: Producer, columns: tuple[str, ...], *, is_penstock: bool
    ) -> tuple[Overview, list[tuple[str, str]]]:
        """Return the overview of the node with these columns, and its totals."""
        queries = self.site.queries
        if is_penstock:
            gathered = await queries.ask_nodes([producer], "/topics/figures", {"columns": ",".join(columns)})
            overview, errors = overview_of(gathered.answers, [], columns), gathered.errors
            totals = gathered.answers.get(producer.address, {}).get("totals")
            sums = totals if isinstance(totals, dict) else {}
        else:
            ask = lambda: queries.cluster.stats([producer])  # noqa: E731
            stats = (await queries.cache.get(("node", producer.address), ask)).now
            overview, errors = overview_of({}, stats.topics, columns), stats.errors
            names = ("channels", "depth", "in_flight", "deferred", "messages", "clients")
            sums = {"topics": len(overview.names)} | {name: overview.totals[name] for name in names}
        overview.errors = errors
        return overview, _labeled(sums)

    async def cluster(self, request: Request) -> Fields:
        found, asked = await self.site.queries.clusters(), query(request)
        shown = [
            replace(
                one,
                nodes=tables.MEMBERS.sorted(one.nodes, asked),
                logs=tables.LOGS.sorted(one.logs, asked),
                copies=tables.COPIES.sorted(one.copies, asked),
            )
            for one in found.clusters
        ]
        nodes = [(one.name, node) for one in shown for node in one.nodes]
        return {
            "page_of": "cluster", "title": "Cluster", "clusters_shown": shown, "errors": found.errors,
            "copy_row": copy_row, "shortage": shortage,
            "table": [{"cluster": name} | {key: getattr(node, key) for key in _MEMBER} for name, node in nodes],
        }  # fmt: skip

    async def storage(self, request: Request) -> Fields:
        queries, asked, who = self.site.queries, query(request), who_asks(request)
        gathered = await queries.ask_nodes(await queries.all_penstock_nodes(), "/storage")
        views = {address: storage_view(one, who) for address, one in gathered.answers.items()}
        views, node = dict(tables.STORAGE.sorted(views.items(), asked)), asked.get("node", "")
        if node in views:
            parts = {"topics": tables.LOG_TOPICS, "files": tables.LOG_FILES, "promoted": tables.PROMOTED}
            views[node] |= {name: table.sorted(views[node][name], asked) for name, table in parts.items()}
        return {
            "page_of": "storage", "title": "Storage", "rows": views, "node": node if node in views else "",
            "errors": gathered.errors,
            "table": [
                {"node": address, "reported_at": queries.clock() - queries.data_age(address)}
                | {key: value for key, value in view.items() if not isinstance(value, list)}
                for address, view in views.items()
            ],
        }  # fmt: skip

    async def readers(self, request: Request) -> Fields:
        return await self._list(request, "readers", "cursors", lambda data: reader_rows(data, ""), tables.READERS)

    async def schedules(self, request: Request) -> Fields:
        return await self._list(request, "schedules", "schedules", schedule_rows, tables.SCHEDULES)

    async def batches(self, request: Request) -> Fields:
        return await self._list(request, "batches", "batches", batch_rows, tables.BATCHES)

    async def _list(
        self,
        request: Request,
        page: str,
        kind: str,
        rows_of: Callable[[dict[str, list[JsonObject]]], list[JsonObject]],
        table: Table[JsonObject],
    ) -> Fields:
        """Return the fields of a page with the first MOST_LISTED of a kind at each node, or those after a place."""
        queries, asked, who = self.site.queries, query(request), who_asks(request)
        arguments = {"limit": str(MOST_LISTED)} | ({"after": asked["after"]} if asked.get("after") else {})
        gathered = await queries.ask_nodes(await queries.all_penstock_nodes(), f"/{kind}", arguments)
        rows = rows_of({node: objects(one.get(kind)) for node, one in gathered.answers.items()})
        rows = table.sorted((row for row in rows if "topic" not in row or who.sees(row["topic"])), asked)
        has_more = any(text(one.get("after")) for one in gathered.answers.values())
        return {
            "page_of": page, "title": page.capitalize(), "rows": rows, "errors": gathered.errors, "table": rows,
            "most": MOST_LISTED if has_more else 0,
        }  # fmt: skip

    async def lookup(self, request: Request) -> Fields:
        queries, lookupds, who = self.site.queries, self.site.settings.lookupds, who_asks(request)
        inactive: dict[str, list[str] | None] = {}
        errors, answers = [], bool(lookupds)
        states = await asyncio.gather(*map(self._lookupd, lookupds))
        if lookupds:
            try:
                found = (await queries.cache.get("topics", queries.cluster.topics)).now
                ask = lambda: self.api.inactive(found.names)  # noqa: E731
                inactive = (await queries.cache.get("inactive", ask, SELDOM)).now
                errors = found.errors
            except (AllFailed, UpstreamError) as failed:  # this page has to show it
                errors, answers = [str(failed)], False
        visible = {name: channels for name, channels in inactive.items() if who.sees(name)}
        return {
            "page_of": "lookup", "title": "Lookup", "lookupds": lookupds, "states": states, "answers": answers,
            "inactive": dict(islice(visible.items(), MOST_INACTIVE)),
            "inactive_left_out": max(0, len(visible) - MOST_INACTIVE), "errors": errors,
        }  # fmt: skip

    async def _lookupd(self, address: str) -> dict[str, str]:
        """Ask one nsqlookupd for its version, apart from the others; "error" is "" if it answers."""
        try:
            answer = await self.site.queries.fallback.get_object(address, "/info")
        except UpstreamError as failed:
            return {"address": address, "version": "-", "error": in_words(str(failed))}
        silent = self.site.queries.fallback.stale().get(address)
        error = f"No valid answer for {silent:.0f} s." if silent is not None else ""
        versions = (text(answer.get(key))[:100] for key in ("version", "penstock_version"))
        return {"address": address, "version": version_words(*versions), "error": error}


def _load_facts(load: NodeLoad, now: int) -> Iterator[tuple[str, str]]:
    """Yield what is known of the load of a node: labels and values."""
    if load.started:
        yield "Uptime", age(load.started * SECOND, now)
    if load.memory:
        yield "Memory", size(load.memory)
    if load.cpu is not None:
        yield "CPU", f"{load.cpu:.0f} %"
    if load.rate_in is not None:
        yield "Published/s", rate(load.rate_in)


def _totals(rows: list[Fields]) -> list[tuple[str, str]]:
    """Return the overview of the cluster: nodes that answer, and sums over them. A sum of nothing known is left out."""
    up = [row for row in rows if row["state"] in (NodeState.UP.value, "degraded")]
    rates, cores = ([row[name] for row in up if row[name] is not None] for name in ("rate_in", "cpu"))
    depths = [row["depth"] for row in up if row["depth"] is not None]
    found = [("Nodes up", f"{len(up)} of {len(rows)}")]
    found += [("Degraded", count(degraded))] if (degraded := sum(row["state"] == "degraded" for row in rows)) else []
    found += [("Published/s", rate(sum(rates)))] if rates else []
    found += [("Depth", count(sum(depths)))] if depths else []
    found += [("CPU", f"{sum(cores):.0f} %")] if cores else []
    return found + ([("Memory", size(memory))] if (memory := sum(row["memory"] for row in up)) else [])


def _state(state: NodeState, alarms: list[Alarm]) -> str:
    """Return the state as text: a node that answers and has alarms is degraded."""
    return "degraded" if alarms and state is NodeState.UP else state.value


def _figures(record: NodeRecord, state: NodeState) -> Mapping[str, int]:
    """Return the counts of a node that are still valid: of one that is gone, only of messages that no other node has."""
    if not state.is_gone:
        return record.figures
    if record.led_by is not None or not record.held_at:
        return {}
    buried = max(record.figures.get("buried", 0), sum(one.buried for one in record.stuck))
    return {"depth": record.held, "buried": buried}


def _labeled(figures: Mapping[str, object]) -> list[tuple[str, str]]:
    """Return labels and values of counts: ("In flight", "1,234") for "in_flight"."""
    ordered = sorted(figures, key=lambda name: _ORDER.index(name) if name in _ORDER else len(_ORDER))
    return [
        ("Published" if name == "messages" else name.replace("_", " ").capitalize(), count(number(figures[name])))
        for name in ordered
    ]


def copy_row(copy: LogCopy) -> JsonObject:
    """Return a copy as the page shows it."""
    left = " left" if copy.state == "catching up" else f", {copy.lag_seconds:.1f} s" if copy.lag_seconds else ""
    return asdict(copy) | {
        "lag": f"{size(copy.behind)}{left}" if copy.behind is not None else "-",
        "written": count(copy.written) if copy.written is not None else "-",
        "durable": count(copy.durable) if copy.durable is not None else "-",
        "is_bad": copy.is_bad,
    }

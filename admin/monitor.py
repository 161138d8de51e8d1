"""The task that looks at the nodes while nobody looks at the pages: who is down, and which alarms are raised.

It pings all nodes every few seconds, and looks at all that alarms need every -alarm-interval. Nodes are asked directly: an
answer that is remembered would hide that a node is dead. A node that took long to answer is asked less often, so that it
spends at most a fiftieth of its time on it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from admin.alarm_book import AlarmBook, Changes
from admin.alarm_checks import Checks
from admin.cluster import AllFailed, Producer
from admin.cluster_merge import cluster_states
from admin.inventory import Inventory, NodeState
from admin.merge import JsonObject, number, objects, text
from admin.queries import Queries
from admin.snapshot import CursorFigures, Snapshot, facts_of
from admin.state_store import StateStore
from admin.upstreams import UpstreamError
from shared.log import log

PINGS = 3  # rounds of pings between two looks
LONGEST_PING = 5.0  # s between two rounds of pings
SELDOM = 4  # looks from one to the next at what costs a node more, or changes slowly
POLITE = 50  # times as long as a node's answer took, until it is asked again
MOST_CURSORS = 1000  # of a node


@dataclass(slots=True)
class _Pace:
    """When a node may be asked again, in s of the monotonic clock."""

    look: float = 0.0
    seldom: float = 0.0


@dataclass(slots=True)
class _NodeLook:
    """What one node answered."""

    attention: JsonObject | None = None  # None: it did not answer
    originals: list[JsonObject] = field(default_factory=list)  # topics of an original node
    figures: JsonObject = field(default_factory=dict)
    figures_at: int = 0  # ns since the epoch: when `figures` or `originals` were answered
    storage: JsonObject = field(default_factory=dict)
    drain: JsonObject = field(default_factory=dict)
    cursors: JsonObject = field(default_factory=dict)
    cluster: JsonObject = field(default_factory=dict)
    clock_ahead: int | None = None
    is_full: bool = False  # figures, storage and cursors are of this look, and not of an earlier one


class Monitor:
    """Looks at the nodes of one cluster. Use it in one event loop."""

    def __init__(
        self, queries: Queries, checks: Checks, book: AlarmBook, store: StateStore, interval: float,
        on_changes: Callable[[Changes], None] = lambda changes: None, clock: Callable[[], int] = time.time_ns,
    ) -> None:  # fmt: skip
        """`interval` is in s. `clock` returns ns since the epoch."""
        self.queries = queries
        self.checks = checks
        self.book = book
        self.store = store
        self.looks = 0  # that were completed
        self.took = 0.0  # s of the last look
        self.looked_at = 0  # ns since the epoch: when the last look ended
        self.last = Snapshot(0)
        self._interval = interval
        self._on_changes = on_changes
        self._clock = clock
        self._paces: dict[str, _Pace] = {}
        self._known: dict[str, _NodeLook] = {}  # the last look at each node
        self._unhealthy: dict[str, str] = {}  # what nodes answered to the last ping, if it was not OK
        self._task: asyncio.Task[None] | None = None

    @property
    def inventory(self) -> Inventory:
        """The nodes that are known."""
        return self.queries.inventory

    def start(self) -> None:
        """Begin to look, in the running event loop."""
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run())

    async def _run(self) -> None:
        while True:
            for round_ in range(PINGS):
                began = time.monotonic()
                before = self._gone()
                await self._guarded(self.ping)
                if round_ == 0 or self._gone() != before:
                    await self._guarded(self.look)
                await asyncio.sleep(max(0.05, min(LONGEST_PING, self._interval / PINGS) - (time.monotonic() - began)))

    def _gone(self) -> set[str]:
        """Return the addresses of the nodes that are down or stopped."""
        return {one.address for one in self.queries.gone()}

    async def _guarded(self, work: Callable[[], Awaitable[None]]) -> None:
        """Do the work; a bug in it must not end the task, without which alarms would be silent for good."""
        try:
            await work()
        except (AllFailed, UpstreamError) as failed:
            log.debug("ALARMS: %s", failed)  # the look has noted it
        except Exception as bug:
            log.critical("ALARMS: the look at the nodes failed", exc_info=bug)

    # Who answers

    async def ping(self) -> None:
        """Ask nsqlookupd for the nodes, and every known node whether it answers; store what has changed."""
        try:
            await self.queries.producers()
        except (AllFailed, UpstreamError):
            pass  # those that are known are asked anyway
        await asyncio.gather(*(self._ping(one.address) for one in self.inventory.all()))
        await self.store_nodes()

    async def store_nodes(self) -> None:
        """Store what has changed of the nodes, and have pages ask again."""
        changed, self.inventory.changed = self.inventory.changed, set()
        if changed:
            self.queries.note_change()
            await self.store.put_nodes({address: self.inventory.find(address) for address in changed})

    async def _ping(self, address: str) -> None:
        try:
            await self.queries.direct.get_bytes(address, "/ping", {})
            self._unhealthy.pop(address, None)
        except UpstreamError as failure:
            if not failure.status:
                self.inventory.note_failure(address, str(failure), self._clock())
                return
            self._unhealthy[address] = str(failure)  # an answer that is not OK is an answer
        self.inventory.note_answer(address, self._clock())

    async def dismiss(self, address: str) -> bool:
        """Forget a node that is down. Returns False if it is not."""
        if not self.inventory.dismiss(address, self._clock()):
            return False
        self.book.clear("node-down", address)
        self.queries.fallback.forget(address)
        await self.store_nodes()
        return True

    # What alarms need

    async def look(self) -> None:
        """Look at all nodes, and raise and end alarms."""
        began = time.monotonic()
        now = self._clock()
        gone = (NodeState.DOWN, NodeState.STOPPED)
        live = [one.producer for one in self.inventory.all() if one.state(now) not in gone]
        await asyncio.gather(*map(self._look_at, live))
        look = await self._snapshot(live)
        changes = self.book.update(self.checks.check(look), look.at)
        self.last, self.looked_at, self.took = look, self._clock(), time.monotonic() - began
        self.looks += 1
        self._on_changes(changes)
        if changes.raised or changes.ended:
            await self.store.put_alarms(self.book.since())

    async def _look_at(self, node: Producer) -> None:
        """Ask one node, unless its last answer took so long that it is not its turn yet."""
        pace = self._paces.setdefault(node.address, _Pace())
        began = time.monotonic()
        if began < pace.look:
            return
        is_full, before = began >= pace.seldom, self._known.get(node.address, _NodeLook())
        # what is not asked this time is as it was told last
        found = _NodeLook(
            figures=before.figures, figures_at=before.figures_at, storage=before.storage, cursors=before.cursors,
            cluster=before.cluster, is_full=is_full,
        )  # fmt: skip
        if await self.queries.penstock_nodes([node]):
            await self._ask_penstock(node, found, is_full=is_full)
        else:
            try:
                stats = await self.queries.cluster.stats([node])
                found.originals, found.attention, found.figures_at = stats.topics, {}, self._clock()
            except AllFailed:
                pass
        took = time.monotonic() - began
        pace.look = time.monotonic() + (POLITE * took if took * POLITE > self._interval else 0.0)
        if found.attention is not None:
            pace.seldom = began + SELDOM * self._interval if is_full else pace.seldom
            self._known[node.address] = found

    async def _ask_penstock(self, node: Producer, found: _NodeLook, *, is_full: bool) -> None:
        thresholds = self.checks.thresholds
        asked = {
            "depth": str(max(1, int(thresholds.value("backlog-growing", "messages")) // 2)),
            "age": str(max(1, int(60 * thresholds.value("oldest-message", "minutes")))),
        }
        began = self._clock()
        found.attention = await self._answer(node, "/channels/attention", asked)
        ended = self._clock()
        if found.attention and number(found.attention.get("now")):
            found.clock_ahead = number(found.attention["now"]) - (began + ended) // 2
        found.drain = await self._answer(node, "/node/drain") or {}
        if is_full or found.cluster:  # a node that is in no cluster is asked less often whether it is in one now
            found.cluster = await self._answer(node, "/cluster") or {}
        if is_full:
            found.figures = await self._answer(node, "/topics/figures", {"columns": "held,buried"}) or {}
            found.figures_at = self._clock()
            found.storage = await self._answer(node, "/storage") or {}
            found.cursors = await self._answer(node, "/cursors", {"limit": str(MOST_CURSORS)}) or {}
        if found.attention is None and found.drain:  # an earlier Penstock
            found.attention = {}

    async def _answer(self, node: Producer, path: str, asked: dict[str, str] | None = None) -> JsonObject | None:
        try:
            return await self.queries.direct.get_object(node.address, path, asked)
        except UpstreamError:
            return None

    async def _snapshot(self, live: list[Producer]) -> Snapshot:
        """Return what the nodes have answered, and note their figures in the inventory."""
        now = self._clock()
        look = Snapshot(now, lookupds=await self._lookupds())
        addresses = {one.address for one in live}
        for address in [one for one in self._known if one not in addresses]:
            del self._known[address]  # what it told before it went down is no longer true
            self._paces.pop(address, None)
        for address, found in self._known.items():
            self._note(address, found)
            look.add_attention(address, found.attention or {})
            look.add_original(found.originals)
            look.cursors += _cursors(address, found.cursors)
        look.answered = frozenset(self._known)
        answers = {address: one.cluster for address, one in self._known.items() if one.cluster}
        look.clusters = cluster_states(answers).clusters
        for record in self.inventory.all():
            known = self._known.get(record.address, _NodeLook())
            health = self._unhealthy.get(record.address, "OK")
            look.nodes[record.address] = facts_of(record, record.state(now), health, known.storage, known.clock_ahead)
        return look

    def _note(self, address: str, found: _NodeLook) -> None:
        if found.is_full and found.figures:
            self.inventory.note_figures(address, found.figures, found.figures_at)
        elif found.originals:
            self.inventory.note_figures(address, _figures_of(found.originals), found.figures_at)
        draining, done = found.drain.get("draining") is True, found.drain.get("done") is True
        self.inventory.note_drain(address, is_draining=draining, is_drained=draining and done)

    async def _lookupds(self) -> dict[str, str]:
        async def ask(address: str) -> str:
            try:
                await self.queries.direct.get_bytes(address, "/ping", {})
            except UpstreamError as failure:
                return str(failure)
            return ""

        addresses = self.queries.cluster.lookupds
        return dict(zip(addresses, await asyncio.gather(*map(ask, addresses)), strict=True))


def _cursors(node: str, data: JsonObject) -> list[CursorFigures]:
    return [
        CursorFigures(text(one.get("topic")), text(one.get("name")), node, max(0, number(one.get("lag"))))
        for one in objects(data.get("cursors"))[:MOST_CURSORS]
    ]


def _figures_of(topics: list[JsonObject]) -> JsonObject:
    """Return the figures of an original node, in the form of /topics/figures with the columns held and buried."""
    names, held = [], []
    totals = dict.fromkeys(("topics", "depth", "in_flight", "deferred", "buried", "clients", "messages"), 0)
    for topic in topics:
        channels = topic["channels"] or ()
        depth = topic["depth"] + sum(one["depth"] for one in channels)
        in_flight = sum(one["in_flight_count"] for one in channels)
        deferred = sum(one["deferred_count"] for one in channels)
        counts = {"topics": 1, "depth": depth, "in_flight": in_flight, "deferred": deferred}
        counts |= {"messages": topic["message_count"], "clients": sum(one["client_count"] for one in channels)}
        for name, value in counts.items():
            totals[name] += value
        names.append(topic["topic_name"])
        held.append(depth + in_flight + deferred)
    return {"totals": totals, "names": names, "columns": {"held": held, "buried": [0] * len(names)}}

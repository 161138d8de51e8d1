"""The task that checks the nodes while no page is open: it finds the nodes that are down, and the alarms.

It pings all nodes every few seconds, and takes a snapshot for the alarms every -alarm-interval. It asks each node directly for
all that pages and alarms show of it, because a cached answer would hide that the node is down. It takes at most a fiftieth of
the time of a slow node, but asks it in each fourth check. Each answer keeps the time at which it was asked for.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from typing import Any, NamedTuple

from admin.alarms.book import AlarmBook, Changes, Id
from admin.alarms.checks import Checks
from admin.alarms.state_store import StateStore
from admin.alarms.subject import Subject
from admin.nodes.cluster import AllFailed, Producer
from admin.nodes.inventory import Inventory
from admin.nodes.observations import observation_of, observation_of_topics
from admin.nodes.queries import Queries
from admin.nodes.snapshot import MOST_KEPT, MOST_LISTED, OWN, CursorFigures, Snapshot, facts_of
from admin.nodes.upstreams import UpstreamError
from admin.nodes.views import rate
from shared.cluster.answer import LEFT
from shared.cluster.merge import cluster_states
from shared.json_fields import JsonObject, number, objects, text
from shared.log import log
from shared.tls.dates import CertificateDates

PINGS = 3  # rounds of pings between two checks
LONGEST_PING = 5.0  # s between two rounds of pings
SILENT = 4  # checks from one to the next in which a slow node is asked
POLITE = 50  # times as long as a node's answer took, until it is asked again
MOST_CURSORS = 1000  # of a node
FILLED = ("backlog-growing", "backlog-growing-slowly", "topic-without-channel")  # rules whose alarms name a publisher
MOST_NAMED = 5  # topics whose publishers are asked for in one check
MOST_AGE = 10 * 365 * 24 * 3600  # s: the longest age that nsqd can be asked for
ATTENTION = "/channels/attention"
# What every node of Penstock is asked for after ATTENTION, with the arguments.
REQUESTS: tuple[tuple[str, dict[str, str]], ...] = (
    ("/node/drain", {}), ("/cluster", {}), ("/storage", {}), ("/cursors", {"limit": str(MOST_CURSORS)}),
    ("/topics/figures", {"columns": "held,buried"}),
)  # fmt: skip


class Reported(NamedTuple):
    """An answer of a node, and when it was asked for, ns since the epoch; 0: never."""

    answer: JsonObject
    at: int


@dataclass(slots=True)
class _Node:
    """The last answers of one node, and when it may be asked again."""

    answers: dict[str, Reported] = field(default_factory=dict)  # by path
    lists_channels: bool = True  # False: it refused ATTENTION
    originals: list[JsonObject] = field(default_factory=list)  # topics of an original node
    clock_ahead: int | None = None
    next_check: float = 0.0  # s of the monotonic clock

    def reported(self, path: str) -> Reported:
        """Return the last answer to a path, which is empty if there was none."""
        return self.answers.get(path, Reported({}, 0))


class Monitor:
    """Checks the nodes of one cluster. Use it in one event loop."""

    def __init__(
        self, queries: Queries, checks: Checks, book: AlarmBook, store: StateStore, interval: float,
        on_changes: Callable[[Changes], None] = lambda changes: None, clock: Callable[[], int] = time.time_ns,
    ) -> None:  # fmt: skip
        """`interval` is in s. `clock` returns ns since the epoch."""
        self.queries = queries
        self.checks = checks
        self.book = book
        self.store = store
        self.completed = 0  # number of checks
        self.took = 0.0  # s of the last check
        self.checked_at = 0  # ns since the epoch: when the last check ended
        self.last = Snapshot(0)
        self.failures: dict[
            str, str
        ] = {}  # by address: the last request of a check that a node refused or did not answer
        self.own_dates: CertificateDates | None = None  # of nsqadmin's certificates
        self._interval = interval
        self._on_changes = on_changes
        self._clock = clock
        self._nodes: dict[str, _Node] = {}  # by address
        self._unhealthy: dict[str, str] = {}  # the answers of nodes to the last ping, if not OK
        self._states: frozenset[tuple[str, bool, bool]] = frozenset()  # of nodes: address, is named, does not answer
        self._since: dict[Id, int] = {}  # the alarms that are stored
        self._task: asyncio.Task[None] | None = None

    @property
    def inventory(self) -> Inventory:
        return self.queries.inventory

    def start(self) -> None:
        """Begin to check the nodes, in the running event loop."""
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run())

    async def _run(self) -> None:
        while True:
            for round_ in range(PINGS):
                began = time.monotonic()
                before = self._gone()
                await self._guarded(partial(self.ping, asks_names=round_ == 0))
                if round_ == 0 or self._gone() != before:
                    await self._guarded(self.check)
                await asyncio.sleep(max(0.05, min(LONGEST_PING, self._interval / PINGS) - (time.monotonic() - began)))

    def _gone(self) -> set[str]:
        """Return the addresses of the nodes that are down or stopped."""
        return {one.address for one in self.queries.gone()}

    async def _guarded(self, work: Callable[[], Awaitable[None]]) -> None:
        """Do the work; a bug in it must not end the task, or no alarm would be raised any longer."""
        try:
            await work()
        except (AllFailed, UpstreamError) as failed:
            log.debug("ALARMS: %s", failed)  # the check has noted it
        except Exception as bug:
            log.critical("ALARMS: the check of the nodes failed", exc_info=bug)

    # Pings

    async def ping(self, *, asks_names: bool = True) -> None:
        """Ping every known node, ask nsqlookupd for the nodes, and store the changes.

        `asks_names` False: nsqlookupd is asked only if a node that it named does not answer, since it lists all topics.
        """
        if asks_names:
            await self._ask_names()
        await asyncio.gather(*(self._ping(one.address) for one in self.inventory.all()))
        if not asks_names and any(one.is_named and one.failing_since for one in self.inventory.all()):
            await self._ask_names()
        await self.store_nodes()

    async def _ask_names(self) -> None:
        try:
            await self.queries.producers()
        except (AllFailed, UpstreamError):
            pass  # those that are known are asked anyway

    async def store_nodes(self) -> None:
        """Store the nodes that have changed, and have pages ask again if a node went down or came back."""
        changed, self.inventory.changed = self.inventory.changed, set()
        states = frozenset((one.address, one.is_named, bool(one.failing_since)) for one in self.inventory.all())
        if states != self._states:  # and not for new counts of a node: rates and stale answers still serve
            self._states = states
            self.queries.note_change()
        if changed:
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

    @property
    def silent(self) -> set[str]:
        """The addresses of the nodes that did not answer the last request; a check does not wait for them again."""
        return {one.address for one in self.inventory.all() if one.failing_since}

    async def dismiss(self, address: str) -> bool:
        """Forget a node that is down. Returns False if it is not."""
        if not self.inventory.dismiss(address, self._clock()):
            return False
        self.book.clear("node-down", address)
        self.queries.fallback.forget(address)
        await self.store_nodes()
        return True

    # Checks

    async def check(self) -> None:
        """Check all nodes, and raise and end alarms."""
        began = time.monotonic()
        self.failures.clear()
        live, silent = self.inventory.asked(self._clock()), self.silent
        await asyncio.gather(*(self._ask(one) for one in live if one.address not in silent))
        look = await self._snapshot(live)
        found = await self.with_publishers(self.checks.check(look))
        changes = self.book.update(found, look.at, partial(self.checks.current, look=look))
        self.last, self.checked_at, self.took = look, self._clock(), time.monotonic() - began
        self.completed += 1
        self._on_changes(changes)
        since = self.book.since()
        if since != self._since:
            self._since = since
            await self.store.put_alarms(since)

    async def with_publishers(self, found: list[Subject]) -> list[Subject]:
        """Return the subjects; the first backlogs that grow name the connection that publishes the most to their topic."""
        topics = dict.fromkeys(one.topic for rule in FILLED for one in found if one.rule == rule)
        fastest: dict[str, str] = {}
        for topic in islice(topics, MOST_NAMED):
            with suppress(AllFailed, UpstreamError):
                for one in (await self.queries.publishers(topic))[:1]:
                    fastest[topic] = f"; most from {one.name}" + (
                        f", {rate(one.rate)}/s" if one.rate is not None else ""
                    )
        return [
            replace(one, words=one.words + fastest.get(one.topic, "")) if one.rule in FILLED else one for one in found
        ]

    async def _ask(self, node: Producer) -> None:
        """Ask one node, unless its last answers took so long that it is not its turn yet."""
        known, began = self._nodes.setdefault(node.address, _Node()), time.monotonic()
        if began < known.next_check:
            return
        is_penstock = bool(await self.queries.penstock_nodes([node]))
        has_answered = await (self._ask_penstock if is_penstock else self._ask_original)(node, known)
        now = time.monotonic()
        pause = POLITE * (now - began)
        if pause > self._interval:
            longest = SILENT * self._interval
            known.next_check = now + (min(pause, longest) if has_answered else longest)

    async def _ask_original(self, node: Producer, known: _Node) -> bool:
        at = self._clock()
        try:
            topics = (await self.queries.cluster.stats([node])).topics
        except AllFailed:
            return False
        known.originals, known.lists_channels, known.answers = topics, True, {ATTENTION: Reported({}, at)}
        self.inventory.note(node.address, observation_of_topics(topics), at)
        return True

    async def _ask_penstock(self, node: Producer, known: _Node) -> bool:
        """Ask a node of Penstock, until it does not answer: each further request would take as long."""
        known.originals = []
        if not await self._ask_attention(node, known):
            return False
        for path, arguments in REQUESTS:
            try:
                await self._get(node.address, known, path, arguments)
            except UpstreamError as failure:
                if not failure.status:
                    break
                if _is_refusal(failure):
                    known.answers[path] = Reported({}, self._clock())
        return True

    async def _get(self, address: str, known: _Node, path: str, arguments: dict[str, str]) -> Reported:
        """Ask a node, and note the answer, and the messages that it reports in the inventory. Raises UpstreamError."""
        at = self._clock()
        try:
            found = Reported(await self.queries.direct.get_object(address, path, arguments), at)
        except UpstreamError as failure:
            if failure.status not in (400, 404):  # it has no such route, or is in no cluster
                self.failures[address] = str(failure)
            raise
        if (seen := observation_of(path, arguments, found.answer)) is not None:
            self.inventory.note(address, seen, at)
        if path != "/topics/figures":  # the inventory has it
            known.answers[path] = found
        return found

    async def _ask_attention(self, node: Producer, known: _Node) -> bool:
        """Ask a node for its channels, and return whether it answered, be it that it lists none."""
        thresholds = self.checks.thresholds
        age = int(60 * thresholds.value("oldest-message", "minutes"))
        depth = int(thresholds.value("backlog-growing", "messages")) // 2
        asked = {"depth": str(max(1, depth)), "age": str(min(max(1, age), MOST_AGE)), "limit": str(MOST_LISTED)}
        try:
            found = await self._get(node.address, known, ATTENTION, asked)
        except UpstreamError as failure:
            if _is_refusal(failure):
                known.answers[ATTENTION], known.lists_channels = Reported({}, self._clock()), False
            return _is_refusal(failure)
        known.lists_channels = True
        clock = number(found.answer.get("now"))
        known.clock_ahead = clock - (found.at + self._clock()) // 2 if clock else None
        return True

    async def _snapshot(self, live: list[Producer]) -> Snapshot:
        """Return the answers of the nodes, and note in the inventory which of them drain."""
        now = self._clock()
        look = Snapshot(now)
        look.lookupds = await self._lookupds(look)
        for one in self.own_dates.all if self.own_dates is not None else ():
            look.certificates[OWN, one.option] = one.ends
        addresses = {one.address for one in live}
        # the answers of a node that went down are no longer true, and when it is back, it is asked at once
        by_address: tuple[dict[str, Any], ...] = (self._nodes, self._unhealthy)
        for known in by_address:
            for address in known.keys() - addresses:
                del known[address]
        answered = {address: one for address, one in self._nodes.items() if ATTENTION in one.answers}
        for address, found in answered.items():
            await asyncio.sleep(0)  # pages do not wait for the answers of all nodes
            drain = found.reported("/node/drain").answer
            is_draining, is_done = drain.get("draining") is True, drain.get("done") is True
            self.inventory.note_drain(address, is_draining=is_draining, is_drained=is_draining and is_done)
            look.add_attention(address, found.reported(ATTENTION).answer)
            look.add_original(found.originals)
            look.cursors += _cursors(address, found.reported("/cursors").answer)[: MOST_KEPT - len(look.cursors)]
        look.answered = frozenset(address for address, one in answered.items() if one.lists_channels)
        clusters = {address: one.reported("/cluster").answer for address, one in answered.items()}
        look.add_clusters(cluster_states({address: one for address, one in clusters.items() if one}).clusters)
        for record in self.inventory.all():
            member = look.member(record.address) if record.state(now).is_gone else None
            self.inventory.note_new_leader(record.address, member[1].led_by if member is not None else None)
            if member is not None and member[1].state == LEFT:
                self.inventory.note_drain(record.address, is_draining=False, is_drained=True)
        for record in self.inventory.all():
            node, health = self._nodes.get(record.address, _Node()), self._unhealthy.get(record.address, "OK")
            storage, storage_at = node.reported("/storage")
            facts = facts_of(record, record.state(now), health, storage, node.clock_ahead)
            look.nodes[record.address] = replace(facts, storage_at=storage_at, channels_at=node.reported(ATTENTION).at)
        return look

    async def _lookupds(self, look: Snapshot) -> dict[str, str]:
        """Return by nsqlookupd why it does not answer, "" if it does, and note the certificates of those that have TLS."""

        async def ask(address: str) -> str:
            try:
                await self.queries.direct.get_bytes(address, "/ping", {})
                if address.startswith("https://"):
                    look.add_certificates(address, await self.queries.direct.get_object(address, "/info"))
            except UpstreamError as failure:
                return str(failure)
            return ""

        addresses = self.queries.cluster.lookupds
        return dict(zip(addresses, await asyncio.gather(*map(ask, addresses)), strict=True))


def _is_refusal(failure: UpstreamError) -> bool:
    """Return whether the node does not support the request, or does not allow it; not if it is busy or broken."""
    return 400 <= failure.status < 500 and failure.status not in (408, 429)


def _cursors(node: str, data: JsonObject) -> list[CursorFigures]:
    return [
        CursorFigures(text(one.get("topic"))[:200], text(one.get("name"))[:200], node, max(0, number(one.get("lag"))))
        for one in objects(data.get("cursors"))[:MOST_CURSORS]
    ]

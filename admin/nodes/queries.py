"""The queries of pages to the nodes, through caches that keep pages fast and nodes unburdened.

Every query goes through ResponseCache, so that nodes are asked once for any number of viewers, and through FallbackUpstreams,
so that no node makes a page wait. Queries that only Penstock's nsqd can answer are not sent to others.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

from admin.nodes.backlogs import gains_of
from admin.nodes.cluster import AllFailed, Cluster, Producer, Producers, Stats
from admin.nodes.fallback import FallbackUpstreams
from admin.nodes.held_past import HeldPast
from admin.nodes.inventory import Inventory, NodeRecord, NodeState
from admin.nodes.loads import NodeLoad, loads_of
from admin.nodes.merge import fields
from admin.nodes.observations import Observation
from admin.nodes.overview import Overview, Rows, counts_row, node_counts, older, overview_of, rows_of
from admin.nodes.places import Settings
from admin.nodes.publishers import Publisher, arguments_for, publishers_of, with_publish_rates
from admin.nodes.response_cache import FRESH, CachedAnswer, ResponseCache
from admin.nodes.series_past import MissingNode, SeriesPast
from admin.nodes.upstreams import Gathered, UpstreamError, Upstreams
from admin.nodes.views import Row, topic_row
from shared.cluster.merge import cluster_states
from shared.cluster.state import ClusterStates
from shared.counted import counted
from shared.http.errors import HttpError
from shared.json_fields import JsonObject, number, objects, text
from shared.values import SECOND

MOST_ROWS = 200  # topics in one request for rows
SELDOM = 10.0  # s that an answer serves if its content changes slowly
RARELY = 60.0  # s that an answer serves if its content changes hourly
MOST_KINDS = 10_000  # nodes whose kind is remembered
MOST_PAUSES = 1000  # pauses shown of each node
_LOG = "log"  # the capability that Penstock's nodes announce


@dataclass(slots=True)
class Queries:
    """The queries of pages to the nodes of a cluster. `cluster` sends its requests through `fallback`."""

    settings: Settings
    cluster: Cluster
    fallback: FallbackUpstreams
    direct: Upstreams  # callers wait, and no answer is remembered: for messages
    inventory: Inventory = field(default_factory=Inventory)  # all nodes that were ever seen
    clock: Callable[[], int] = time.time_ns  # ns since the epoch
    cache: ResponseCache = field(init=False)
    held: HeldPast = field(default_factory=HeldPast)  # of original nodes
    past: SeriesPast = field(default_factory=SeriesPast)  # the charts of nodes that are gone
    has_cluster: bool = False  # a node was in a cluster since the start; it remains so when no node answers
    # By address: whether it is Penstock's nsqd, and until when that is assumed.
    _kinds: dict[str, tuple[bool, float]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        gone = lambda: self.inventory.gone(self.clock())  # noqa: E731
        self.cache = ResponseCache(most_memory=self.direct.answer_budget.most_held // 2, nodes=gone)
        self.fallback.on_answer = self._note_answer

    def _note_answer(self, address: str, seen: Observation | None, seconds: float) -> None:
        """Note the messages on a node as its answer to a page reports them."""
        if seen is not None:
            self.inventory.note(address, seen, self.clock() - int(seconds * SECOND))

    def data_age(self, address: str) -> int:
        """Return the age in ns of the oldest values of a node that pages show; 0: the node answers."""
        return int(self.fallback.data_age(address) * SECOND)

    # Nodes

    async def producers(self) -> Producers:
        """Return all nodes that are not down, sorted by host name: also those that nsqlookupd no longer names."""
        found = (await self.cache.get("producers", self._producers)).now
        return Producers(found.errors, sorted(found.producers, key=_place))  # nsqlookupd lists them in any order

    async def _producers(self) -> Producers:
        try:
            named = await self.cluster.producers()
        except AllFailed as failed:
            if not self.inventory.all():
                raise
            named = Producers([str(failed)])
        self.inventory.note_named(named.producers, self.clock(), is_complete=not named.errors)
        return Producers(named.errors, self.inventory.asked(self.clock()))

    async def producers_of(self, topic: str) -> Producers:
        """Return the nodes that have the topic and are not down, sorted by host name."""
        found = (await self.cache.get(("producers", topic), lambda: self._producers_of(topic))).now
        return Producers(found.errors, sorted(found.producers, key=_place))

    async def _producers_of(self, topic: str) -> Producers:
        named, failure = Producers(), None
        try:
            named = await self.cluster.producers_of(topic)
        except AllFailed as failed:  # also if no nsqlookupd knows the topic
            failure = failed
        known = {one.address for one in named.producers}
        if any(one.is_named and one.address not in known for one in self._having(topic)):
            # an nsqlookupd that was restarted forgot them: note that now, or they are missing until the next check
            await self._producers()
        # /nodes may be older than /lookup, so a topic that was not found is on all nodes that had it
        others = [one for one in self._having(topic) if failure is not None or not one.is_named]
        if failure is not None and not others:
            raise failure
        gone = {one.address for one in self.gone()}
        every = (*named.producers, *(one.producer for one in others if one.address not in known))
        return Producers(named.errors, [one for one in every if one.address not in gone])

    def _having(self, topic: str) -> list[NodeRecord]:
        """Return the nodes that had the topic, not tombstoned, when they were named last."""
        return [one for one in self.inventory.all() if (topic, False) in one.producer.topics]

    def gone(self) -> list[NodeRecord]:
        """Return the nodes that are down or stopped."""
        now = self.clock()
        return [one for one in self.inventory.all() if one.state(now).is_gone]

    def down(self) -> list[NodeRecord]:
        """Return the nodes that are down."""
        now = self.clock()
        return [one for one in self.inventory.all() if one.state(now) is NodeState.DOWN]

    def is_all_registered(self) -> bool:
        """Return whether nsqlookupd names every node that pages ask. A restarted nsqlookupd names none at first."""
        now = self.clock()
        return bool(self.settings.lookupds) and all(
            one.is_named or one.state(now).is_gone for one in self.inventory.all()
        )

    def coverage(self, topic: str = "") -> str:
        """Return the number of nodes that a sum includes, such as "2 of 3 nodes"; "" if all. `topic`: of nodes that had it.

        The sum includes a node whose log another node has promoted.
        """
        every = [one for one in self.inventory.all() if not topic or one.producer.carries(topic)]
        down = {one.address for one in self.down() if one.led_by is None}
        missing = sum(one.address in down for one in every)
        return f"{len(every) - missing} of {counted(len(every), 'node')}" if missing else ""

    def missing_past(self, topic: str, channel: str) -> list[MissingNode]:
        """Return from when to when the series of a topic or channel lack a node that is gone: see SeriesPast.missing."""
        gone = {
            one.address: one.failing_since // SECOND
            for one in self.gone()
            if one.producer.carries(topic)
            and (_LOG in one.producer.capabilities or self._kinds.get(one.address, (False, 0.0))[0])
        }
        return self.past.missing(topic, channel, gone, self.clock() // SECOND)

    async def node(self, address: str) -> Producer:
        """Return a node of the cluster. Raises HttpError 404, so that a request cannot direct nsqadmin to other servers."""
        return _node_at(address, await self.producers(), f"No nsqd with the HTTP address {address[:100]} is known.")

    async def carrying(self, topic: str, node: str) -> Producer:
        """Return a node of the cluster that has the topic. Raises HttpError 404."""
        return _node_at(node, await self.producers_of(topic), f"No nsqd at {node[:100]} has topic {topic}.")

    async def all_penstock_nodes(self) -> list[Producer]:
        """Return all nodes that can do more than an original."""
        return await self.penstock_nodes((await self.producers()).producers)

    async def penstock_nodes(self, producers: Iterable[Producer]) -> list[Producer]:
        """Return the nodes that can do more than an original. Those without the capability are asked once a minute."""
        return [one for one in producers if await self._is_penstock(one)]

    async def _is_penstock(self, producer: Producer) -> bool:
        if _LOG in producer.capabilities:
            return True
        known, until = self._kinds.get(producer.address, (False, 0.0))
        if time.monotonic() < until:
            return known
        try:
            await self.fallback.get_object(producer.address, "/topics/rows", {"topic": "-"})
            known = True
        except UpstreamError as failure:
            if not failure.status:  # without an answer the node keeps its kind
                return known
            known = False
        if len(self._kinds) >= MOST_KINDS:
            self._kinds.clear()
        self._kinds[producer.address] = known, time.monotonic() + RARELY
        return known

    def note_change(self) -> None:
        """Note that nodes went down or came back, which makes earlier answers invalid."""
        self.cache.invalidate()

    # The cluster of nodes that copy their logs

    async def clusters(self) -> ClusterStates:
        """Return the clusters of the nodes, as the nodes that answer now know them."""
        return (await self.cache.get("clusters", self._clusters)).now

    async def clusters_or_stale(self) -> ClusterStates:
        """Return the clusters as of at most SELDOM ago, and if that takes too long, older ones or none."""
        cached = await self.cache.get_or_stale("clusters", self._clusters, SELDOM)
        return cached.now if cached is not None else ClusterStates()

    async def _clusters(self) -> ClusterStates:
        gathered = await self.cluster.cluster_answers(await self.all_penstock_nodes())
        stale = self.fallback.stale()  # the others know better than the last answer of a node that does not respond
        answers = {address: one for address, one in gathered.answers.items() if address not in stale}
        found = await self.direct.answer_budget.run_in_thread(gathered.memory, lambda: cluster_states(answers))
        found.errors = gathered.errors + found.errors
        self.has_cluster = self.has_cluster or bool(found.clusters)
        return found

    # Topics

    async def overview(self, columns: tuple[str, ...] | None = None) -> CachedAnswer[Overview]:
        """Return sums over all topics; with columns, also the topics' names, and these columns of each topic."""
        return await self.cache.get(("overview", columns), lambda: self._overview(columns))

    async def overview_or_stale(self, columns: tuple[str, ...] | None = None) -> CachedAnswer[Overview] | None:
        """Return the overview, or if that takes too long, the overview of up to a minute ago, or None."""
        return await self.cache.get_or_stale(("overview", columns), lambda: self._overview(columns))

    async def _overview(self, columns: tuple[str, ...] | None) -> Overview:
        at, found = self.clock(), await self.producers()
        penstock_nodes, others = await self._split(found.producers)
        asked = {} if columns is None else {"columns": ",".join(one for one in columns if one != "drain")}
        asked |= {"drain": "1"} if columns is not None and "drain" in columns else {}
        data = await self._gathered(penstock_nodes, "/topics/figures", asked)
        stats = await self._originals(penstock_nodes, others)
        memory = data.memory + stats.memory
        overview = await self.direct.answer_budget.run_in_thread(
            memory, lambda: overview_of(data.answers, stats.topics, columns or ())
        )
        overview.at, overview.errors = at, found.errors + data.errors + stats.errors
        overview.memory = memory
        overview.answered = set(self._now_answering(overview.answered))
        return overview

    async def _originals(self, penstock_nodes: list[Producer], others: list[Producer]) -> Stats:
        """Return the stats of original nodes. Raises AllFailed if there are only such nodes and none answers."""
        if not others:
            return Stats()
        try:
            return (await self.cache.get("originals", lambda: self.cluster.stats(others))).now
        except AllFailed as failed:
            if not penstock_nodes:
                raise
            return Stats(failed.errors)

    async def rows(self, names: list[str]) -> CachedAnswer[Rows]:
        """Return rows of these topics. For more than MOST_ROWS of them the result has no previous rows."""
        if len(names) > MOST_ROWS:
            return CachedAnswer(await self._rows(names))
        return await self.cache.get(("rows", *sorted(names)), lambda: self._rows(names))

    async def _rows(self, names: list[str]) -> Rows:
        penstock_nodes, others = await self._split((await self.producers()).producers)
        wanted, parts = set(names), dict[str, list[JsonObject]]()
        for start in range(0, len(names), MOST_ROWS):
            gathered = await self._gathered(penstock_nodes, "/topics/rows", {"topic": names[start : start + MOST_ROWS]})
            for address, answer in gathered.answers.items():
                parts.setdefault(address, []).extend(_rows_of(answer, wanted))
        stats = await self._originals(penstock_nodes, others)
        own: dict[str, list[Row]] = {text(one["node"]): [] for one in stats.topics}
        chosen, now = [one for one in stats.topics if one["topic_name"] in wanted], self.clock() // SECOND
        for one in chosen:
            own[text(one["node"])].append(topic_row(one["topic_name"], [one]))
        backlogs = [{"topic_name": one["topic_name"], "backlogs": self.held.backlogs(one, now)} for one in chosen]
        found = rows_of(chain.from_iterable(parts.values()), chain.from_iterable(own.values()), backlogs)
        found.answered = self._now_answering({*parts, *own})
        if len(names) <= MOST_ROWS:  # else there are no previous rows
            stale = self.fallback.stale()
            self.held.note([one for one in chosen if one["node"] not in stale], now)
            found.counts = {node: node_counts(names, rows) for node, rows in parts.items()}
            found.counts |= {node: node_counts(names, map(counts_row, rows)) for node, rows in own.items()}
        return found

    def _now_answering(self, addresses: Iterable[str]) -> frozenset[str]:
        """Return the nodes whose answers are not old ones: a rate is the difference of two answers of the same nodes."""
        return frozenset(addresses) - self.fallback.stale().keys()

    async def rows_at(self, producer: Producer, names: list[str], *, is_penstock: bool) -> dict[str, Row]:
        """Return the rows of these topics on one node."""
        if is_penstock:
            data = (await self._gathered([producer], "/topics/rows", {"topic": names[:MOST_ROWS]})).answers
            return rows_of([row for answer in data.values() for row in _rows_of(answer, set(names))], [])
        stats = (await self.cache.get(("node", producer.address), lambda: self.cluster.stats([producer]))).now
        return rows_of([], [topic_row(one["topic_name"], [one]) for one in stats.topics if one["topic_name"] in names])

    async def topic(
        self, topic: str, channel: str = "", *, clients: bool = False
    ) -> tuple[list[Producer], list[str], CachedAnswer[Stats]]:
        """Return the nodes that have the topic, the errors, and the nodes' stats."""
        found = await self.producers_of(topic)
        if not found.producers:
            return [], found.errors, CachedAnswer(Stats())
        query = lambda: self._sampled_stats(found.producers, topic, channel, clients=clients)  # noqa: E731
        cached = await self.cache.get(("stats", topic, channel), query)
        cached.now.topics.sort(key=lambda one: (text(one["hostname"]), text(one["node"])))
        return found.producers, found.errors + cached.now.errors, cached

    async def ages(self, producers: Iterable[Producer], topic: str) -> tuple[dict[str, int], dict[str, int]]:
        """Return by channel the publish time of the longest waiting message, and the number of buried messages.

        The times are ns since the epoch, 0 if no message waits; "" stands for the topic.
        """
        gathered = await self.ask_nodes(await self.penstock_nodes(producers), "/topic/ages", {"topic": topic})
        found, buried = dict[str, int](), Counter[str]()
        for data in gathered.answers.values():
            for name, then in {"": data.get("topic"), **fields(data.get("channels"))}.items():
                found[name] = older(found.get(name, 0), number(then))
            buried.update({name: number(count) for name, count in fields(data.get("buried")).items()})
        return found, buried

    async def gains(self, producers: list[Producer], topic: str, stats: Stats) -> dict[str, float]:
        """Return by channel the decrease of its messages per second, over the last minutes, where all nodes report it.

        `stats`: the answer of `topic`, for original nodes.
        """
        penstock_nodes, others = await self._split(producers)
        answers: dict[str, JsonObject] = {}
        if penstock_nodes:
            answers |= (await self.ask_nodes(penstock_nodes, "/topic/ages", {"topic": topic})).answers
        addresses, now = {one.address for one in others}, self.clock() // SECOND
        answers |= {one["node"]: self.held.ages(one, now) for one in stats.topics if one["node"] in addresses}
        return gains_of(answers)

    async def publishers(self, topic: str) -> list[Publisher]:
        """Return the connections that publish to a topic, the fastest first. Nodes of NSQ report them, too."""

        async def ask() -> list[Publisher]:
            producers = (await self.producers_of(topic)).producers
            gathered = await self._gathered(producers, "/stats", arguments_for(topic))
            return publishers_of(gathered.answers, topic)

        cached = await self.cache.get(("publishers", topic), ask)
        return with_publish_rates(cached.now, cached.before or [], cached.seconds)

    async def _sampled_stats(self, producers: list[Producer], topic: str, channel: str, *, clients: bool) -> Stats:
        """Return stats of the topic, after sampling the messages at original nodes, which do not report changes."""
        stats = await self.cluster.stats(producers, topic, channel, clients=clients)
        _, others = await self._split(producers)
        addresses = {one.address for one in others} - self.fallback.stale().keys()
        self.held.note([one for one in stats.topics if one["node"] in addresses], self.clock() // SECOND)
        return stats

    # Pauses

    async def pauses(self) -> list[JsonObject]:
        """Return the paused topics and channels: {"name", "by", "at", "until"}, as far as nodes know the last three."""
        cached = await self.cache.get_or_stale("pauses", self._pauses, SELDOM / 2)
        if cached is None and not self.cache.has_answer("pauses"):
            return []  # there was no answer yet; the next refresh has it
        return (cached or await self.cache.get("pauses", self._pauses, SELDOM / 2)).now

    async def _pauses(self) -> list[JsonObject]:
        penstock_nodes, fresh = await self.all_penstock_nodes(), {"by": "", "at": 0, "until": 0}
        paused = sorted((await self.overview()).now.paused)
        found: dict[str, JsonObject] = {name: {"name": name, **fresh} for name in paused}
        for data in (await self._gathered(penstock_nodes, "/pauses", {})).answers.values():
            for one in objects(data.get("pauses"))[:MOST_PAUSES]:
                name = "/".join(filter(None, (text(one.get("topic")), text(one.get("channel")))))
                known = found.setdefault(name, {"name": name, **fresh})
                known["by"] = known["by"] or text(one.get("by"))
                known["at"] = known["at"] or number(one.get("at"))
                known["until"] = max(known["until"], number(one.get("until")))
        return list(found.values())

    # Helpers of all of the above

    async def ask_nodes(
        self, producers: list[Producer], path: str, arguments: dict[str, str] | None = None, seconds: float = 0
    ) -> Gathered[JsonObject]:
        """Return the answers of Penstock's nodes to a path, at most `seconds` old; 0: FRESH."""
        return (await self._ask_nodes(producers, path, arguments or {}, seconds or FRESH)).now

    async def loads(self, penstock_nodes: list[Producer]) -> dict[str, NodeLoad]:
        """Return the load of each of Penstock's nodes by address; the inventory notes their counts."""
        cached = await self._ask_nodes(penstock_nodes, "/topics/figures", {"columns": "held,buried"}, FRESH)
        before = cached.before.answers if cached.before is not None else {}
        return loads_of(cached.now.answers, before, cached.seconds)

    async def _ask_nodes(
        self, producers: list[Producer], path: str, asked: dict[str, str], seconds: float
    ) -> CachedAnswer[Gathered[JsonObject]]:
        key = (path, *sorted(asked.items()), *(one.address for one in producers))
        return await self.cache.get(key, lambda: self._gathered(producers, path, asked), seconds)

    async def _gathered(
        self, producers: Iterable[Producer], path: str, arguments: Mapping[str, Any]
    ) -> Gathered[JsonObject]:
        return await self.fallback.objects_of([one.address for one in producers], path, arguments)

    async def _split(self, producers: list[Producer]) -> tuple[list[Producer], list[Producer]]:
        """Return Penstock's nodes and the others."""
        penstock_nodes = await self.penstock_nodes(producers)
        known = {one.address for one in penstock_nodes}
        return penstock_nodes, [one for one in producers if one.address not in known]


def _node_at(address: str, found: Producers, problem: str) -> Producer:
    for one in found.producers:
        if one.address == address:
            return one
    raise HttpError(404, problem)


def _place(producer: Producer) -> tuple[str, str]:
    return producer.hostname, producer.address


def _rows_of(answer: JsonObject, names: set[str]) -> list[JsonObject]:
    """Return the rows of the requested topics: a node may answer with others, too."""
    return [row for row in objects(answer.get("topics")) if text(row.get("topic_name")) in names]

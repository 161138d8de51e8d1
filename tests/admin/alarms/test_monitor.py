"""Checks of nodes that answer, hang, go down, lie, or are NSQ's, while no page is open."""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given

from admin.alarms.book import AlarmBook, Changes, Id, Snooze
from admin.alarms.checks import Checks
from admin.alarms.monitor import MOST_AGE, MOST_CURSORS, Monitor
from admin.alarms.rules import Thresholds
from admin.alarms.state_store import StateStore
from admin.nodes.cluster import AllFailed, Producer, Producers, Stats
from admin.nodes.inventory import DOWN_AFTER, NodeState
from admin.nodes.merge import topic_of
from admin.nodes.queries import Queries
from admin.nodes.snapshot import Snapshot
from admin.nodes.upstreams import Gathered, Refused, UpstreamError
from tests.admin.asking import in_loop
from tests.admin.looks import JSON, NOW, SECOND, producer
from tests.async_tests import on_asyncio
from tests.cases import each

INTERVAL = 15.0
TIMEOUT = 5.0  # s that a request to a node that hangs takes
ATTENTION = {"channels": [{"topic": "t", "channel": "c", "buried": 7, "clients": 1}]}
FIGURES = {"totals": {"depth": 30}, "names": ["t"], "columns": {"held": [30], "buried": [0]}}


@dataclass
class FakeNode:
    """A node. `answers` has its answers or exceptions by path; other paths are 404."""

    answers: dict[str, Any] = field(default_factory=dict)
    hangs: bool = False
    seconds: float = 0.0  # that an answer takes
    asked: list[tuple[str, dict[str, str]]] = field(default_factory=list)

    @property
    def paths(self) -> list[str]:
        """The paths of all requests but pings."""
        return [path for path, _ in self.asked if path != "/ping"]


class Watch:
    """A monitor over fake nodes, which nsqlookupd names, and with a clock of its own."""

    def __init__(self, *named: Producer, thresholds: tuple[str, ...] = (), **nodes: FakeNode) -> None:
        self.seconds = 0.0
        self.nodes = {f"{name}:1": node for name, node in nodes.items()}
        self.named = list(named) or [producer(name, capabilities=("log",)) for name in nodes]
        self.lookupds: dict[str, Exception | None] = {"l:1": None}
        self.originals: dict[str, list[dict[str, Any]]] = {}
        self.changes: list[Changes] = []
        asks = {"get_object": self.get_object, "get_bytes": self.get_bytes, "objects_of": self.objects_of}
        upstreams: Any = SimpleNamespace(**asks, stale=dict, forget=lambda address: None)
        upstreams.answer_budget = SimpleNamespace(most_held=1 << 20)
        cluster = SimpleNamespace(producers=self.producers, stats=self.stats, lookupds=tuple(self.lookupds))
        cluster.producers_of = self.producers_of
        queries = Queries(cast(Any, None), cast(Any, cluster), upstreams, upstreams, clock=self.clock)
        self.store = StateStore(None)
        checks = Checks(Thresholds(thresholds))
        self.monitor = Monitor(queries, checks, AlarmBook(), self.store, INTERVAL, self.changes.append, self.clock)

    def clock(self) -> int:
        return NOW + int(self.seconds * SECOND)

    def monotonic(self) -> float:
        return self.seconds

    async def producers(self) -> Producers:
        if any(self.lookupds.values()):
            raise AllFailed("failed to query any nsqlookupd")
        return Producers([], self.named)

    async def producers_of(self, topic: str) -> Producers:
        having = [one for one in (await self.producers()).producers if (topic, False) in one.topics]
        if not having:
            raise AllFailed("404 TOPIC_NOT_FOUND")
        return Producers([], having)

    async def stats(self, producers: list[Producer]) -> Stats:
        (node,) = producers
        if node.address not in self.originals:
            raise AllFailed("failed to query any nsqd")
        return Stats([], [topic_of(one, node.address, node.hostname, 0) for one in self.originals[node.address]])

    async def get_bytes(self, address: str, path: str, arguments: dict[str, str]) -> bytes:
        if address in self.lookupds:
            if failure := self.lookupds[address]:
                raise failure
            return b"OK"
        await self.get_object(address, path, arguments)
        return b"OK"

    async def get_object(self, address: str, path: str, arguments: dict[str, str] | None = None) -> dict[str, Any]:
        node = self.nodes[address]
        node.asked.append((path, arguments or {}))
        if node.hangs:
            self.seconds += TIMEOUT
            raise UpstreamError(f"{address}{path} did not answer within {TIMEOUT} s")
        self.seconds += node.seconds if path != "/ping" else 0.0
        answer = {"/ping": {}, **node.answers}.get(path, Refused("404", 404))
        if isinstance(answer, Exception):
            raise answer
        return cast(dict[str, Any], answer)

    async def objects_of(self, addresses: list[str], path: str, arguments: dict[str, str]) -> Gathered[Any]:
        found: Gathered[Any] = Gathered()
        for one in addresses:
            try:
                found.answers[one] = await self.get_object(one, path, arguments)
            except UpstreamError as failure:
                found.errors.append(str(failure))
        return found

    async def look(self, after: float = INTERVAL) -> Snapshot:
        """Ping and check once, `after` seconds after the last time."""
        self.seconds += after
        self.monitor.queries.cache.invalidate()
        await self.monitor.ping()
        await self.monitor.check()
        return self.monitor.last

    def state(self, name: str) -> NodeState:
        node = self.monitor.inventory.find(f"{name}:1")
        return node.state(self.clock())

    def alarms(self) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for one in self.monitor.book.all():
            found.setdefault(one.subject.rule, []).append(one.subject.key)
        return found


@pytest.fixture
def make_watch(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Watch]:
    def make(*named: Producer, **more: Any) -> Watch:
        watch = Watch(*named, **more)
        monkeypatch.setattr("admin.alarms.monitor.time", SimpleNamespace(monotonic=watch.monotonic))
        return watch

    return make


def healthy(**more: Any) -> FakeNode:
    answers = {"/channels/attention": ATTENTION, "/topics/figures": FIGURES, "/node/drain": {"draining": False}}
    return FakeNode(answers | more)


@on_asyncio
async def test_each_check_asks_for_all_that_pages_and_alarms_show(make_watch: Any) -> None:
    watch = make_watch(n=(node := healthy()))
    look = await watch.look()
    requests = ["/channels/attention", "/node/drain", "/cluster", "/storage", "/cursors", "/topics/figures"]
    assert node.paths == requests
    assert node.asked[1] == ("/channels/attention", {"depth": "500", "age": "1800", "limit": "1000"})
    assert (look.answered, look.channels["t", "c"].buried) == ({"n:1"}, 7)
    node.asked.clear()
    await watch.look()
    assert node.paths == requests
    assert watch.monitor.inventory.find("n:1").figures_at == watch.clock()
    assert [[one.id for one in changes.raised] for changes in watch.changes] == [[("buried", "t/c")], []]
    assert watch.monitor.completed == 2
    assert watch.monitor.checked_at == watch.clock()
    watch = make_watch(thresholds=("oldest-message.minutes=1e15", "backlog-growing.messages=0"), n=(node := healthy()))
    await watch.look()  # thresholds beyond what nodes can be asked for
    assert node.asked[1] == ("/channels/attention", {"depth": "1", "age": str(MOST_AGE), "limit": "1000"})


@on_asyncio
async def test_a_node_that_hangs_costs_one_request_and_is_as_it_was_until_it_is_down(make_watch: Any) -> None:
    watch = make_watch(n=healthy(), m=(node := healthy()))
    await watch.look()
    figures_at = watch.monitor.inventory.find("m:1").figures_at  # type: ignore[union-attr]
    node.hangs, before = True, len(node.asked)
    look = await watch.look(2)
    assert [path for path, _ in node.asked[before:]] == ["/ping"]
    assert watch.state("m") is NodeState.UNANSWERED
    assert look.answered == {"n:1", "m:1"}
    assert watch.monitor.inventory.find("m:1").figures_at == figures_at, "they were not answers again"  # type: ignore[union-attr]
    node.asked.clear()
    look = await watch.look(10)
    assert watch.state("m") is NodeState.DOWN
    assert "/channels/attention" not in node.paths
    assert look.answered == {"n:1"}
    assert watch.alarms()["node-down"] == ["m:1"]
    node.hangs = False
    look = await watch.look(1)
    assert watch.state("m") is NodeState.UP
    assert look.answered == {"n:1", "m:1"}, "it is asked at once, though it took long before"
    assert "node-down" not in watch.alarms()


@on_asyncio
async def test_a_node_that_took_long_is_asked_less_often(make_watch: Any) -> None:
    watch = make_watch(n=(node := healthy()))
    node.seconds = 0.1
    await watch.look()
    node.asked.clear()
    look = await watch.look()
    assert look.channels["t", "c"].buried == 7, "as it was answers last"
    assert node.paths == [], "six requests took 0.6 s: it is asked again after 30 s"
    await watch.look()
    assert node.paths[0] == "/channels/attention"
    node.seconds = 5.0
    await watch.look(3 * INTERVAL)
    for _ in range(4):
        node.asked.clear()
        await watch.look()
    assert node.paths, "and in each fourth check, however long it takes"


@on_asyncio
async def test_an_original_node(make_watch: Any) -> None:
    watch = make_watch(producer("o"), o=FakeNode())
    channel = {"channel_name": "c", "depth": 5, "in_flight_count": 1, "client_count": 0}
    watch.originals["o:1"] = [{"topic_name": "t", "depth": 2, "channels": [channel]}]
    look = await watch.look()
    assert (look.answered, look.channels["t", "c"].depth) == ({"o:1"}, 5)
    node = watch.monitor.inventory.find("o:1")
    assert (node.held, node.stuck[0].topic, node.stuck[0].messages) == (8, "t", 8)
    await watch.look(20)
    assert watch.alarms() == {"channel-without-consumer": ["t/c"]}
    del watch.originals["o:1"]
    look = await watch.look()
    assert look.channels["t", "c"].depth == 5, "it does not answer for a moment"


@each("failure", [UpstreamError("reset"), Refused("503", 503), Refused("429", 429), Refused("408", 408)])
@on_asyncio
async def test_a_node_that_fails_once_is_as_it_was(make_watch: Any, failure: UpstreamError) -> None:
    watch = make_watch(n=(node := healthy()))
    await watch.look()
    node.answers["/channels/attention"] = failure
    look = await watch.look()
    assert look.channels["t", "c"].buried == 7
    node.answers["/channels/attention"] = ATTENTION
    await watch.look()
    assert [len(one.raised) + len(one.ended) for one in watch.changes] == [1, 0, 0]


@on_asyncio
async def test_a_drained_node_that_is_stopped_is_not_down_even_if_it_stops_within_a_look(make_watch: Any) -> None:
    watch = make_watch(n=(node := healthy()), m=healthy())
    node.answers["/node/drain"] = {"draining": True, "done": True}
    await watch.look()
    node.answers["/node/drain"] = UpstreamError("reset")
    await watch.look()
    assert watch.alarms()["draining"] == ["n:1"]
    node.answers["/ping"] = UpstreamError("refused")
    watch.named = watch.named[1:]
    await watch.look()
    assert watch.state("n") is NodeState.STOPPED
    assert "draining" not in watch.alarms()
    assert "node-down" not in watch.alarms()


@each("standing, state", [("left", NodeState.STOPPED), ("member", NodeState.DOWN)])
@on_asyncio
async def test_a_node_that_has_left_its_cluster_is_not_down(make_watch: Any, standing: str, state: NodeState) -> None:
    watch = make_watch(n=(node := healthy()), m=(other := healthy()))
    await watch.look()
    node.answers["/ping"] = UpstreamError("refused")
    records = [{"node": 0, "http_address": "n:1", "standing": standing}, {"node": 1, "http_address": "m:1"}]
    other.answers["/cluster"] = {"name": "c", "node": 1, "nodes": records}
    watch.named = watch.named[1:]
    await watch.look()
    assert watch.state("n") is state
    assert ("node-down" in watch.alarms()) == (state is NodeState.DOWN)


@on_asyncio
async def test_a_node_that_goes_down_keeps_its_figures_and_loses_its_channels(make_watch: Any) -> None:
    watch = make_watch(n=(node := healthy()), m=FakeNode({"/channels/attention": {}}))
    await watch.look()
    node.answers["/ping"] = UpstreamError("refused")
    watch.named = watch.named[1:]
    look = await watch.look()
    assert (look.answered, look.channels) == ({"m:1"}, {})
    (alarm,) = watch.monitor.book.all()
    assert (alarm.subject.rule, alarm.since) == ("node-down", watch.clock() // SECOND * SECOND)
    assert "30 messages stuck on it: t (30)." in alarm.subject.words
    assert set(watch.monitor._nodes) == {"m:1"}
    assert not await watch.monitor.dismiss("m:1"), "it is up"
    assert await watch.monitor.dismiss("n:1")
    assert watch.alarms() == {}
    await watch.look()
    assert [one.subject.rule for one in watch.changes[-1].ended] == ["node-down"]


@on_asyncio
async def test_an_answer_that_is_not_ok_nsqlookupd_down_and_the_clocks_of_nodes(make_watch: Any) -> None:
    watch = make_watch(n=(node := healthy()))
    node.answers["/ping"] = Refused("n:1/ping answered 500 'NOK - disk full'", 500)
    look = await watch.look()
    assert (watch.state("n"), look.nodes["n:1"].health) == (NodeState.UP, "n:1/ping answered 500 'NOK - disk full'")
    assert watch.alarms()["node-refusing"] == ["n:1"]
    del node.answers["/ping"]
    watch.lookupds["l:1"] = UpstreamError("refused")
    look = await watch.look()
    assert "node-refusing" not in watch.alarms()
    assert (look.lookupds, look.answered) == ({"l:1": "refused"}, {"n:1"}), "nodes that are known are asked anyway"
    assert watch.alarms()["lookupd-down"] == ["l:1"]
    watch = make_watch(**{name: healthy(**{"/channels/attention": {"now": NOW + ahead * SECOND}})
                     for name, ahead in (("a", 0), ("b", 0), ("c", 60))})  # fmt: skip
    await watch.look(0)
    assert [watch.monitor.last.nodes[f"{name}:1"].clock_ahead for name in "abc"] == [0, 0, 60 * SECOND]
    assert watch.alarms()["clock-skew"] == ["c:1"]


@on_asyncio
async def test_an_nsqlookupd_that_was_restarted_hides_no_node_of_a_topic_until_the_next_look(make_watch: Any) -> None:
    watch = make_watch(producer("n", topics=(("t", False),)), n=healthy())
    queries = watch.monitor.queries
    await watch.look()
    watch.named = []
    queries.cache.invalidate()
    assert [one.address for one in (await queries.producers_of("t")).producers] == ["n:1"]
    assert watch.state("n") is NodeState.UNREGISTERED
    with pytest.raises(AllFailed):
        await queries.producers_of("u")


@on_asyncio
async def test_pages_ask_again_if_a_node_leaves_or_joins(make_watch: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    watch = make_watch(n=(node := healthy()))
    noted: list[float] = []
    monkeypatch.setattr(Queries, "note_change", lambda queries: noted.append(watch.seconds))
    for _ in range(10):
        await watch.look()
    assert noted == [INTERVAL]
    node.answers["/ping"] = UpstreamError("refused")
    await watch.look()
    del node.answers["/ping"]
    await watch.look()
    assert noted == [INTERVAL, 11 * INTERVAL, 12 * INTERVAL]


@on_asyncio
async def test_a_bug_in_a_check_does_not_end_the_task(
    make_watch: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    watch, looks = make_watch(n=healthy()), 0
    monkeypatch.setattr(logging.getLogger("penstock"), "propagate", True)
    check = watch.monitor.checks.check

    def fails_once(look: Snapshot) -> Any:
        nonlocal looks
        looks += 1
        if looks == 1:
            raise ZeroDivisionError
        return check(look)

    monkeypatch.setattr(watch.monitor.checks, "check", fails_once)

    async def turns() -> None:
        done, sleep = asyncio.Event(), asyncio.sleep

        async def skip(seconds: float) -> None:
            watch.seconds += seconds
            watch.monitor.queries.cache.invalidate()
            if watch.monitor.completed == 2:
                done.set()
            await sleep(0)

        monkeypatch.setattr("admin.alarms.monitor.asyncio.sleep", skip)
        watch.monitor.start()
        watch.monitor.start()  # it is started already
        await done.wait()
        watch.monitor._task.cancel()

    await turns()
    assert looks == 3
    assert watch.alarms() == {"buried": ["t/c"]}
    assert [one.getMessage() for one in caplog.records if one.levelno == logging.CRITICAL] == [
        "ALARMS: the check of the nodes failed"
    ]
    assert DOWN_AFTER > INTERVAL * SECOND / 3, "a node that is frozen is noticed between two looks"


PATHS = ("/channels/attention", "/node/drain", "/cluster", "/topics/figures", "/storage", "/cursors")
KEYS = (
    "channels", "topics", "tubes", "left_out", "now", "totals", "names", "columns", "draining", "done", "cursors", "refusal",
    "disk_free", "disk_total", "sync_p99_ms", "damage", "torn", "topic", "channel", "tube", "name", "lag", "buried",
    "depth", "oldest", "paused_at", "cluster", "node", "nodes", "logs", "copies",
)  # fmt: skip


@given(JSON, JSON)
def test_a_node_may_answer_anything(one: Any, other: Any) -> None:
    inner = dict.fromkeys(KEYS, other)
    answers = [dict.fromkeys(KEYS, one), {key: [inner, one] for key in KEYS}, dict.fromkeys(KEYS, inner)]
    watch = Watch(**{f"n{place}": FakeNode(dict.fromkeys(PATHS, answer)) for place, answer in enumerate(answers)})
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr("admin.alarms.monitor.time", SimpleNamespace(monotonic=watch.monotonic))
        for _ in range(2):
            in_loop(watch.look)
    assert watch.monitor.completed == 2
    for alarm in watch.monitor.book.all():
        assert alarm.json()["rule"] == alarm.rule.name


@on_asyncio
async def test_what_is_raised_in_a_snooze_is_stored_too(make_watch: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    watch = make_watch(n=healthy())
    watch.monitor.book.snooze(("buried", ""), Snooze(NOW + 3600 * SECOND, "a", "known"))
    puts: list[dict[Id, int]] = []

    async def put(self: StateStore, since: dict[Id, int]) -> None:
        puts.append(since)

    monkeypatch.setattr(StateStore, "put_alarms", put)
    await watch.look()
    await watch.look()
    watch.nodes["n:1"].answers["/channels/attention"] = {}
    await watch.look()
    assert puts == [{("buried", "t/c"): NOW + int(INTERVAL * SECOND)}, {}], "only what has changed"
    assert [len(one.raised) + len(one.ended) for one in watch.changes] == [0, 0, 0]


@on_asyncio
async def test_a_backlog_that_grows_names_the_connection_that_publishes_the_most(make_watch: Any) -> None:
    watch = make_watch(producer("n", topics=(("t", False),), capabilities=("log",)), n=(node := healthy()))
    watch.monitor.queries.cache._clock = watch.monotonic
    words = ""
    for at in range(50):
        counts = {"a:1": 10 * at, "rogue:1": 6600 * at if at > 1 else 0}
        producers = [
            {"hostname": "web", "remote_address": name, "pub_counts": [{"topic": "t", "count": count}]}
            for name, count in counts.items()
        ]
        channel = {"topic": "t", "channel": "c", "depth": 6610 * at, "clients": 1}
        node.answers |= {"/channels/attention": {"channels": [channel]}, "/stats": {"producers": producers}}
        await watch.look()
        words = "".join(one.words for one in watch.monitor.book.all() if one.subject.rule == "backlog-growing")
    assert words.endswith("; most from web rogue:1, 440/s")
    node.answers["/stats"] = UpstreamError("reset")
    await watch.look()
    assert "backlog-growing" in watch.alarms(), "it is raised, if only without the name"


@on_asyncio
async def test_cursors_are_bounded(make_watch: Any) -> None:
    cursors = [{"topic": "t" * 300, "name": f"r{one}", "lag": -one} for one in range(MOST_CURSORS + 5)]
    watch = make_watch(n=healthy(**{"/cursors": {"cursors": cursors}}))
    await watch.look()
    assert len(watch.monitor.last.cursors) == MOST_CURSORS
    assert {(len(one.topic), one.lag) for one in watch.monitor.last.cursors} == {(200, 0)}

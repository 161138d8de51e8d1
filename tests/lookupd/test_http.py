"""nsqlookupd's HTTP API: the ASGI application asked directly, no socket and no second thread."""

import asyncio
from dataclasses import dataclass, field, replace

import httpx
import pytest

from lookupd.cluster_nodes import ClusterNode
from lookupd.http import Handlers
from lookupd.net import ConnectionCounts
from lookupd.producers import Limits, Peer, PeerInfo
from lookupd.registry import Registry
from shared.http.api import Api
from shared.http.bridge import Bridge
from shared.http.hosts import Hosts
from shared.http.route import handlers as by_path
from shared.version import PENSTOCK_VERSION
from tests.cases import each

SECOND = 1_000_000_000
ASK = {"X-Nsq-Extensions": "true"}
T0 = 1_700_000_000 * SECOND
NODE1 = PeerInfo("10.0.0.1:5001", "host1", "node<1>", 4150, 4151, "1.3.0")
NODE2 = PeerInfo("10.0.0.2:5002", "host2", "node2", 4150, 4151, "1.3.0")
NODE1_JSON = (
    '{"remote_address":"10.0.0.1:5001","hostname":"host1","broadcast_address":"node\\u003c1\\u003e",'
    '"tcp_port":4150,"http_port":4151,"version":"1.3.0"'
)
NODE2_JSON = (
    '{"remote_address":"10.0.0.2:5002","hostname":"host2","broadcast_address":"node2",'
    '"tcp_port":4150,"http_port":4151,"version":"1.3.0"'
)


FIGURES = ConnectionCounts(3, {"lobby": 7, "identify": 0, "register": 0})


@dataclass
class Lookupd:
    """The application around a registry whose clock the test holds."""

    registry: Registry = field(default_factory=lambda: Registry(300 * SECOND, 45 * SECOND))
    now: int = T0
    obstacle: str = ""
    connections: ConnectionCounts = FIGURES
    cluster_nodes: list[ClusterNode] = field(default_factory=list)
    stalled: bool = False  # the trio thread does not turn
    bugs: list[BaseException] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.bridge = Bridge(self.turn)
        parts = lambda: self.now, lambda: self.connections, lambda: self.obstacle, lambda: self.cluster_nodes
        self.handlers = Handlers(self.registry, self.bridge, *parts)
        self.app = Api(by_path(self.handlers.routes()), Hosts([]), self.bugs.append)

    def turn(self) -> None:
        if not self.stalled:
            self.bridge.deliver(self.bridge.serve())

    def ask(self, method: str, target: str, headers: dict[str, str] | None = None) -> httpx.Response:
        async def exchange() -> httpx.Response:
            self.bridge._loop = None  # one loop a request here, one for all in the daemon
            transport = httpx.ASGITransport(self.app)
            async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
                return await client.request(method, target, headers=headers)

        response = asyncio.run(exchange())
        assert not self.bugs
        self.registry.check()
        return response

    def get(self, target: str) -> httpx.Response:
        return self.ask("GET", target)

    def post(self, target: str) -> httpx.Response:
        return self.ask("POST", target)

    def producer(self, info: PeerInfo, *registrations: str) -> Peer:
        """An nsqd that sent `REGISTER <registration>` for each."""
        peer = self.registry.identify(info, self.now)
        for registration in registrations:
            self.registry.register(peer, *registration.split())
        return peer


@pytest.fixture
def lookupd() -> Lookupd:
    return Lookupd()


def test_ping_and_info(lookupd: Lookupd) -> None:
    ping, info = lookupd.get("/ping"), lookupd.get("/info")
    assert (ping.status_code, ping.text, ping.headers["content-type"]) == (200, "OK", "text/plain; charset=utf-8")
    assert "x-nsq-content-type" not in ping.headers
    assert (info.status_code, info.text) == (200, '{"version":"1.3.0"}')
    assert lookupd.ask("GET", "/info", ASK).json() == {"version": "1.3.0", "penstock_version": PENSTOCK_VERSION}
    assert info.headers["content-type"] == "application/json; charset=utf-8"
    assert info.headers["x-nsq-content-type"] == "nsq; version=1.0"


def test_lookup(lookupd: Lookupd) -> None:
    for target, name in (("/topics", "topics"), ("/channels?topic=t", "channels"), ("/nodes", "producers")):
        assert lookupd.get(target).text == f'{{"{name}":[]}}'
    assert lookupd.get("/debug").text == "{}"
    lookupd.post("/topic/create?topic=u")  # without producers
    assert lookupd.get("/lookup?topic=u").text == '{"channels":[],"producers":[]}'
    lookupd.producer(NODE1, "t c", "t b")
    lookupd.producer(NODE2, "t")
    assert lookupd.get("/topics").text == '{"topics":["t","u"]}'
    assert lookupd.get("/channels?topic=t").text == '{"channels":["b","c"]}'
    assert lookupd.get("/lookup?topic=t").text == (
        '{"channels":["b","c"],"producers":[' + NODE1_JSON + "}," + NODE2_JSON + "}]}"
    )
    lookupd.now += 301 * SECOND  # inactive producers are hidden by lookup and nodes
    assert lookupd.get("/lookup?topic=t").text == '{"channels":["b","c"],"producers":[]}'
    assert lookupd.get("/nodes").text == '{"producers":[]}'
    assert "client::" in lookupd.get("/debug").json()


def test_extensions_are_sent_on_request(lookupd: Lookupd) -> None:
    lookupd.producer(replace(NODE1, node_id=0, https_port=4152, capabilities=("log",), penstock_version="0.1.0"), "t")
    extensions = {"node_id": 0, "https_port": 4152, "capabilities": ["log"], "penstock_version": "0.1.0"}
    for target in ("/lookup?topic=t", "/nodes"):
        (plain,) = lookupd.get(target).json()["producers"]
        assert extensions.keys().isdisjoint(plain)
        (extended,) = lookupd.ask("GET", target, ASK).json()["producers"]
        assert extended == plain | extensions
    assert extensions.keys().isdisjoint(lookupd.ask("GET", "/debug", ASK).json()["topic:t:"][0])


def test_nodes_of_clusters_have_their_last_contact(lookupd: Lookupd) -> None:
    info = replace(NODE1, node_id=7, cluster="c", cluster_address="node:4154", log_id="ab" * 16)
    lookupd.producer(info, "t")
    lookupd.cluster_nodes = [
        ClusterNode(replace(info, node_id=8, log_id=""), False, 12.34567),
        ClusterNode(info, True, 0.0),
    ]
    answer = lookupd.ask("GET", "/nodes", ASK).json()
    assert answer["producers"][0]["log_id"] == "ab" * 16
    known = {"cluster": "c", "cluster_address": "node:4154"}
    assert answer["cluster_nodes"] == [
        known | {"node_id": 8, "log_id": "", "connected": False, "last_contact": 12.346},
        known | {"node_id": 7, "log_id": "ab" * 16, "connected": True, "last_contact": 0.0},
    ]
    plain = lookupd.get("/nodes").json()
    assert "cluster_nodes" not in plain
    assert {"log_id", "cluster"}.isdisjoint(plain["producers"][0])


def test_inactive_topics(lookupd: Lookupd) -> None:
    lookupd.producer(NODE1, "carried c")
    for name in ("b", "a"):
        lookupd.post(f"/channel/create?topic={name}&channel=c")
    assert lookupd.get("/topics/inactive").text == (
        '{"topics":[{"topic":"a","channels":["c"]},{"topic":"b","channels":["c"]}],"more":false}'
    )
    for asked, name, more in (("limit=2", "a", True), ("after=a", "b", False)):
        page = lookupd.get(f"/topics/inactive?{asked}").json()
        assert page == {"topics": [{"topic": name, "channels": ["c"]}], "more": more}
    for limit in ("0", "50001", "-1", "x", ""):
        assert lookupd.get(f"/topics/inactive?limit={limit}").json() == {"message": "INVALID_ARG_LIMIT"}


def test_a_tombstone_hides_from_lookup_and_is_shown_by_nodes(lookupd: Lookupd) -> None:
    lookupd.producer(NODE1, "t", "u")
    answer = lookupd.post("/topic/tombstone?topic=t&node=node%3C1%3E:4151")
    assert (answer.status_code, answer.content) == (200, b"")
    assert lookupd.get("/lookup?topic=t").text == '{"channels":[],"producers":[]}'
    assert lookupd.get("/nodes").text == (
        '{"producers":[' + NODE1_JSON + ',"tombstones":[true,false],"topics":["t","u"]}]}'
    )
    lookupd.now += 45 * SECOND
    assert NODE1_JSON in lookupd.get("/lookup?topic=t").text


def test_debug_shows_everything_that_has_a_producer(lookupd: Lookupd) -> None:
    lookupd.producer(NODE2, "t c")
    lookupd.post("/topic/create?topic=lonely")
    lookupd.now += 5
    lookupd.post("/topic/tombstone?topic=t&node=node2:4151")
    row = (
        '[{"broadcast_address":"node2","hostname":"host2","http_port":4151,"id":"10.0.0.2:5002",'
        f'"last_update":{T0},"tcp_port":4150,"tombstoned":TOMB,"version":"1.3.0"}}]'
    )
    never = row.replace("TOMB", 'false,"tombstoned_at":-6795364578871345152')
    buried = row.replace("TOMB", f'true,"tombstoned_at":{T0 + 5}')
    assert lookupd.get("/debug").text == (f'{{"channel:t:c":{never},"client::":{never},"topic:t:":{buried}}}')


def test_creating_and_deleting(lookupd: Lookupd) -> None:
    for target in ("/topic/create?topic=t", "/topic/create?topic=t", "/channel/create?topic=u&channel=c"):
        answer = lookupd.post(target)
        assert (answer.status_code, answer.content) == (200, b"")
        assert "content-type" not in answer.headers
    assert lookupd.get("/topics").json() == {"topics": ["t", "u"]}
    assert lookupd.post("/channel/delete?topic=u&channel=c").status_code == 200
    assert lookupd.get("/channels?topic=u").json() == {"channels": []}
    assert lookupd.post("/topic/delete?topic=u").status_code == 200
    assert lookupd.post("/topic/delete?topic=no!such").status_code == 200
    assert lookupd.get("/topics").json() == {"topics": ["t"]}


@each(
    "method, target, status, message",
    [
        *(("GET", f"/{one}", 400, "MISSING_ARG_TOPIC") for one in ("channels", "lookup", "lookup?Topic=t")),
        ("GET", "/lookup?topic=t", 404, "TOPIC_NOT_FOUND"), ("GET", "/lookup?topic=", 404, "TOPIC_NOT_FOUND"),
        ("GET", "/lookup?topic=%zz", 400, "INVALID_REQUEST"), ("POST", "/topic/create?a;b", 400, "INVALID_REQUEST"),
        *(("POST", f"/topic/create?topic={name}", 400, "INVALID_ARG_TOPIC") for name in ("", "a!", "*")),
        *(("GET", f"/{one}", 400, "INVALID_ARG_TOPIC") for one in ("lookup?topic=*", "channels?topic=%2a")),
        *(("POST", f"/{one}", 400, "INVALID_ARG_TOPIC") for one in (
            "topic/delete?topic=*", "topic/tombstone?topic=*&node=n", "channel/create?topic=*&channel=c",
            "channel/delete?topic=*&channel=c", "channel/create?topic=a!")),
        *(("POST", f"/channel/{verb}?topic=t&channel={name}", 400, "INVALID_ARG_CHANNEL")
          for verb in ("create", "delete") for name in ("*", "c!")),
        *(("POST", f"/{one}", 400, "MISSING_ARG_TOPIC") for one in (
            "topic/create", "topic/delete", "topic/tombstone?node=n", "channel/create?channel=c")),
        ("POST", "/topic/tombstone?topic=t", 400, "MISSING_ARG_NODE"),
        ("POST", "/channel/create?topic=t", 400, "MISSING_ARG_CHANNEL"),
        ("POST", "/channel/delete?topic=t&channel=c", 404, "CHANNEL_NOT_FOUND"),
        ("POST", "/topics", 405, "METHOD_NOT_ALLOWED"), ("GET", "/topic/create", 405, "METHOD_NOT_ALLOWED"),
        *(("GET", path, 404, "NOT_FOUND") for path in ("/debug/pprof", "/debug/pprof/heap", "/")),
    ],
    lookupd=Lookupd,
)  # fmt: skip
def test_errors(lookupd: Lookupd, method: str, target: str, status: int, message: str) -> None:
    answer = lookupd.ask(method, target)
    assert (answer.status_code, answer.text) == (status, f'{{"message":"{message}"}}')
    assert answer.headers["x-nsq-content-type"] == "nsq; version=1.0"


def test_metrics_cost_the_same_for_any_number_of_topics(lookupd: Lookupd) -> None:
    lookupd.producer(NODE1, *(f"t{i} c" for i in range(50)))
    answer = lookupd.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain")
    samples = [line for line in answer.text.splitlines() if line.startswith("nsqlookupd_")]
    assert samples == [
        "nsqlookupd_topics 50.0", "nsqlookupd_channels 50.0", "nsqlookupd_producers 1.0",
        "nsqlookupd_registrations 200.0", "nsqlookupd_connections 3.0",
        "nsqlookupd_long_polls 0.0",
        'nsqlookupd_refused_total{reason="lobby"} 7.0', 'nsqlookupd_refused_total{reason="identify"} 0.0',
        'nsqlookupd_refused_total{reason="register"} 0.0',
    ]  # fmt: skip


def test_readiness_and_liveness(lookupd: Lookupd, monkeypatch: pytest.MonkeyPatch) -> None:
    assert (lookupd.get("/readyz").status_code, lookupd.get("/readyz").text) == (200, "OK")
    lookupd.obstacle = "4000 connections are open"
    assert (lookupd.get("/readyz").status_code, lookupd.get("/livez").status_code) == (503, 200)
    assert lookupd.get("/readyz").text == "NOK - 4000 connections are open"
    monkeypatch.setattr("shared.http.api.LIVE_TIMEOUT", 0.0)
    lookupd.stalled = True  # the trio thread does not turn
    assert lookupd.get("/livez").status_code == 503


def test_a_name_beyond_the_limit_is_not_created() -> None:
    lookupd = Lookupd(Registry(300 * SECOND, 45 * SECOND, Limits(total=4)))
    assert lookupd.post("/channel/create?topic=t&channel=c").status_code == 200
    assert lookupd.post("/channel/create?topic=t&channel=d").status_code == 200
    assert lookupd.post("/topic/create?topic=u").status_code == 200
    answer = lookupd.post("/topic/create?topic=v")
    assert (answer.status_code, answer.json()["message"].partition(":")[0]) == (503, "TOO_MANY_REGISTRATIONS")
    assert lookupd.post("/topic/create?topic=u").status_code == 200

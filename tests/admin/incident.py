"""nsqadmin, nsqlookupd and a node in virtual time: every second something else is true of the node.

    incident = Incident(monkeypatch)
    await incident.pass_second()
    page = await incident.page("/nodes")

Topic t has channel c on node n; topic quiet has nothing. `depth(second)` messages wait in c, a number that is true in that
second only, so that a test knows of each number on a page how old it is. Requests are answered at once, or fail at once if the
daemon is in `dead` (it refuses connections) or `hung`. `channel`, `storage` and `attention` are fields that the node's answers
have in addition, or instead.
"""

from types import SimpleNamespace
from typing import Any

import pytest

from admin.daemon import Application, application
from admin.nodes import fallback
from admin.nodes.answer_budget import Answer
from admin.nodes.upstreams import TIMED_OUT, Refused, UpstreamError, Upstreams
from admin.options import AdminOptions
from tests.admin.asking import _TLS, browser
from tests.admin.looks import NOW, SECOND

LOOKUPD, NODE = "l:4161", "n:4151"
CHECK = 15  # s between two checks of the monitor
PING = 5
FIRST, STEP = 100_000, 7


def depth(second: int) -> int:
    return FIRST + STEP * second


class Incident:
    """See above. `second`: since the start; `free`: percent of the disk that are free."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.second, self.dead, self.hung, self.free = 0, set[str](), set[str](), 60
        self.channel, self.storage, self.attention = dict[str, Any](), dict[str, Any](), dict[str, Any]()
        clock = SimpleNamespace(
            time_ns=self.now, monotonic=lambda: 1000.0 + self.second, time=lambda: self.now() / SECOND
        )
        for module in ("alarms.monitor", "output.layout", "pages.topic_pages", "nodes.cluster", "nodes.queries"):
            monkeypatch.setattr(f"admin.{module}.time", clock)
        monkeypatch.setattr(fallback, "PATIENCE", 0.2)
        monkeypatch.setattr(Upstreams, "get_object", self._get_object)
        monkeypatch.setattr(Upstreams, "get_bytes", self._get_bytes)
        self.app: Application = application(AdminOptions(lookupd_http_address=(LOOKUPD,)), _TLS, None)
        (self.monitor,) = self.app.monitors
        queries = self.monitor.queries
        queries.clock = self.monitor._clock = self.now
        queries.cache._clock = queries.fallback._clock = clock.monotonic
        self.client = browser(self.app.api)

    def now(self) -> int:
        """Return the time in ns since the epoch."""
        return NOW + self.second * SECOND

    async def pass_second(self) -> None:
        """Let a second pass, with the pings and checks of the monitor that are due."""
        self.second += 1
        if self.second % PING == 1:
            await self.monitor.ping(asks_names=self.second % CHECK == 1)
        if self.second % CHECK == 1:
            await self.monitor.check()

    async def page(self, path: str) -> str:
        return (await self.client.get(path)).text

    async def _get_bytes(self, address: str, path: str, arguments: Any) -> bytes:
        await self._get_object(address, path, arguments)
        return b"OK"

    async def _get_object(self, address: str, path: str, arguments: Any = None) -> Answer:
        if address in self.dead:
            raise UpstreamError(f"{address}{path} cannot be reached: connection refused")
        if address in self.hung:
            raise UpstreamError(f"{address}{path} {TIMED_OUT} 5 s")
        answers = self._of_lookupd() if address == LOOKUPD else self._of_node()
        if path not in answers:
            raise Refused("404", 404)
        return Answer(answers[path], 100)

    def _of_lookupd(self) -> dict[str, dict[str, Any]]:
        named = [] if NODE in self.dead | self.hung else [
            {"hostname": "n", "broadcast_address": "n", "http_port": 4151, "tcp_port": 4150, "version": "1.3.0",
             "remote_address": "n:1", "topics": ["t"], "tombstones": [False], "capabilities": ["log"]}
        ]  # fmt: skip
        return {
            "/nodes": {"producers": named}, "/lookup": {"producers": named}, "/topics": {"topics": ["t"]},
            "/ping": {}, "/info": {"version": "1.3.0"},
        }  # fmt: skip

    def _of_node(self) -> dict[str, dict[str, Any]]:
        now, ready = self.now(), depth(self.second)
        zeros = dict.fromkeys(("in_flight", "deferred", "buried", "clients", "requeued", "timed_out", "jobs"), 0)
        counts = {"depth": ready, "messages": ready, **zeros}
        channel = {"channel_name": "c", "depth": ready, "message_count": ready, "paused": "paused_at" in self.channel}
        row = {"topic_name": "t", "held": ready, "channels": 1, "oldest": now - SECOND, **counts}
        return {
            "/ping": {}, "/node/drain": {"draining": False, **counts},
            "/channels/attention": {
                "channels": [{"topic": "t", "channel": "c", "oldest": now, **counts, **self.channel}], "now": now,
                **self.attention,
            },
            "/topics/figures": {
                "totals": {"topics": 2, "channels": 1, **counts}, "names": ["quiet", "t"],
                "columns": {name: [0, value] for name, value in {**counts, "held": ready, "channels": 1}.items()},
            },
            "/topics/rows": {"topics": [row]},
            "/stats": {
                "topics": [{"topic_name": "t", "depth": 0, "message_count": ready, "channels": [channel]}],
                "producers": [{"hostname": "web", "pub_counts": [{"topic": "t", "count": ready}]}],
            },
            "/topic/ages": {"topic": 0, "channels": {"c": now - SECOND}, "buried": {}},
            "/storage": {"disk_free": self.free * 10**9, "disk_total": 100 * 10**9, "refusal": "", **self.storage},
            "/cursors": {"cursors": []},
        }  # fmt: skip

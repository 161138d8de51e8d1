"""`penstock` in the test's process: the command lines of a user, on LocalNodes and an nsqlookupd that knows them.

    terminal = Terminal(monkeypatch, capsysbinary, nodes)
    code, out, error = terminal("topics")

The nodes answer at 127.0.0.1:4151, :4251, ... A node that is `down` refuses connections, one that is `slow` never answers.
"""

import asyncio
import json
import signal
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import httpx
import pytest

from admin.terminal.main import NAMES
from admin.terminal.main import main as of_all_nodes
from apps.penstock import main as of_apps
from shared.version import PENSTOCK_VERSION
from tests.local_node import LocalNode

LOOKUPD = "127.0.0.1:4161"


Change = Callable[[str, str, httpx.Response], httpx.Response]


class Network(httpx.AsyncBaseTransport):
    """Carries requests to the nodes, and answers those to the nsqlookupd."""

    def __init__(self, nodes: Sequence[LocalNode]) -> None:
        self.nodes = {f"127.0.0.1:{4151 + 100 * number}": node for number, node in enumerate(nodes)}
        self.down: set[str] = set()
        self.slow: set[str] = set()
        self.hidden: set[str] = set()  # addresses that no nsqlookupd names
        self.version: dict[str, str] = {}  # by address
        self.unreachable: set[str] = set()  # addresses of nodes that refuse connections of consumers
        self.has_lookupd = True
        self.asked: list[str] = []  # method, address and path
        self.created: set[str] = set()  # topics that only the nsqlookupd knows
        self.answers: dict[str, httpx.Response] = {}  # in place of a node's own, by address and path
        self.change: Change | None = None  # makes what a node answers of its address, the path and its own answer
        self.requests_left = -1  # until the user presses Ctrl-C during a request; below 0: never

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        address = request.url.netloc.decode()
        self.asked.append(f"{request.method} {address}{request.url.path}")
        self.requests_left -= 1
        if self.requests_left == -1:
            signal.raise_signal(signal.SIGINT)
            await asyncio.sleep(0)  # in which the command is cancelled
        if given := self.answers.get(f"{address}{request.url.path}"):
            return httpx.Response(given.status_code, headers=given.headers, stream=httpx.ByteStream(given.content))
        if address in self.slow:
            raise httpx.ReadTimeout("timed out")
        if address in self.down or address not in (self.nodes if not self.has_lookupd else {*self.nodes, LOOKUPD}):
            raise httpx.ConnectError("Connection refused")
        body = await request.aread()
        answer = self._lookupd(request) if address == LOOKUPD else self._at_node(address, request, body)
        return httpx.Response(answer.status_code, headers=answer.headers, stream=httpx.ByteStream(answer.content))

    async def open_connection(self, host: str, port: int) -> tuple[None, SimpleNamespace]:
        """Connect to the port of a node for NSQ's protocol, as asyncio does. Raises ConnectionRefusedError."""
        if f"{host}:{port + 1}" not in self.nodes.keys() - self.down - self.unreachable:
            raise ConnectionRefusedError("Connection refused")
        return None, SimpleNamespace(close=lambda: None)

    def _at_node(self, address: str, request: httpx.Request, body: bytes) -> httpx.Response:
        node, path = self.nodes[address], request.url.raw_path.decode()
        headers = {name: value for name, value in request.headers.items() if name not in ("host", "content-length")}
        loop = asyncio.get_running_loop()
        asyncio._set_running_loop(None)  # the node steps a loop of its own meanwhile
        try:
            answer = node.client.request(request.method, path, headers=headers, content=body)
            return self.change(address, request.url.path, answer) if self.change is not None else answer
        finally:
            asyncio._set_running_loop(loop)

    def _lookupd(self, request: httpx.Request) -> httpx.Response:
        path, topic = request.url.path, request.url.params.get("topic")
        producers = [self._producer(address) for address in self.nodes if address not in self.down | self.hidden]
        having = [one for one in producers if topic in one["topics"]]
        if path == "/topic/create" and topic:
            self.created.add(topic)
        if path == "/lookup":
            if not having and topic not in self.created:
                return httpx.Response(404, json={"message": "TOPIC_NOT_FOUND"})
            return httpx.Response(200, json={"channels": [], "producers": having})
        if path == "/nodes":
            return httpx.Response(200, json={"producers": producers})
        topics = sorted({name for one in producers for name in one["topics"]})
        return httpx.Response(200, json={"topics": topics} if path == "/topics" else {})

    def _producer(self, address: str) -> dict[str, Any]:
        host, _, port = address.rpartition(":")
        topics = list(self.nodes[address].broker.topics)
        return {
            "hostname": f"host-{port}", "broadcast_address": host, "http_port": int(port),
            "tcp_port": int(port) - 1, "version": self.version.get(address, "1.3.0"),
            "penstock_version": PENSTOCK_VERSION, "remote_address": f"{host}:5",
            "topics": topics, "tombstones": [False] * len(topics), "capabilities": ["log"],
        }  # fmt: skip


class Terminal:
    """Runs commands. A call returns exit code, standard output and standard error."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, output: pytest.CaptureFixture[bytes], nodes: Sequence[LocalNode]
    ) -> None:
        self.network = Network(nodes)
        self._output = output
        clock = SimpleNamespace(time_ns=lambda: nodes[0].clock.wall)
        monkeypatch.setattr("admin.terminal.session.time", clock)
        monkeypatch.setattr("asyncio.open_connection", self.network.open_connection)
        monkeypatch.setattr("admin.terminal.doctor.local_only", lambda producers: [])  # as if on machines of their own
        real = httpx.AsyncClient
        monkeypatch.setattr(
            httpx, "AsyncClient", lambda **given: real(transport=self.network, timeout=given["timeout"])
        )

    def __call__(self, *words: str) -> tuple[int, str, str]:
        before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a worker of pytest-xdist ignores it
        try:
            code: object = (of_all_nodes if words[0] in NAMES else of_apps)(words)
        except SystemExit as end:  # of argparse
            code = end.code
        finally:
            signal.signal(signal.SIGINT, before)
        assert isinstance(code, int)
        out, error = self._output.readouterr()
        return int(code), out.decode("utf-8", "backslashreplace"), error.decode()

    def rows(self, *words: str) -> list[dict[str, Any]]:
        """Return the objects that --json prints."""
        code, out, error = self(*words, "--json")
        assert (code, error) == (0, "")
        return [json.loads(line) for line in out.splitlines()]


def reported(path: str, at: str = "127.0.0.1:4251", **fields: object) -> Change:
    """Return the change by which a node reports these fields."""

    def change(address: str, asked: str, answer: httpx.Response) -> httpx.Response:
        is_it = (address, asked) == (at, path)
        return httpx.Response(200, json=answer.json() | fields) if is_it else answer

    return change


Run = Callable[..., tuple[int, str, str]]


def post(node: LocalNode, path: str, body: bytes = b"", **arguments: str) -> None:
    node.client.post(path, params=arguments, content=body).raise_for_status()

"""nsqadmin, and clusters for it: ours, or whatever a test makes up."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING

import greenstalk
import httpx
import pytest

from tests.admin.browsers import browser
from tests.daemons import Daemon, eventually, nsqd
from tests.disque_client import Client as Disque
from tests.requirements import require

if TYPE_CHECKING:
    from playwright.sync_api import Browser


@dataclass(frozen=True, slots=True)
class Cluster:
    """A running cluster: one nsqlookupd, two nsqd, and nsqadmin."""

    lookupd: Daemon
    nodes: tuple[Daemon, Daemon]
    admin: Daemon

    @property
    def url(self) -> str:
        return f"http://{self.admin.http}"

    def publish(self, topic: str, *bodies: str, node: int = 0) -> None:
        """Publish the bodies to a topic of one of the nodes."""
        url = f"http://{self.nodes[node].http}/mpub?topic={topic}"
        httpx.post(url, content="\n".join(bodies)).raise_for_status()

    def worker(self, tube: str, node: int = 0) -> greenstalk.Client[str]:
        """A client of beanstalkd, at one of the nodes."""
        line = self.nodes[node].wait_for_line("BEANSTALK: listening on")
        host, _, port = line.split()[-1].rpartition(":")
        return greenstalk.Client((host, int(port)), use=tube, watch=tube)

    def disque(self, node: int = 0) -> Disque:
        """A client of Disque, at one of the nodes."""
        line = self.nodes[node].wait_for_line("DISQUE: listening on")
        host, _, port = line.split()[-1].rpartition(":")
        return Disque((host, int(port)))

    def channel(self, topic: str, name: str) -> None:
        """Create the topic and its channel on both nodes."""
        for node in self.nodes:
            httpx.post(f"http://{node.http}/topic/create?topic={topic}").raise_for_status()
            httpx.post(f"http://{node.http}/channel/create?topic={topic}&channel={name}").raise_for_status()
        asked = {"topic": topic}
        eventually(lambda: len(httpx.get(f"http://{self.lookupd.http}/lookup", params=asked).json()["producers"]) == 2)


def nsqadmin(*flags: str) -> Daemon:
    """Without the address of TCP, which it has not."""
    daemon = Daemon("nsqadmin", *flags, listens=("HTTP",))
    place = daemon._command.index("-tcp-address")
    del daemon._command[place : place + 2]
    return daemon


@contextmanager
def a_cluster(directory: Path, *flags: str) -> Iterator[Cluster]:
    with Daemon("nsqlookupd") as lookupd:
        told = ("-lookupd-tcp-address", lookupd.tcp, "-e2e-processing-latency-percentile", "0.5")
        more = ("-beanstalk-address", "127.0.0.1:0", "-disque-address", "127.0.0.1:0", "-retention", "1h")
        with (
            nsqd(directory / "1", *told, *more, "-node-id", "1") as one,
            nsqd(directory / "2", *told, *more, "-node-id", "2") as two,
            nsqadmin("-lookupd-http-address", lookupd.http, *flags) as admin,
        ):
            eventually(lambda: len(httpx.get(f"http://{lookupd.http}/nodes").json()["producers"]) == 2)
            yield Cluster(lookupd, (one, two), admin)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with a_cluster(tmp_path_factory.mktemp("cluster")) as found:
        yield found


@pytest.fixture(scope="module")
def chrome() -> Iterator[Browser]:
    """A browser, without which the tests of a module are skipped."""
    require("chromium")
    with browser() as found:
        yield found


Answer = Callable[[str], tuple[int, bytes]]


@contextmanager
def upstream(
    answer: Answer, headers: Mapping[str, str] | None = None, hear: Callable[[Message], object] = lambda headers: None
) -> Iterator[str]:
    """Something at an address that answers paths so, with these headers; `hear` gets those of the questions."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            hear(self.headers)
            status, content = answer(self.path)
            self.send_response(status)
            for name, value in (headers or {}).items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_POST = do_GET

        def log_message(self, *anything: object) -> None:
            pass

    class Server(ThreadingHTTPServer):
        request_queue_size = 100

    server = Server(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


def told(value: object) -> tuple[int, bytes]:
    return 200, json.dumps(value).encode()

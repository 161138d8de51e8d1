"""A page of nsqadmin that stays open in a browser for ten thousand updates, and the memory that they leave behind there.

With one update in two seconds that would take five hours and a half. So a proxy stands between browser and nsqadmin. It
passes on the first events of the page's stream, each from another moment, and repeats them in turn as fast as the browser
takes them. The proxy and this row know no more of nsqadmin than the URL of a page and the content type of a stream.
"""

from __future__ import annotations

import http.client
import random
import shutil
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING

from bench.admin_cluster import CHANNEL, AdminCluster, admin_cluster, every_second, say
from bench.rows import Effort
from bench.server import BenchError, Program, Server
from bench.table import Line, number

if TYPE_CHECKING:
    from playwright.sync_api import CDPSession, Page

NODES, TOPICS = 2, 200
PAGE = "/?sort=rate_in"  # an order in which rows change their places
_UPDATES = (500, 10_000)  # when memory is measured; both show the same event, as both are multiples of _MOMENTS
_QUICK = (20, 100)
_MOMENTS = 10  # number of different events
_STUCK = 60.0  # s without an update, after which the page counts as stuck
_QUIET = 5  # changes in a second; fewer are no update, but something else that moves on the page
_EVENT_STREAM = "text/event-stream"
_TIMEOUT = 30.0  # s for nsqadmin to answer
_COUNT = """() => {
  window.benchChanges = 0;
  const all = {subtree: true, childList: true, attributes: true, characterData: true};
  new MutationObserver(() => { window.benchChanges += 1 }).observe(document.body, all);
}"""


@dataclass(frozen=True, slots=True)
class BrowserMemory:
    """The memory of a page in the browser, after a garbage collection."""

    nodes: float  # of the DOM, including those that belong to no document
    heap: float  # bytes of JavaScript's heap
    listeners: float


@dataclass(frozen=True, slots=True)
class Open:
    """The row of an open page."""

    name: str

    def measure(self, program: Program, go: Program | None, effort: Effort) -> list[Line]:
        early, late = _UPDATES if effort.scale == 1 else _QUICK
        with (
            admin_cluster(program, NODES, TOPICS) as cluster,
            every_second(partial(_busy, cluster, random.Random(1))),
            _proxy(cluster.admin) as proxy,
            _page(f"http://{proxy.address}{PAGE}") as (page, devtools),
        ):
            page.evaluate(_COUNT)
            first = _after(early, proxy, page, devtools)
            began = time.perf_counter()
            last = _after(late, proxy, page, devtools)
            rate = (late - early) / (time.perf_counter() - began)
        what = f"{TOPICS} topics, {number(late)} updates"
        return [
            Line(self.name, f"{what}: DOM nodes", f"{last.nodes:.0f}", _beside(last.nodes, first.nodes, early), "within 5 %"),
            Line(
                self.name, f"{what}: JS heap", f"{last.heap / 1e6:.2f} MB",
                _beside(last.heap / 1e6, first.heap / 1e6, early, 2), "within 5 %",
            ),
            Line(
                self.name, f"{what}: event listeners", f"{last.listeners:.0f}",
                _beside(last.listeners, first.listeners, early),
            ),
            Line(self.name, f"{what}: as fast as they are shown", f"{rate:.0f}/s", f"{proxy.size / 1e3:.1f} kB each"),
        ]  # fmt: skip


def _beside(late: float, early: float, updates: int, digits: int = 0) -> str:
    return f"{late / early - 1:+.1%} since {updates} ({early:.{digits}f})"


@contextmanager
def _page(url: str) -> Iterator[tuple[Page, CDPSession]]:
    """Open the page in the machine's Chromium."""
    from playwright.sync_api import sync_playwright  # imported here, so that only this row needs it

    program = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if program is None:
        raise BenchError("chromium is not installed")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        try:
            page = browser.new_page()
            page.goto(url)
            devtools = page.context.new_cdp_session(page)
            devtools.send("HeapProfiler.enable")
            devtools.send("Performance.enable")
            yield page, devtools
        finally:
            browser.close()


def _after(updates: int, proxy: _Proxy, page: Page, devtools: CDPSession) -> BrowserMemory:
    """Wait until the page has shown this many updates in all, and return what it holds.

    Every update changes something, so fewer changes than updates raise BenchError.
    """
    proxy.allow(updates)
    changes, changed = 0.0, time.monotonic()
    while True:
        page.wait_for_timeout(1000)
        before, changes = changes, page.evaluate("window.benchChanges")
        if changes - before >= _QUIET:
            changed = time.monotonic()
        elif proxy.sent >= updates and changes >= updates:
            break
        if time.monotonic() - changed > _STUCK:
            raise BenchError(f"{proxy.sent} of {updates} updates were sent, and the page changed {changes:.0f} times")
    say(f"{updates} updates in {changes:.0f} changes")
    for _ in range(2):  # the second collects what finalizers of the first released
        devtools.send("HeapProfiler.collectGarbage")
    metrics = {one["name"]: one["value"] for one in devtools.send("Performance.getMetrics")["metrics"]}
    return BrowserMemory(metrics["Nodes"], metrics["JSHeapUsedSize"], metrics["JSEventListeners"])


def _busy(cluster: AdminCluster, chance: random.Random, turn: int) -> None:
    """Publish to some topics, and pause and unpause a channel, so that no two moments are alike."""
    for topic in chance.sample(cluster.topics, TOPICS // 10):
        chance.choice(cluster.nodes).post(f"/mpub?topic={topic}", b"\n".join([b"x"] * chance.randrange(1, 100)))
    paused = "pause" if turn % 4 == 0 else "unpause"
    cluster.nodes[0].create_all([f"/channel/{paused}?topic={cluster.topics[0]}&channel={CHANNEL}"])


class _Proxy:
    """The proxy between browser and nsqadmin that repeats events; see the head of this file."""

    def __init__(self, admin: Server) -> None:
        self.sent = 0  # events sent so far
        self._admin = (admin.host, admin.ports["HTTP"])
        self._moments: list[bytes] = []  # the different events, at most _MOMENTS
        self._allowed = 0  # events that may be sent in all
        self._changed = threading.Condition()  # guards _allowed
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                proxy._hand_on(self)

            def log_message(self, *anything: object) -> None:
                pass

        self._server = ThreadingHTTPServer((admin.host, 0), Handler)
        self._server.daemon_threads = True  # a thread may wait forever, since its page stays open
        self.address = f"{admin.host}:{self._server.server_port}"

    def serve(self) -> None:
        """Serve requests until the proxy is closed."""
        self._server.serve_forever()

    def close(self) -> None:
        """Stop serving and close the socket."""
        self._server.shutdown()
        self._server.server_close()

    def allow(self, events: int) -> None:
        """Allow this number of events to be sent in all."""
        with self._changed:
            self._allowed = events
            self._changed.notify_all()

    @property
    def size(self) -> float:
        """Return the mean size of an event in bytes."""
        return sum(map(len, self._moments)) / max(1, len(self._moments))

    def _hand_on(self, asked: BaseHTTPRequestHandler) -> None:
        connection = http.client.HTTPConnection(*self._admin, timeout=_TIMEOUT)
        connection.request("GET", asked.path, headers={"Accept": asked.headers.get("Accept", "*/*")})
        answer = connection.getresponse()
        streaming = answer.headers.get_content_type() == _EVENT_STREAM
        content = b"" if streaming else answer.read()
        asked.send_response(answer.status)
        for name, value in answer.getheaders():
            if name.lower() not in ("connection", "content-length", "transfer-encoding", "date", "server"):
                asked.send_header(name, value)
        asked.send_header(*(("Connection", "close") if streaming else ("Content-Length", str(len(content)))))
        asked.end_headers()
        try:
            asked.wfile.write(content)
            if streaming:
                self._stream(answer, asked)
        except (BrokenPipeError, ConnectionResetError):
            pass  # the browser closed the page
        connection.close()

    def _stream(self, answer: http.client.HTTPResponse, asked: BaseHTTPRequestHandler) -> None:
        """Forward real events until there are _MOMENTS of them, then repeat those; send no more than are allowed."""
        coming = _events(answer)
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self.sent < self._allowed)
            if len(self._moments) < _MOMENTS:
                self._moments.append(next(coming))
            asked.wfile.write(self._moments[self.sent % _MOMENTS])
            self.sent += 1


def _events(answer: http.client.HTTPResponse) -> Iterator[bytes]:
    """Yield the stream's events that have data."""
    lines: list[bytes] = []
    for line in answer:
        lines.append(line)
        if line == b"\n":
            if any(one.startswith(b"data") for one in lines):
                yield b"".join(lines)
            lines = []


@contextmanager
def _proxy(admin: Server) -> Iterator[_Proxy]:
    proxy = _Proxy(admin)
    thread = threading.Thread(target=proxy.serve)
    thread.start()
    try:
        yield proxy
    finally:
        proxy.close()
        thread.join()

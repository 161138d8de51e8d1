"""A cluster for a bad night: three nodes that work, one of them behind a network that a test can cut, and two nsqadmin.

Both nsqadmin have the same nodes. A page of the first one is open while something breaks; pages of the second one are opened
afterwards. With the environment variable PENSTOCK_PICTURES=DIR, each situation leaves a picture of its page there.
"""

import ctypes
import os
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import httpx
from playwright.sync_api import Browser, Page, expect

from bench.background import in_background
from penstock.client import Consumer, Message
from tests.admin.conftest import nsqadmin
from tests.daemons import Daemon, eventually, nsqd, post, publish

WAIT = 60_000  # ms
FAST = ("-alarm-interval", "1s", "-alarm", "backlog-growing.minutes=0.5")
# the disk and the load of the machine are no part of these nights
QUIET = ("-alarm", "disk-low=off", "-alarm", "disk-days=off", "-alarm", "sync-slow=off")
PICTURES = os.environ.get("PENSTOCK_PICTURES", "")
NEW_HOSTNAME = 0x04000000  # CLONE_NEWUTS of unshare(2)


class Network:
    """A TCP proxy in front of a node. While it is cut, it swallows what both sides send, as a firewall does."""

    def __init__(self) -> None:
        self.target = ""  # host:port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._whole = threading.Event()
        self._whole.set()
        self._sockets: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def port(self) -> int:
        return int(self._listener.getsockname()[1])

    def cut(self) -> None:
        self._whole.clear()

    def repair(self) -> None:
        """Let new connections pass. Those that were cut are closed."""
        self._whole.set()
        for one in self._sockets:
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._listener.close()
        self.repair()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                self._sockets.append(client)
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        if not self._whole.wait(600):
            return
        host, _, port = self.target.rpartition(":")
        with suppress(OSError), client, socket.create_connection((host, int(port))) as node:
            self._sockets.append(node)
            back = threading.Thread(target=self._pump, args=(node, client), daemon=True)
            back.start()
            self._pump(client, node)
            back.join()

    def _pump(self, source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                if self._whole.is_set():
                    target.sendall(data)
            target.shutdown(socket.SHUT_WR)


@dataclass(slots=True)
class Night:
    """The cluster. `watched` is the nsqadmin with an open page, `unwatched` that without one."""

    directory: Path
    chrome: Browser
    stack: ExitStack  # ends what is started later
    lookupd: Daemon
    nodes: list[Daemon]  # the last one is behind the network
    network: Network
    watched: Daemon
    unwatched: Daemon

    def address(self, number: int) -> str:
        """The host:port by which nsqadmin knows a node."""
        return f"127.0.0.1:{self.network.port}" if number == 2 else self.nodes[number].http

    def channel(self, topic: str, name: str, each: int = 0) -> None:
        """Create the channel on all nodes, with `each` messages on each."""
        for node in self.nodes:
            post(node, "/topic/create", topic=topic)
            post(node, "/channel/create", topic=topic, channel=name)
            if each:
                publish(node, topic, *orders(each))
        lookup = f"http://{self.lookupd.http}/lookup?topic={topic}"  # nodes register it a moment later
        eventually(lambda: len(httpx.get(lookup).json().get("producers", ())) == 3)  # and consumers ask once a minute

    def delete(self, topic: str) -> None:
        for daemon in (*self.nodes, self.lookupd):
            post(daemon, "/topic/delete", topic=topic)

    @contextmanager
    def opened(self, path: str = "/", admin: Daemon | None = None) -> Iterator[Page]:
        """A page of `watched`, or of another nsqadmin."""
        with opened(self.chrome, admin or self.watched, path) as page:
            yield page

    @contextmanager
    def fresh(self, path: str = "/") -> Iterator[Page]:
        """A page of `unwatched`, opened for the first time."""
        with self.opened(path, self.unwatched) as page:
            yield page

    def until_both(self, rule: str, is_raised: bool = True) -> None:
        for admin in (self.watched, self.unwatched):
            eventually(lambda admin=admin: (rule in rules(admin)) is is_raised)  # type: ignore[misc]


def orders(count: int) -> list[str]:
    return [f'{{"order": {number}}}' for number in range(count)]


def rules(admin: Daemon) -> set[str]:
    """The rules of which there are alarms. This is no page."""
    found = httpx.get(f"http://{admin.http}/api/alarms", timeout=20).json()["alarms"]
    return {one["rule"] for one in found}


@contextmanager
def opened(chrome: Browser, admin: Daemon, path: str = "/") -> Iterator[Page]:
    """A page that updates itself when the block begins."""
    context = chrome.new_context(viewport={"width": 1280, "height": 800}, color_scheme="light", bypass_csp=True)
    try:
        page = context.new_page()
        page.goto(f"http://{admin.http}{path}")
        page.wait_for_selector("#live[data-htmx-powered]", state="attached", timeout=WAIT)
        yield page
    finally:
        context.close()


@contextmanager
def a_night(directory: Path, chrome: Browser) -> Iterator[Night]:
    with ExitStack() as stack:
        lookupd = stack.enter_context(Daemon("nsqlookupd", preexec=renamed("nsqlookupd")))
        network = Network()
        stack.callback(network.close)
        nodes = [stack.enter_context(_node(directory, number, lookupd, network)) for number in range(3)]
        network.target = nodes[2].http
        eventually(lambda: len(httpx.get(f"http://{lookupd.http}/nodes").json()["producers"]) == 3)
        admins = [stack.enter_context(an_nsqadmin(lookupd, directory / name)) for name in ("watched", "unwatched")]
        yield Night(directory, chrome, stack, lookupd, nodes, network, *admins)


def _node(directory: Path, number: int, lookupd: Daemon, network: Network) -> Daemon:
    address = ("-broadcast-address", "127.0.0.1", "-broadcast-http-port", str(network.port)) if number == 2 else ()
    flags = ("-node-id", str(number), "-lookupd-tcp-address", lookupd.tcp, "-max-attempts", "payments=3", *address)
    return nsqd(directory / str(number), *flags, preexec=renamed(f"nsqd-{number + 1}"))


def an_nsqadmin(lookupd: Daemon, state: Path, *flags: str) -> Daemon:
    """An nsqadmin that checks every second, with its state in this directory."""
    state.mkdir(exist_ok=True)
    return nsqadmin("-lookupd-http-address", lookupd.http, "-state-dir", str(state), *FAST, *QUIET, *flags)


def renamed(name: str) -> Callable[[], None] | None:
    """Give a process a host name of its own, so that pictures do not show that of the machine; only the superuser can."""
    if not PICTURES or os.geteuid() != 0:
        return None

    def rename() -> None:
        if ctypes.CDLL(None).unshare(NEW_HOSTNAME) == 0:
            socket.sethostname(name)

    return rename


@contextmanager
def work(
    lookupd: Daemon, topic: str, channel: str, on_message: Callable[[Message], None], pause: float = 0.0
) -> Iterator[None]:
    """A consumer that calls `on_message` after a pause of `pause` s for each message, until the block ends."""

    def run(is_over: threading.Event) -> None:
        with Consumer(topic, channel, lookupd_addresses=[lookupd.http], max_in_flight=9) as consumer:
            while not is_over.is_set():
                for message in consumer.poll(0.1):
                    if not is_over.wait(pause):
                        on_message(message)

    with in_background(run):
        yield


def fails(message: Message) -> None:
    """Requeue it at once, as a consumer does whose work fails."""
    message.requeue(0)


@contextmanager
def producer(nodes: list[Daemon], topic: str, per_second: int) -> Iterator[None]:
    """Publish to all nodes that answer, until the block ends."""

    def run(is_over: threading.Event) -> None:
        while not is_over.wait(1):
            for node in nodes:
                with suppress(httpx.HTTPError):
                    publish(node, topic, *orders(per_second))

    with in_background(run):
        yield


def says(page: Page, *words: str, within: str = "main") -> None:
    for one in words:
        expect(page.locator(within)).to_contain_text(one, timeout=WAIT)


def picture(page: Page, name: str) -> None:
    if not PICTURES:
        return
    directory = Path(PICTURES)
    directory.mkdir(parents=True, exist_ok=True)
    page.wait_for_timeout(3000)  # the charts and the rates of a fresh page
    page.screenshot(path=directory / f"{name}.png")

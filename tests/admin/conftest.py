"""Real and fake clusters, and nsqadmin for them."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import greenstalk
import httpx
import pytest

from tests.admin.browsers import browser
from tests.admin.near_nodes import Response, near
from tests.admin.near_nodes import _nearby as _nearby
from tests.daemons import Daemon, eventually, nsqd, post, publish
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
        publish(self.nodes[node], topic, *bodies)

    def worker(self, tube: str, node: int = 0) -> greenstalk.Client[str]:
        return greenstalk.Client(self._address(node, "BEANSTALK"), use=tube, watch=tube)

    def disque(self, node: int = 0) -> Disque:
        return Disque(self._address(node, "DISQUE"))

    def _address(self, node: int, name: str) -> tuple[str, int]:
        host, _, port = self.nodes[node].wait_for_line(f"{name}: listening on").split()[-1].rpartition(":")
        return host, int(port)

    def channel(self, topic: str, name: str) -> None:
        for node in self.nodes:
            post(node, "/topic/create", topic=topic)
            post(node, "/channel/create", topic=topic, channel=name)
        asked = {"topic": topic}
        eventually(lambda: len(httpx.get(f"http://{self.lookupd.http}/lookup", params=asked).json()["producers"]) == 2)


def nsqadmin(*flags: str) -> Daemon:
    """Without the address of TCP, which it has not."""
    daemon = Daemon("nsqadmin", *flags, listens=("HTTP",))
    place = daemon._command.index("-tcp-address")
    del daemon._command[place : place + 2]
    return daemon


@contextmanager
def a_cluster(directory: Path, *admin_flags: str) -> Iterator[Cluster]:
    with Daemon("nsqlookupd") as lookupd:
        flags = ("-lookupd-tcp-address", lookupd.tcp, "-e2e-processing-latency-percentile", "0.5")
        more = ("-beanstalk-address", "127.0.0.1:0", "-disque-address", "127.0.0.1:0", "-retention", "1h")
        with (
            nsqd(directory / "1", *flags, *more, "-node-id", "1") as one,
            nsqd(directory / "2", *flags, *more, "-node-id", "2") as two,
            nsqadmin("-lookupd-http-address", lookupd.http, *admin_flags) as admin,
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


def json_answer(value: object) -> tuple[int, bytes]:
    return 200, json.dumps(value).encode()


@contextmanager
def a_node(answers: Callable[[str], object] = lambda path: None, **more: Any) -> Iterator[str]:
    """A node, or an nsqlookupd that names it, with topic t and its channel c. `more`: as for `near`.

    `answers` may return another response to a path: a status and content, or an object, which is sent as JSON.
    """
    topics = {"topics": [{"topic_name": "t", "channels": [{"channel_name": "c"}]}], "messages": [], "total": 3}

    def answer(path: str) -> Response | Awaitable[Response]:
        own = answers(path)
        if own is None:
            here = {
                "broadcast_address": "127.0.0.1",
                "http_port": port,
                "tcp_port": 1,
                "hostname": "n",
                "topics": ["t"],
            }
            lists = topics | {"producers": [here], "channels": ["c"], "names": ["t"]}
            own = here if path.startswith("/info") else lists
        return own if isinstance(own, tuple | Awaitable) else json_answer(own)

    with near(answer, **more) as address:
        port = int(address.rpartition(":")[2])
        yield address

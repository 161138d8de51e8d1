"""The page of a channel, of nodes that tests make up: what an operator sees first when something is broken."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest

from admin.series import NAMES
from tests.admin.asking import OURS, browser, make
from tests.admin.conftest import told, upstream

pytestmark = pytest.mark.process
LONG = "x" * 300
T0 = 1_800_000_000


class FakeNode:
    """A node with the channel poison/worker, ours or an original one."""

    def __init__(self, name: str, is_penstock: bool = True) -> None:
        self.name, self.is_penstock, self.port = name, is_penstock, 0
        self.counts: dict[str, Any] = {"depth": 4, "message_count": 100, "requeue_count": 7, "timeout_count": 0}
        self.client = {
            "hostname": LONG,
            "user_agent": LONG,
            "remote_address": "1.2.3.4:5",
            "finish_count": 3,
            "requeue_count": 9,
        }
        self.hour = {"step": 10, "from": T0} | {name: [1] for name in NAMES} | {"requeued": [3], "timed_out": [0]}
        self.change: int | None = None  # of the backlog, in 300 s
        self.asked: list[str] = []

    def answer(self, path: str) -> tuple[int, bytes]:
        self.asked.append(path)
        asked = urlsplit(path)
        if asked.path == "/info":
            return told({"broadcast_address": "127.0.0.1", "http_port": self.port, "hostname": self.name})
        if asked.path == "/stats":
            channel = {"channel_name": "worker", "clients": [self.client]} | self.counts
            topic = {"topic_name": "poison", "message_count": self.counts["message_count"], "channels": [channel]}
            return told({"topics": [topic]})
        if not self.is_penstock:
            return 404, b"{}"
        if asked.path == "/topic/series":
            channel = parse_qs(asked.query).get("channel", [""])[0]
            return told({"topic": "poison", "channel": channel, "hour": self.hour, "day": None})
        if asked.path == "/topic/ages":
            ages = {"topic": 0, "channels": {"worker": T0 * 10**9}, "buried": {"worker": 66}}
            return told(ages | {"changes": {"worker": [self.change, 300]} if self.change is not None else {}})
        if asked.path == "/topics/rows":
            backlogs = [
                {"channel": "worker", "depth": self.counts["depth"], "change": self.change, "seconds": 300},
                {"channel": "fast", "depth": 2, "change": -9000, "seconds": 300},
            ]
            return told({"topics": [{"topic_name": "poison", "depth": 6, "held": 6, "backlogs": backlogs}]})
        if asked.path == "/topics/figures":
            return told({"totals": {}, "names": ["poison"], "columns": {}})
        return told({})


@contextmanager
def nodes(*fakes: FakeNode) -> Iterator[tuple[str, ...]]:
    with ExitStack() as stack:
        addresses = tuple(stack.enter_context(upstream(fake.answer)) for fake in fakes)
        for fake, address in zip(fakes, addresses, strict=True):
            fake.port = int(address.rpartition(":")[2])
        yield addresses


def open_page(work: Callable[[httpx.AsyncClient], Awaitable[None]], *fakes: FakeNode) -> None:
    async def run(addresses: tuple[str, ...]) -> None:
        async with browser(make(nsqd_http_address=addresses), **OURS) as client:
            await work(client)

    with nodes(*fakes) as addresses:
        asyncio.run(run(addresses))


def figures(page: str) -> dict[str, str]:
    return dict(re.findall(r"<dt>([^<]*)</dt><dd[^>]*>([^<]*)</dd>", page))


def test_a_channel_whose_every_message_fails_does_not_look_healthy() -> None:
    """D4 and D5: 66 buried messages were nowhere on the page, and burying counted as leaving."""
    node = FakeNode("a")
    node.counts |= {"buried_count": 66, "depth": 0}

    async def work(client: httpx.AsyncClient) -> None:
        page = (await client.get("/topics/poison/worker")).text
        assert figures(page)["Buried"] == "66"
        assert figures(page)["Finished/s"] == "0.1"  # in the latest step: there was no look before
        assert figures(page)["Failure share, 5 min"] == "75 %"
        assert '<a href="/messages/poison/worker?state=buried">66 buried</a>' in page
        assert 'data-series="/series/poison/worker"' in page
        node.counts |= {"buried_count": 166, "message_count": 200, "requeue_count": 207}
        told = figures(page)
        for _ in range(200):  # until the first answer is too old to serve
            if told["Buried"] == "166":
                break
            await asyncio.sleep(0.2)
            told = figures((await client.get("/topics/poison/worker")).text)
        assert (told["Buried"], told["Finished/s"]) == ("166", "0.0")
        assert float(told["Requeued/s"]) > float(told["Published/s"]) > 0

    open_page(work, node)


def test_original_nodes_have_a_page_without_what_they_do_not_tell() -> None:
    async def work(client: httpx.AsyncClient) -> None:
        page = (await client.get("/topics/poison/worker")).text
        assert figures(page).keys() == {
            "Depth", "In flight", "Deferred", "Published/s", "Finished/s", "Requeued/s", "Timed out/s",
            "Time to drain", "Clients",
        }  # fmt: skip
        assert "/messages/" not in page
        assert "<figure" not in page
        assert "Buried" not in page

    open_page(work, FakeNode("go", is_penstock=False))


def test_each_node_has_a_row_and_one_of_another_kind_says_so() -> None:
    ours = FakeNode("a")
    ours.counts |= {"buried_count": 66, "paused": True}

    async def work(client: httpx.AsyncClient) -> None:
        page = (await client.get("/topics/poison/worker")).text
        cells = re.findall(r'data-label="Buried" class="n">(?:<a [^>]*>)?([^<]*)<', page)
        assert sorted(cells) == ["-", "66", "66"]  # of all nodes, too
        assert "Paused on 1 of 2 nodes." in page
        assert f"/messages/poison/worker?node=127.0.0.1%3A{ours.port}&amp;state=buried" in page

    open_page(work, ours, FakeNode("go", is_penstock=False))


def test_a_client_with_long_names_is_cut_and_has_a_share_of_failures() -> None:
    """D9: one such client made the page 5,408 px wide."""

    async def work(client: httpx.AsyncClient) -> None:
        page = (await client.get("/topics/poison/worker")).text
        assert f'<span class="cut" title="{LONG} 1.2.3.4:5">' in page
        assert f'<span class="cut" title="{LONG}">' in page
        assert ">75 %</td>" in page
        exported = (await client.get("/topics/poison/worker?format=csv")).text
        assert LONG in exported

    open_page(work, FakeNode("a"))


def drains(page: str) -> set[tuple[bool, str]]:
    """The times to drain on a page, and whether each is marked as bad."""
    cells = re.findall(r'data-label="Time to drain"([^>]*)>([^<]*)<', page)
    cells += re.findall(r"<dt>Time to drain</dt><dd([^>]*)>([^<]*)<", page)
    return {("bad" in attributes, words) for attributes, words in cells}


@pytest.mark.parametrize(
    ("change", "expected"), [(60, (True, "growing")), (0, (False, "stalled")), (-1, (False, "20.0 min")), (None, None)]
)
def test_the_time_to_drain_is_the_same_on_all_pages(change: int | None, expected: tuple[bool, str] | None) -> None:
    """Topics, Topic and Channel told different times, within four minutes, and one of the three marked what grows."""
    node = FakeNode("a")
    node.change = change

    async def work(client: httpx.AsyncClient) -> None:
        pages = [(await client.get(path)).text for path in ("/", "/topics/poison", "/topics/poison/worker")]
        told = [drains(page) for page in pages]
        if expected is None:  # of the slow channel nothing is known yet, but of the other one
            assert told == [{(False, "66.7 ms")}, {(False, "66.7 ms"), (False, "-")}, {(False, "-")}]
        else:
            assert told == [{expected}] * 3
        asked = [path.partition("?")[0] for path in node.asked]
        assert (asked.count("/topic/ages"), asked.count("/topic/series")) in ((1, 1), (2, 1)), "once for each page"

    open_page(work, node)


def test_the_series_of_a_channel_are_not_those_of_its_topic() -> None:
    node = FakeNode("a")

    async def work(client: httpx.AsyncClient) -> None:
        told = (await client.get("/series/poison/worker")).json()
        assert (told["hour"]["requeued"], told["quarter"]["requeued"], told["day"]) == ([3], [3], None)
        assert any("channel=worker" in path for path in node.asked)
        assert (await client.get("/series/poison")).json()["hour"]["requeued"] == [3]
        assert (await client.get("/topics/poison/nobody")).status_code == 404

    open_page(work, node)

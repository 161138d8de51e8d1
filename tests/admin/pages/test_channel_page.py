"""The page of a channel on fake nodes: the first page that an operator opens when something is broken."""

import asyncio
import re
from contextlib import ExitStack
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx

from admin.nodes.series import NAMES
from tests.admin.asking import visiting
from tests.admin.conftest import a_node
from tests.async_tests import on_asyncio
from tests.cases import each

LONG = "x" * 300
PAGE = "/topics/poison/worker"
T0 = 1_800_000_000


class FakeNode:
    """A node with the channel poison/worker, ours or an original one."""

    def __init__(self, is_penstock: bool = True) -> None:
        self.is_penstock, self.address = is_penstock, ""
        self.counts: dict[str, Any] = {"depth": 4, "message_count": 100, "requeue_count": 7, "timeout_count": 0}
        self.client = {
            "hostname": LONG, "user_agent": LONG, "remote_address": "1.2.3.4:5", "finish_count": 3, "requeue_count": 9,
        }  # fmt: skip
        self.hour = {"step": 10, "from": T0} | {name: [1] for name in NAMES} | {"requeued": [3], "timed_out": [0]}
        self.change: int | None = None  # of the backlog, in 300 s
        self.asked: list[str] = []

    def answer(self, path: str) -> object:
        self.asked.append(path)
        asked = urlsplit(path)
        if asked.path == "/info":
            return None
        if asked.path == "/stats":
            channel = {"channel_name": "worker", "clients": [self.client]} | self.counts
            topic = {"topic_name": "poison", "message_count": self.counts["message_count"], "channels": [channel]}
            return {"topics": [topic]}
        if not self.is_penstock:
            return 404, b"{}"
        if asked.path == "/topic/series":
            channel = parse_qs(asked.query).get("channel", [""])[0]
            return {"topic": "poison", "channel": channel, "hour": self.hour, "day": None}
        if asked.path == "/topic/ages":
            ages = {"topic": 0, "channels": {"worker": T0 * 10**9}, "buried": {"worker": 66}}
            return ages | ({"changes": {"worker": [self.change, 300]}} if self.change is not None else {})
        if asked.path == "/topics/rows":
            slow = {"channel": "worker", "depth": self.counts["depth"], "change": self.change, "seconds": 300}
            fast = {"channel": "fast", "depth": 2, "change": -9000, "seconds": 300}
            return {"topics": [{"topic_name": "poison", "depth": 6, "held": 6, "backlogs": [slow, fast]}]}
        return {"totals": {}, "names": ["poison"], "columns": {}} if asked.path == "/topics/figures" else {}


def at(stack: ExitStack, *fakes: FakeNode) -> httpx.AsyncClient:
    for fake in fakes:
        fake.address = stack.enter_context(a_node(fake.answer))
    return visiting(*(fake.address for fake in fakes))


def figures(page: str) -> dict[str, str]:
    return dict(re.findall(r"<dt>([^<]*)</dt><dd[^>]*>([^<]*)</dd>", page))


@on_asyncio
async def test_a_channel_whose_every_message_fails_does_not_look_healthy() -> None:
    """D4 and D5: 66 buried messages were nowhere on the page, and burying counted as leaving."""
    node = FakeNode()
    node.counts |= {"buried_count": 66, "depth": 0}
    with ExitStack() as stack:
        client = at(stack, node)
        page = (await client.get(PAGE)).text
        assert figures(page)["Buried"] == "66"
        assert figures(page)["Finished/s"] == "0.1"  # in the latest step: there was no look before
        assert figures(page)["Failure share, 5 min"] == "75 %"
        assert '<a href="/messages/poison/worker?state=buried">66 buried</a>' in page
        assert 'data-series="/series/poison/worker"' in page
        # of a client with long names, which made the page 5,408 px wide (D9)
        for words in (
            f'<span class="cut" title="{LONG} 1.2.3.4:5">', f'<span class="cut" title="{LONG}">', ">75 %</td>",
        ):  # fmt: skip
            assert words in page
        assert LONG in (await client.get(f"{PAGE}?format=json")).text
        node.counts |= {"buried_count": 166, "message_count": 200, "requeue_count": 207}
        found = figures(page)
        for _ in range(200):  # until the first answer is too old to serve
            if found["Buried"] == "166":
                break
            await asyncio.sleep(0.2)
            found = figures((await client.get(PAGE)).text)
        assert (found["Buried"], found["Finished/s"]) == ("166", "0.0")
        assert float(found["Requeued/s"]) > float(found["Published/s"]) > 0


@on_asyncio
async def test_original_nodes_have_a_page_without_the_data_that_they_lack() -> None:
    with ExitStack() as stack:
        client = at(stack, FakeNode(is_penstock=False))
        page, topics = (await client.get(PAGE)).text, (await client.get("/?format=json")).json()
    assert [(one["name"], one["depth"], one["channels"]) for one in topics] == [("poison", 4, 1)]
    assert figures(page).keys() == {
        "Depth", "In flight", "Deferred", "Published/s", "Finished/s", "Requeued/s", "Timed out/s", "Time to drain", "Clients",
    }  # fmt: skip
    assert not any(words in page for words in ("/messages/", "<figure", "Buried"))


@on_asyncio
async def test_each_node_has_a_row_and_one_of_another_kind_says_so() -> None:
    penstock = FakeNode()
    penstock.counts |= {"buried_count": 66, "paused": True}
    with ExitStack() as stack:
        page = (await at(stack, penstock, FakeNode(is_penstock=False)).get(PAGE)).text
    cells = re.findall(r'data-label="Buried" class="n">(?:<a [^>]*>)?([^<]*)<', page)
    assert sorted(cells) == ["-", "66", "66"]  # of all nodes, too
    assert "Paused on 1 of 2 nodes." in page
    assert f"/messages/poison/worker?node={penstock.address.replace(':', '%3A')}&amp;state=buried" in page


def drains(page: str) -> set[tuple[bool, str]]:
    """The times to drain on a page, and whether each is marked as bad."""
    cells = re.findall(r'data-label="Time to drain"([^>]*)>([^<]*)<', page)
    cells += re.findall(r"<dt>Time to drain</dt><dd([^>]*)>([^<]*)<", page)
    return {("bad" in attributes, words) for attributes, words in cells}


# of the slow channel nothing is known yet, but of the other one
UNKNOWN = [{(False, "66.7 ms")}, {(False, "66.7 ms"), (False, "-")}, {(False, "-")}]


@each("change, expected", [
    (60, [{(True, "growing")}] * 3), (0, [{(False, "stalled")}] * 3), (-1, [{(False, "20.0 min")}] * 3),
    (None, UNKNOWN),
])  # fmt: skip
@on_asyncio
async def test_the_time_to_drain_is_the_same_on_all_pages(change: int | None, expected: object) -> None:
    """Topics, Topic and Channel found different times, within four minutes, and one of the three marked what grows."""
    node = FakeNode()
    node.change = change
    with ExitStack() as stack:
        client = at(stack, node)
        assert [drains((await client.get(path)).text) for path in ("/", "/topics/poison", PAGE)] == expected
    asked = [path.partition("?")[0] for path in node.asked]
    assert (asked.count("/topic/ages"), asked.count("/topic/series")) in ((1, 1), (2, 1)), "once for each page"


@on_asyncio
async def test_a_channel_and_its_topic_have_different_series() -> None:
    node = FakeNode()
    with ExitStack() as stack:
        client = at(stack, node)
        found = (await client.get("/series/poison/worker")).json()
        assert (found["hour"]["requeued"], found["quarter"]["requeued"], found["day"]) == ([3], [3], None)
        assert any("channel=worker" in path for path in node.asked)
        assert (await client.get("/series/poison")).json()["hour"]["requeued"] == [3]
        assert (await client.get("/topics/poison/nobody")).status_code == 404

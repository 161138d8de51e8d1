"""Problems among 200 topics, and a node that is down, are found by clicks, and without scripts."""

import re
from collections.abc import Iterator
from contextlib import ExitStack, closing
from urllib.parse import quote

import httpx
import pytest
from playwright.sync_api import Browser

from tests.admin.conftest import nsqadmin
from tests.admin.scriptless import Visitor
from tests.admin.usable import assert_usable, obstacles
from tests.daemons import Daemon, eventually, nsqd, post, publish
from tests.requirements import require

pytestmark = pytest.mark.process
TOPICS = [f"service-{number:04}" for number in range(200)]
BURIED, CHANNELLESS, ABANDONED, PAUSED = TOPICS[117], TOPICS[130], TOPICS[151], TOPICS[177]
ALSO_BURIED = TOPICS[-1]
FAST = ("-alarm-interval", "1s")
# the disk and the load of the machine do not matter here
QUIET = ("-alarm", "disk-low=off", "-alarm", "disk-days=off", "-alarm", "sync-slow=off")
TROUBLE = {BURIED, CHANNELLESS, ABANDONED, PAUSED, ALSO_BURIED}


def rules(admin: Daemon) -> set[str]:
    """Return the rules of which there are alarms."""
    found = httpx.get(f"http://{admin.http}/api/alarms", timeout=20).json()["alarms"]
    return {one["rule"] for one in found}


@pytest.fixture(scope="module")
def admin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """An nsqadmin with 200 topics, five of them with alarms, and a node that is down with a message of one of them."""
    directory = tmp_path_factory.mktemp("many")
    with ExitStack() as stack:
        node = stack.enter_context(nsqd(directory / "1", "-node-id", "1"))
        dead = stack.enter_context(nsqd(directory / "2", "-node-id", "2"))
        _fill(node)
        post(dead, "/topic/create", topic=ABANDONED)
        post(dead, "/channel/create", topic=ABANDONED, channel="worker")
        publish(dead, ABANDONED, "x")
        static = ("-nsqd-http-address", node.http, "-nsqd-http-address", dead.http)
        flags = (*static, *FAST, *QUIET, "-alarm", "paused.minutes=0")
        found = stack.enter_context(nsqadmin(*flags))
        eventually(lambda: httpx.get(f"http://{found.http}/nodes", timeout=20).text.count('"Depth" class="n">') == 2)
        dead.kill()  # it is down after ten seconds, because the configuration names it
        wanted = {"node-down", "buried", "topic-without-channel", "channel-without-consumer", "paused"}
        eventually(lambda: wanted <= rules(found))
        yield found


def _fill(node: Daemon) -> None:
    with httpx.Client(base_url=f"http://{node.http}") as client:
        for name in TOPICS:
            client.post("/topic/create", params={"topic": name}).raise_for_status()
            if name != CHANNELLESS:
                client.post("/channel/create", params={"topic": name, "channel": "worker"}).raise_for_status()
    for name in (BURIED, ALSO_BURIED):
        publish(node, name, "a", "b")
        post(node, "/channel/messages/bury", topic=name, channel="worker", state="ready", count="2")
    publish(node, CHANNELLESS, "x")
    publish(node, ABANDONED, *["x"] * 50)
    post(node, "/channel/pause", topic=PAUSED, channel="worker")


def dead_node(admin: Daemon) -> str:
    (found,) = (
        one["subject"]
        for one in httpx.get(f"http://{admin.http}/api/alarms", timeout=20).json()["alarms"]
        if one["rule"] == "node-down"
    )
    return str(found)


def pages(admin: Daemon) -> list[str]:
    node = quote(dead_node(admin), safe="")
    return ["/", "/alarms", "/nodes", f"/nodes/{node}", f"/topics/{BURIED}", f"/topics/{ABANDONED}/worker",
            f"/messages/{BURIED}/worker?state=buried", f"/configuration/{BURIED}"]  # fmt: skip


@pytest.fixture
def visitor(admin: Daemon) -> Visitor:
    return Visitor(f"http://{admin.http}")


def test_an_operator_finds_all_problems_in_two_clicks(visitor: Visitor) -> None:
    topics = re.findall(r'<tr id="t-([^"]+)"', visitor.open("/").html)
    assert set(topics[: len(TROUBLE)]) == TROUBLE, "topics with alarms are the first ones, without a click"
    kinds = [link for link, (to, *_) in visitor.page.links.items() if to.startswith("/alarms?rule=")]
    found: set[str] = set()
    for kind in kinds:
        for subject in subjects(visitor.open("/").follow(kind)):
            assert visitor.follow(subject).status == 200
            found.update(one for one in TROUBLE if one in visitor.url)
            visitor.open("/").follow(kind)
    assert found == TROUBLE


def subjects(visitor: Visitor) -> list[str]:
    return re.findall(r'data-label="Resource">.*?<a [^>]*>([^<]+)</a>', visitor.html, re.DOTALL)


def test_a_page_shows_its_own_alarms_and_counts_the_others(admin: Daemon) -> None:
    def banners(path: str) -> str:
        text = httpx.get(f"http://{admin.http}{path}", timeout=20).text
        return text[text.index('id="live"') : text.index('<dl class="figures">')]

    for path in (f"/topics/{BURIED}/worker", f"/topics/{BURIED}"):
        assert "Buried messages</a> for <time" in banners(path)
        assert "What to do: " in banners(path)
        assert "Other alarms: " in banners(path)
        assert "Channel without consumer" not in banners(path), "that is of another topic"
        assert PAUSED not in banners(path)
    assert PAUSED in banners(f"/topics/{PAUSED}/worker")
    assert "What to do" not in banners(f"/topics/{TOPICS[0]}")


def test_the_pages_of_a_bad_night_can_be_read_without_scripts(visitor: Visitor, admin: Daemon) -> None:
    for path in pages(admin):
        visitor.open(path)
        for words in ("Node down:", dead_node(admin), "1 message"):
            assert words in visitor.text, path
        assert obstacles(visitor.html) == [], path
    visitor.open("/")
    for words in ("Data from", "1 of 2 nodes", *TROUBLE):
        assert words in visitor.text


@pytest.mark.campaign
def test_the_pages_of_a_bad_night_fit_and_can_be_used_by_all(chrome: Browser, admin: Daemon) -> None:
    require("node")
    with closing(chrome.new_context(bypass_csp=True)) as context:  # for axe
        page = context.new_page()
        for path in pages(admin):
            assert_usable(page, f"http://{admin.http}{path}")

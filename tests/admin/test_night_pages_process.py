"""Trouble among 500 topics, and a dead node: it is found by clicks alone, without scripts, by keyboard, and by everybody."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing
from urllib.parse import quote

import httpx
import pytest
from playwright.sync_api import Browser, Page, expect

from tests.admin.conftest import nsqadmin
from tests.admin.night import FAST, QUIET, WAIT, says
from tests.admin.usable import assert_usable
from tests.daemons import Daemon, eventually, nsqd, post, publish
from tests.requirements import require

pytestmark = pytest.mark.process
TOPICS = [f"service-{number:04}" for number in range(500)]
BURIED, CHANNELLESS, ABANDONED, PAUSED = TOPICS[117], TOPICS[211], TOPICS[303], TOPICS[455]
ALSO_BURIED = TOPICS[-1]
TROUBLE = {BURIED, CHANNELLESS, ABANDONED, PAUSED, ALSO_BURIED}
MOST_CLICKS = 3


@pytest.fixture(scope="module")
def admin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """An nsqadmin with 500 topics, five of them in trouble, and a node that died with a message of one of them."""
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
        eventually(lambda: wanted <= _rules(found))
        yield found


@pytest.fixture
def page(chrome: Browser) -> Iterator[Page]:
    context = chrome.new_context(viewport={"width": 1280, "height": 800})
    yield context.new_page()
    context.close()


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


def _rules(admin: Daemon) -> set[str]:
    found = httpx.get(f"http://{admin.http}/api/alarms", timeout=20).json()["alarms"]
    return {one["rule"] for one in found}


def dead_node(admin: Daemon) -> str:
    (found,) = (
        one["subject"]
        for one in httpx.get(f"http://{admin.http}/api/alarms", timeout=20).json()["alarms"]
        if one["rule"] == "node-down"
    )
    return str(found)


def pages(admin: Daemon) -> list[str]:
    """The pages of a bad night."""
    node = quote(dead_node(admin), safe="")
    return ["/", "/alarms", "/nodes", f"/nodes/{node}", f"/topics/{BURIED}", f"/topics/{ABANDONED}/worker",
            f"/messages/{BURIED}/worker?state=buried", f"/configuration/{BURIED}"]  # fmt: skip


def test_an_operator_finds_all_trouble_by_clicks_alone(page: Page, admin: Daemon) -> None:
    page.goto(f"http://{admin.http}/")
    rows = page.locator("#live table tbody tr")
    first = [rows.nth(number).locator("th a").first.inner_text() for number in range(len(TROUBLE))]
    assert set(first) == TROUBLE, "the topics in trouble are the first ones, without a click"
    kinds = page.locator("#live .banner a[href^='/alarms?rule=']").all_inner_texts()
    found: set[str] = set()
    for kind in kinds:
        subjects = subjects_of(page, admin, kind)
        for subject in subjects:
            if any(one in subject for one in found):  # clicked on already, for another kind of alarm
                continue
            page.goto(f"http://{admin.http}/")
            clicks = 0
            for link in (kind, subject):
                page.click(f"main a:text-is('{link}')")
                clicks += 1
            expect(page.locator("h1")).to_be_visible(timeout=WAIT)
            assert clicks <= MOST_CLICKS
            found.update(one for one in TROUBLE if one in page.url)
    assert found == TROUBLE


def test_a_page_tells_of_its_own_alarms_and_counts_the_others(admin: Daemon) -> None:
    def banners(path: str) -> str:
        text = httpx.get(f"http://{admin.http}{path}", timeout=20).text
        return text[text.index('id="live"') : text.index('<dl class="figures">')]

    for path in (f"/topics/{BURIED}/worker", f"/topics/{BURIED}"):
        assert "Buried messages</a> since" in banners(path)
        assert "What to do: " in banners(path)
        assert "Other alarms: " in banners(path)
        assert "Channel without consumer" not in banners(path), "that is of another topic"
        assert PAUSED not in banners(path)
    assert PAUSED in banners(f"/topics/{PAUSED}/worker")
    assert "What to do" not in banners(f"/topics/{TOPICS[0]}")


def subjects_of(page: Page, admin: Daemon, kind: str) -> list[str]:
    page.goto(f"http://{admin.http}/")
    page.click(f"main a:text-is('{kind}')")
    page.wait_for_selector("th[data-label=Subject]", timeout=WAIT)
    return page.locator("th[data-label=Subject] a").all_inner_texts()


def test_the_pages_of_a_bad_night_fit_and_can_be_used_by_all(chrome: Browser, admin: Daemon) -> None:
    require("node")
    with closing(chrome.new_context(bypass_csp=True)) as context:  # for axe
        page = context.new_page()
        for path in pages(admin):
            assert_usable(page, f"http://{admin.http}{path}")


def test_the_pages_of_a_bad_night_can_be_read_without_scripts(chrome: Browser, admin: Daemon) -> None:
    with closing(chrome.new_context(java_script_enabled=False)) as context:
        page = context.new_page()
        for path in pages(admin):
            page.goto(f"http://{admin.http}{path}")
            says(page, "Node down:", dead_node(admin), "1 message")
        page.goto(f"http://{admin.http}/")
        says(page, "Data from", "1 of 2 nodes", *TROUBLE)


def test_trouble_is_found_by_keyboard_alone(page: Page, admin: Daemon) -> None:
    page.goto(f"http://{admin.http}/")
    follow(page, "Buried messages (2)")
    page.wait_for_url("**/alarms?rule=buried")
    follow(page, f"{BURIED}/worker")
    page.wait_for_url(f"**/messages/{BURIED}/worker?state=buried")
    says(page, "2 buried")


def follow(page: Page, words: str) -> None:
    """Go to a link with the Tab key, and press Enter."""
    for _ in range(100):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.innerText") == words:
            page.keyboard.press("Enter")
            return
    raise AssertionError(f"{words} is not among the first hundred places that Tab reaches")

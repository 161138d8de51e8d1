"""The pages in a real browser: no error in its console, nothing that the policy forbids, nothing too wide, no fault by axe."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Browser, Page

from tests.admin.conftest import Cluster, nsqadmin
from tests.admin.screenshots import WIDTHS, a_full_cluster, paths
from tests.admin.usable import assert_usable, faults
from tests.daemons import eventually, nsqd
from tests.requirements import require

pytestmark = pytest.mark.process
INLINE = re.compile(
    r"<style[ >]|<script(?![^>]* src=)[^>]*>|<[a-z]+ [^>]*\b(?:style|on[a-z]+)=[\"'][^>]*>"
)  # a policy forbids it
MENU, PUBLISH = ".menu > summary", "summary:has-text('Publish a test')"


@pytest.fixture(scope="module")
def chrome(chrome: Browser) -> Browser:
    require("node")  # which brings axe
    return chrome


@pytest.fixture(scope="module")
def full(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with a_full_cluster(tmp_path_factory.mktemp("full")) as found:
        yield found


@dataclass
class Tab:
    """A page, and what the browser had against it."""

    page: Page
    base: str
    complaints: list[str] = field(default_factory=list)

    def open(self, path: str) -> None:
        self.page.goto(self.base + path)

    def text(self) -> str:
        return self.page.inner_text("main")


@pytest.fixture
def tab(chrome: Browser, full: Cluster) -> Iterator[Tab]:
    context = chrome.new_context()
    found = Tab(context.new_page(), full.url)
    found.page.on(
        "console", lambda line: found.complaints.append(line.text) if line.type in ("error", "warning") else None
    )
    found.page.on("pageerror", lambda error: found.complaints.append(str(error)))
    yield found
    context.close()
    assert [one for one in found.complaints if "status of 4" not in one] == []


def test_every_page_fits_can_be_used_by_all_and_loads_from_here_alone(chrome: Browser, full: Cluster) -> None:
    context = chrome.new_context(bypass_csp=True)  # for axe; the policy is looked at elsewhere
    page = context.new_page()
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    for path in paths(full).values():
        assert_usable(page, full.url + path)
    assert all(url.startswith((full.url, "data:")) for url in asked)
    context.close()


def test_a_refused_form_keeps_what_was_typed_and_has_the_focus(chrome: Browser, full: Cluster) -> None:
    width = min(WIDTHS)
    context = chrome.new_context(viewport={"width": width, "height": 800}, bypass_csp=True)
    page = context.new_page()
    page.goto(f"{full.url}/topics/orders")
    page.click(PUBLISH)
    page.fill("textarea[name=body]", "\n kept <b>")
    page.fill("input[name=delay]", "77")
    page.click("summary:has-text('Headers')")
    page.fill("textarea[name=headers]", "no header")
    page.click("button:text('Publish')")
    page.wait_for_selector("#live h2")
    assert "Invalid header 'no header'" in page.inner_text("[role=alert]")
    for _ in range(2):  # and after the live part has come again
        assert page.input_value("textarea[name=body]") == "\n kept <b>"
        assert page.input_value("input[name=delay]") == "77"
        assert page.input_value("textarea[name=headers]") == "no header"
        assert page.evaluate("document.activeElement.name") == "headers"
        before = page.inner_text("#live tfoot td[data-label=Messages]")
        full.publish("orders", "more")
        page.wait_for_function(
            "was => document.querySelector('#live tfoot td[data-label=Messages]').innerText != was", arg=before
        )
    assert faults(page) == []
    assert page.evaluate("document.documentElement.scrollWidth") == width
    page.goto(f"{full.url}/topics/orders/mail")
    page.click(MENU)
    page.click("summary:has-text('Empty')")
    page.fill(".menu details[open] input[name=confirm]", "wrong")
    page.keyboard.press("Enter")
    page.wait_for_selector("details[open] [aria-invalid=true]:focus")
    assert "Type mail to confirm" in page.inner_text("#problem")
    assert faults(page) == []
    context.close()


def test_no_page_has_what_its_policy_forbids(tab: Tab, full: Cluster) -> None:
    with httpx.Client(base_url=full.url, headers={"Accept": "text/html"}, follow_redirects=True) as client:
        for path in paths(full).values():
            answer = client.get(path)
            policy = answer.headers.get("content-security-policy", "")
            assert policy.startswith("default-src 'none'; script-src 'self'"), path
            assert INLINE.findall(answer.text) == [], path
    for path in ("/", "/topics/orders", "/topics/orders/mail", "/messages/orders/mail?state=ready", "/alarms/rules"):
        tab.open(path)  # what the scripts do is no offence either
        tab.page.wait_for_load_state("load")


def test_what_is_published_is_seen_without_a_reload(tab: Tab, full: Cluster) -> None:
    full.channel("live", "c")
    tab.open("/topics/live")
    marked = "window.marked = true"
    tab.page.evaluate(marked)
    full.publish("live", "a", "b", "c")
    tab.page.wait_for_selector("#live tfoot td[data-label=Messages]:text-is('3')", timeout=30_000)
    assert tab.page.evaluate("window.marked") is True


def test_a_page_lives_though_the_second_script_comes_late(tab: Tab, full: Cluster) -> None:
    tab.page.route("**/hx-sse*", lambda route: (time.sleep(0.5), route.continue_()))
    tab.open("/topics/orders")
    tab.page.wait_for_selector("#live[data-htmx-powered]", state="attached")  # without, nobody listens to SSE


def test_what_a_topic_did_lately_is_drawn_and_listed(tab: Tab, full: Cluster) -> None:
    full.channel("drawn", "c")
    tab.open("/topics/drawn")
    told = f"{full.url}/series/drawn"
    eventually(lambda: (httpx.get(told).json()["hour"] or {}).get("depth"), 30)  # of both nodes, every ten seconds
    full.publish("drawn", *["x"] * 50)
    eventually(lambda: 50 in httpx.get(told).json()["hour"]["depth"], 40)
    tab.open("/topics/drawn")
    tab.page.wait_for_selector("figure canvas")
    tab.page.click("summary:has-text('as a table')")
    assert tab.page.inner_text("figure details tbody tr:first-child td:nth-child(6)") == "50"
    tab.page.set_viewport_size({"width": 375, "height": 800})
    assert tab.page.evaluate("document.documentElement.scrollWidth") == 375


def test_the_page_of_a_channel_draws_it_and_lives_on_around_the_chart(tab: Tab, full: Cluster) -> None:
    full.channel("incident", "c")
    tab.open("/topics/incident/c")
    told = f"{full.url}/series/incident/c"
    eventually(lambda: (httpx.get(told).json()["hour"] or {}).get("buried"), 30)
    full.publish("incident", *["x"] * 50)
    at = f"http://{full.nodes[0].http}/channel/messages/bury?topic=incident&channel=c&state=ready&count=7&reason=bad"
    httpx.post(at).raise_for_status()
    eventually(lambda: 7 in httpx.get(told).json()["hour"]["buried"], 40)
    tab.page.wait_for_selector("figure canvas", timeout=30_000)
    tab.page.evaluate("document.querySelector('figure canvas').marked = true")
    tab.page.wait_for_selector("#live dl.figures dd.bad:text-is('7')", timeout=30_000)
    tab.page.click("summary:has-text('as a table')")
    tab.page.wait_for_selector("figure details tbody tr:first-child td:nth-child(9):text-is('7')", timeout=30_000)
    full.publish("incident", "y")
    tab.page.wait_for_selector("#live tbody tr:nth-child(3) td[data-label=Messages]:text-is('51')", timeout=30_000)
    assert tab.page.evaluate("document.querySelector('figure canvas').marked") is True
    tab.page.click("input[value=quarter]")
    tab.page.wait_for_selector("figure canvas")
    tab.page.set_viewport_size({"width": 375, "height": 800})
    assert tab.page.evaluate("document.documentElement.scrollWidth") == 375


def test_pausing_is_loud_and_deleting_wants_the_name(tab: Tab, full: Cluster) -> None:
    full.channel("paused", "c")
    tab.open("/topics/paused/c")
    tab.page.click(MENU)
    tab.page.click("button:text-is('Pause channel')")
    assert "Paused:" in tab.text()
    tab.page.click(MENU)
    tab.page.click("button:text-is('Unpause channel')")
    assert "Paused:" not in tab.text()
    tab.page.click(MENU)
    tab.page.click("summary:has-text('Delete')")
    tab.page.fill(".menu details[open] input[name=confirm]", "wrong")
    tab.page.click(".menu details[open] button")
    assert "Nothing was changed" in tab.text()
    assert tab.page.is_visible("#problem"), "the menu is open"
    tab.open("/topics/paused/c")
    tab.page.click(MENU)
    tab.page.click("summary:has-text('Delete')")
    tab.page.fill(".menu details[open] input[name=confirm]", "c")
    tab.page.keyboard.press("Enter")
    tab.page.wait_for_url("**/topics/paused")
    eventually(lambda: httpx.get(f"{full.url}/api/topics/paused").json()["channels"] is None)


def test_a_message_is_published_looked_at_and_buried(tab: Tab, full: Cluster) -> None:
    full.channel("looked", "c")
    node = full.nodes[1].http
    tab.open("/topics/looked")
    tab.page.click(PUBLISH)
    tab.page.fill("textarea", '{"a": "<script>alert(1)</script>\N{SNOWMAN}"}')
    tab.page.select_option("select[name=node]", node)
    tab.page.click("button:text('Publish')")
    for _ in range(200):
        tab.open(f"/messages/looked/c?node={node}&state=ready")
        if "1 ready" in tab.text():
            break
        time.sleep(0.1)
    assert "<script>alert(1)</script>\N{SNOWMAN}" in tab.text()
    stats = httpx.get(f"http://{node}/stats?format=json&topic=looked").json()["topics"][0]["channels"][0]
    assert (stats["depth"], stats["in_flight_count"], stats["message_count"]) == (1, 0, 1)
    tab.page.click("button[aria-label='Bury 0']")
    assert "0 ready" in tab.text()
    tab.page.click("nav a:text-is('buried')")
    assert "1 buried" in tab.text()


def test_what_stands_above_a_page_stays_there(tab: Tab, full: Cluster) -> None:
    full.channel("stays", "c")
    httpx.post(f"http://{full.nodes[0].http}/channel/pause?topic=stays&channel=c&by=ann").raise_for_status()
    full.publish("stays", "x")
    tab.open("/topics/stays")
    tab.page.wait_for_selector("text=stays/c by ann")
    full.publish("stays", "y")
    tab.page.wait_for_selector("#live tfoot td[data-label=Messages]:text-is('2')")  # it has come again
    assert "stays/c by ann" in tab.text()


def test_a_page_that_was_not_there_loads_itself_when_it_is(tab: Tab, full: Cluster) -> None:
    tab.open("/topics/newborn")
    assert "Request failed" in tab.text()
    full.channel("newborn", "c")
    tab.page.wait_for_selector("h1:text('Topic newborn')")


def test_by_keyboard_alone(tab: Tab, full: Cluster) -> None:
    full.channel("keys", "c")
    tab.open("/topics/keys")
    for _ in range(60):
        tab.page.keyboard.press("Tab")
        here = tab.page.evaluate("document.activeElement.innerText")
        if here == "Actions":
            tab.page.keyboard.press("Enter")
        elif here == "Pause topic":
            break
    tab.page.keyboard.press("Enter")
    tab.page.wait_for_selector("text=Paused:")
    assert httpx.get(f"{full.url}/api/topics/keys").json()["paused"] is True


def test_a_page_that_stays_open_grows_no_elements(tab: Tab, full: Cluster) -> None:
    tab.open("/")
    tab.page.wait_for_timeout(2500)
    count = "document.getElementsByTagName('*').length"
    before = tab.page.evaluate(count)
    tab.page.wait_for_timeout(6500)
    assert abs(tab.page.evaluate(count) - before) <= 2


# without a browser


@pytest.mark.parametrize("path", ["/topics/orders", "/lookup", "/nodes/x:1", "/messages/orders/mail"])
@pytest.mark.parametrize("headers", [{}, {"Origin": "http://evil.example"}, {"Sec-Fetch-Site": "cross-site"}])
def test_a_form_that_is_not_ours_changes_nothing(full: Cluster, path: str, headers: dict[str, str]) -> None:
    form = {"action": "pause", "topic": "evil", "confirm": "evil"}
    answer = httpx.post(full.url + path, data=form, headers=headers)
    assert answer.status_code == 403
    assert httpx.get(f"{full.url}/api/topics/orders").json()["paused"] is False
    assert "evil" not in httpx.get(f"{full.url}/api/topics").json()["topics"]


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/topics/nope", 404),
        ("/topics/orders/nope", 404),
        ("/topics/%3Cscript%3E", 404),
        ("/messages/orders/mail?node=127.0.0.1:1", 404),  # none of the cluster: nobody makes us ask it
        ("/messages/orders/mail?state=dead", 400),
        ("/nodes/nope:1", 404),
        ("/static/..%2fpages.py", 404),
        ("/static/README.md", 404),
        ("/?page=99999999999&sort=%00&q=%3Cb%3E", 200),
    ],
)
def test_what_is_not_there_is_said(full: Cluster, path: str, status: int) -> None:
    answer = httpx.get(full.url + path)
    assert answer.status_code == status
    assert "Traceback" not in answer.text
    assert "<script>" not in answer.text
    assert "<b>" not in answer.text


def test_a_cluster_that_is_gone_is_a_page_that_says_so(tmp_path: Path) -> None:
    with nsqd(tmp_path) as node, nsqadmin("-nsqd-http-address", node.http) as admin:
        assert httpx.get(f"http://{admin.http}/").status_code == 200
        node.stop()
        eventually(lambda: "Stale: " in httpx.get(f"http://{admin.http}/nodes").text)
        # and its last answer
        assert re.search(f"(no answer from node|Node down:).*{node.http}", httpx.get(f"http://{admin.http}/").text)
        eventually(lambda: httpx.get(f"http://{admin.http}/api/nodes").status_code == 502)
    with nsqadmin("-nsqd-http-address", node.http) as admin:
        answer = httpx.get(f"http://{admin.http}/nodes")
        assert answer.status_code == 502
        assert "No nsqd answered" in answer.text

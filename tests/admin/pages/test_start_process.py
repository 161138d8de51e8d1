"""The pages in a real browser: no error in its console, nothing too wide, no fault by axe; and their HTML."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count
from time import sleep

import httpx
import pytest
from playwright.sync_api import Browser, Page

from admin.output.layout import HERE
from tests.admin.conftest import Cluster
from tests.admin.screenshots import a_full_cluster, paths
from tests.admin.usable import assert_usable, obstacles
from tests.requirements import require

pytestmark = pytest.mark.process
# a policy forbids it
INLINE = re.compile(r"<style[ >]|<script(?![^>]* src=)[^>]*>|<[a-z]+ [^>]*\b(?:style|on[a-z]+)=[\"'][^>]*>")
STATIC = HERE / "static"
# bytes; the largest page has 41,000, all scripts and styles together 194,000
HEAVY_PAGE, HEAVY_STATIC = 45_000, 200_000
PUBLISH = "summary:has-text('Publish a test')"
ELEMENTS = "document.querySelectorAll(':not(.banner, .banner *)').length"  # a slow machine has banners about that
NUMBERS = count()
SOME_PAGES = ("topic", "messages")  # with charts, tables and lists, and forms of most kinds


@pytest.fixture(scope="module")
def chrome(chrome: Browser) -> Browser:
    require("node")  # which brings axe
    return chrome


@pytest.fixture(scope="module")
def full(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with a_full_cluster(tmp_path_factory.mktemp("full")) as found:
        yield found


@pytest.fixture
def fresh() -> str:
    """Return the name of a topic that is not there yet."""
    return f"fresh{next(NUMBERS)}"


@dataclass
class Tab:
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


@pytest.mark.parametrize("names", [SOME_PAGES, pytest.param((), id="all", marks=pytest.mark.campaign)])
def test_every_page_fits_can_be_used_by_all_and_loads_from_here_alone(
    chrome: Browser, full: Cluster, names: tuple[str, ...]
) -> None:
    context = chrome.new_context(bypass_csp=True)  # for axe; the policy is looked at elsewhere
    page = context.new_page()
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    for name, path in paths(full).items():
        if name in names or not names:
            assert_usable(page, full.url + path)
    assert all(url.startswith((full.url, "data:")) for url in asked)
    context.close()


def test_no_page_is_heavy_or_has_what_its_policy_forbids_and_all_controls_can_be_named_and_reached(
    full: Cluster,
) -> None:
    assert sum(path.stat().st_size for path in STATIC.iterdir()) < HEAVY_STATIC
    with httpx.Client(base_url=full.url, headers={"Accept": "text/html"}, follow_redirects=True) as client:
        for path in paths(full).values():
            answer = client.get(path)
            policy = answer.headers.get("content-security-policy", "")
            assert policy.startswith("default-src 'none'; script-src 'self'"), path
            assert INLINE.findall(answer.text) == [], path
            assert len(answer.content) < HEAVY_PAGE, path
            assert obstacles(answer.text) == [], path


def test_a_refused_form_keeps_what_was_typed_and_has_the_focus(tab: Tab, full: Cluster) -> None:
    page = tab.page
    tab.open("/topics/orders")
    page.click(PUBLISH)
    page.fill("textarea[name=body]", "\n kept <b>")
    page.fill("input[name=delay]", "77")
    page.click("summary:has-text('Headers')")
    page.fill("textarea[name=headers]", "no header")
    page.click("button:text('Publish')")
    page.wait_for_selector("#live h2")
    assert "Invalid header 'no header'" in page.inner_text("[role=alert]")
    for _ in range(2):  # and after the live part was updated
        assert page.input_value("textarea[name=body]") == "\n kept <b>"
        assert page.input_value("input[name=delay]") == "77"
        assert page.input_value("textarea[name=headers]") == "no header"
        assert page.evaluate("document.activeElement.name") == "headers"
        before = page.inner_text("#live tfoot td[data-label=Published]")
        full.publish("orders", "more")
        page.wait_for_function(
            "was => document.querySelector('#live tfoot td[data-label=Published]').innerText != was", arg=before
        )


def test_a_page_is_updated_without_a_reload_and_grows_no_elements(tab: Tab, full: Cluster, fresh: str) -> None:
    full.channel(fresh, "c")
    httpx.post(f"http://{full.nodes[0].http}/channel/pause?topic={fresh}&channel=c&by=ann").raise_for_status()
    tab.open(f"/topics/{fresh}")
    tab.page.wait_for_selector(f"text={fresh}/c by ann")
    tab.page.evaluate("window.marked = true")
    for number in range(1, 5):
        full.publish(fresh, "x")
        tab.page.wait_for_selector(f"#live tfoot td[data-label=Published]:text-is('{number}')", timeout=30_000)
    assert tab.page.evaluate("window.marked") is True
    assert f"{fresh}/c by ann" in tab.text(), "what stands above the live part stays there"
    updated = tab.page.evaluate(ELEMENTS)
    tab.open(f"/topics/{fresh}")  # a chart or an alarm may have begun meanwhile: it comes here, too
    tab.page.wait_for_function(f"() => {ELEMENTS} >= {updated} - 2", timeout=30_000)


def test_a_page_lives_though_the_second_script_comes_late(tab: Tab, full: Cluster) -> None:
    tab.page.route("**/hx-sse*", lambda route: (sleep(0.5), route.continue_()))
    tab.open("/topics/orders")
    tab.page.wait_for_selector("#live[data-htmx-powered]", state="attached")  # without it, SSE is ignored


def test_a_page_that_was_not_there_loads_itself_when_it_is(tab: Tab, full: Cluster, fresh: str) -> None:
    tab.open(f"/topics/{fresh}")
    assert "Request failed" in tab.text()
    full.channel(fresh, "c")
    tab.page.wait_for_selector(f"h1:text('Topic {fresh}')")


def test_by_keyboard_alone(tab: Tab, full: Cluster, fresh: str) -> None:
    full.channel(fresh, "c")
    tab.open(f"/topics/{fresh}")
    for _ in range(60):
        tab.page.keyboard.press("Tab")
        here = tab.page.evaluate("document.activeElement.innerText")
        if here == "Actions":
            tab.page.keyboard.press("Enter")
        elif here == "Pause topic":
            break
    tab.page.keyboard.press("Enter")
    tab.page.wait_for_selector("text=Paused:")
    assert httpx.get(f"{full.url}/api/topics/{fresh}").json()["paused"] is True

"""A page in a browser knows when its figures are old: nsqadmin dies, freezes or refuses, nodes hang, the tab is left."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Browser, Page, expect

from tests.admin.asking import PASSWORD, file_of, with_password
from tests.admin.conftest import nsqadmin
from tests.daemons import Daemon, nsqd, publish

pytestmark = pytest.mark.process
WAIT = 60_000  # ms
_COUNT_BEATS = "window.beats = 0; document.getElementById('live').addEventListener('beat', () => window.beats++)"
_HIDE = (
    "Object.defineProperty(document, 'hidden', {configurable: true, get: () => %s});"
    "document.dispatchEvent(new Event('visibilitychange'))"
)
_NOTE_WORDS = """
    window.told = [];
    new MutationObserver(() => window.told.push(document.getElementById("stale").textContent))
      .observe(document.getElementById("stale"), {childList: true});
"""
FIGURE = "#live tfoot td[data-label=Published]"


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    with nsqd(tmp_path_factory.mktemp("node")) as found:
        publish(found, "orders", b"1")
        yield found


@contextmanager
def opened(chrome: Browser, admin: Daemon) -> Iterator[Page]:
    context = chrome.new_context(bypass_csp=True)  # for what the test evaluates
    page = context.new_page()
    page.goto(f"http://{admin.http}/topics/orders")
    page.evaluate(_COUNT_BEATS)
    page.wait_for_function("() => window.beats > 1", timeout=WAIT)
    yield page
    context.close()


def is_stale(page: Page) -> None:
    expect(page.locator("#stale")).to_contain_text("Disconnected. Data from")


def shows_one_more(page: Page, before: str) -> None:
    expect(page.locator(FIGURE)).to_have_text(str(int(before) + 1))
    expect(page.locator("#stale")).to_be_hidden(timeout=WAIT)


def test_the_time_of_the_figures_is_printed_and_nsqadmin_stops_under_an_open_page(node: Daemon) -> None:
    with nsqadmin("-nsqd-http-address", node.http) as admin:
        for path in ("/", "/topics/orders", "/nodes", "/tubes", "/storage", "/readers", "/counter", "/tasks"):
            assert 'Data from <time datetime="' in httpx.get(f"http://{admin.http}{path}", timeout=20).text, path
        with httpx.stream("GET", f"http://{admin.http}/topics/orders?live=1", timeout=20) as page:
            assert next(page.iter_bytes())
            assert admin.stop() == 0
            assert "ASGI" not in admin.stderr


def test_nsqadmin_freezes_is_killed_and_comes_back(chrome: Browser, node: Daemon) -> None:
    with nsqadmin("-nsqd-http-address", node.http) as admin, opened(chrome, admin) as page:
        figure = f"getComputedStyle(document.querySelector('{FIGURE}')).color"
        color, before = page.evaluate(figure), page.inner_text(FIGURE)
        admin.process.send_signal(signal.SIGSTOP)
        try:
            is_stale(page)
            publish(node, "orders", b"2")
        finally:
            admin.process.send_signal(signal.SIGCONT)
        shows_one_more(page, before)
        before = page.inner_text(FIGURE)
        admin.kill()
        is_stale(page)
        assert page.evaluate(figure) != color, "old figures are gray"
        publish(node, "orders", b"3")
        with nsqadmin("-nsqd-http-address", node.http, "-http-address", admin.http):
            shows_one_more(page, before)
            assert page.evaluate(figure) == color


def test_a_node_that_hangs_and_a_tab_in_the_background_are_no_alarm(chrome: Browser, node: Daemon) -> None:
    with nsqadmin("-nsqd-http-address", node.http) as admin, opened(chrome, admin) as page:
        page.evaluate(_NOTE_WORDS)
        node.process.send_signal(signal.SIGSTOP)
        try:
            page.evaluate("window.beats = 0")
            page.wait_for_function("() => window.beats > 7", timeout=WAIT)
        finally:
            node.process.send_signal(signal.SIGCONT)
        assert [words for words in page.evaluate("window.told") if "isconnected" in words] == []
        before = page.inner_text(FIGURE)
        page.evaluate(_HIDE % "true" + "; window.told = []; window.beats = 0")
        page.wait_for_timeout(6000)  # as long as a reader looks at another tab
        assert page.evaluate("[window.beats, window.told]") == [0, []]
        publish(node, "orders", b"2")
        page.evaluate(_HIDE % "false")
        shows_one_more(page, before)
        words = page.evaluate("window.told")
        assert words[0].startswith("Reconnecting. Data from ")
        assert not any("Disconnected" in one for one in words)


def test_a_session_that_has_ended_says_so_with_a_way_back(chrome: Browser, node: Daemon, tmp_path: Path) -> None:
    def log_in(page: Page) -> None:
        page.fill("input[name=user]", "ann")
        page.fill("input[name=password]", PASSWORD)
        page.keyboard.press("Enter")

    flags = ("-nsqd-http-address", node.http, "-auth-file", file_of(tmp_path, with_password("ann", "admin")))
    with nsqadmin(*flags) as admin:
        context = chrome.new_context(bypass_csp=True)
        page = context.new_page()
        page.goto(f"http://{admin.http}/topics/orders?nodes_sort=depth")
        log_in(page)
        page.wait_for_selector("#live[data-htmx-powered]", state="attached")
        page.evaluate(_COUNT_BEATS)
        page.wait_for_function("() => window.beats > 1", timeout=WAIT)
        context.clear_cookies()
        admin.kill()
        with nsqadmin(*flags, "-http-address", admin.http):
            expect(page.locator("#stale")).to_contain_text("Your session has ended.")
            page.click("#stale a:text-is('Log in again')")
            log_in(page)
            page.wait_for_url("**/topics/orders?nodes_sort=depth")
            context.close()

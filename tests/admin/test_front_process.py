"""The scripts and styles of the pages in a browser: charts, time zones, orders, widths, the command palette."""

import json
import re
import time
from collections.abc import Iterator
from email.utils import formatdate
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.admin.conftest import nsqadmin
from tests.daemons import Daemon, nsqd, post, publish

pytestmark = pytest.mark.process
WAIT = 60_000  # ms
LONG = "payments-authorized-by-the-issuing-bank1"  # 40 characters
RANGE = "[...document.querySelectorAll('.chart')].map(one => one.chart.scales.x.max - one.chart.scales.x.min)"
LABELS = "document.querySelector('.chart.rates').chart.axes[0]._values"


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    with nsqd(tmp_path_factory.mktemp("node"), "-beanstalk-address", "127.0.0.1:0") as node:
        for name, count in (("orders", 3), ("clicks", 7), (LONG, 5)):
            publish(node, name, *["x"] * count)
        post(node, "/channel/create", topic="orders", channel="mail")
        yield node


@pytest.fixture(scope="module")
def url(node: Daemon) -> Iterator[str]:
    with nsqadmin("-nsqd-http-address", node.http) as admin:
        yield f"http://{admin.http}"


@pytest.fixture
def page(chrome: Browser) -> Iterator[Page]:
    context = chrome.new_context(viewport={"width": 1280, "height": 800}, timezone_id="Asia/Tokyo", bypass_csp=True)
    yield context.new_page()
    context.close()


def series(page: Page, data: dict[str, Any]) -> None:
    """Have nsqadmin answer with these series in the second of their last sample."""
    headers = {"Content-Type": "application/json", "Date": formatdate(int(time.time()) // 10 * 10, usegmt=True)}
    page.unroute_all()
    page.route("**/series/**", lambda route: route.fulfill(body=json.dumps(data), headers=headers))


def points(step: int, count: int, **more: list[int]) -> dict[str, Any]:
    names = ("published", "finished", "depth", "in_flight")
    end = int(time.time()) // step * step
    return {"step": step, "from": end - count * step, **{name: [5] * count for name in names}, **more}


def test_a_chart_has_its_range_with_few_points_or_none(page: Page, url: str) -> None:
    for count in (0, 1):
        day = points(300, count) if count else None
        series(page, {"hour": points(10, count) if count else None, "day": day})
        page.goto(f"{url}/topics/orders")
        for words, seconds in (("Last day", 86_400), ("Last 15 minutes", 900), ("Last hour", 3_600)):
            page.get_by_label(words).check()
            page.wait_for_function(f"{RANGE}.every(one => one === {seconds})", timeout=WAIT)
            labels = page.evaluate(LABELS)
            assert labels
            assert all(len(one) == 5 and one[2] == ":" for one in labels), labels


def test_a_chart_draws_its_lines_and_survives_updates(page: Page, url: str, node: Daemon) -> None:
    series(page, {"hour": points(10, 3, requeued=[10, 20, 30], depth=[1, 2, 50]), "day": None})
    page.goto(f"{url}/topics/orders")
    page.wait_for_selector("figure canvas")
    assert "Requeued/s" in page.inner_text(".chart.rates .u-legend")
    assert "Timed out/s" not in page.inner_text(".chart.rates .u-legend")
    depth = page.locator(".chart.levels .u-series", has_text="Depth").locator(".u-value")
    assert depth.inner_text() == "50", "the latest value, until the cursor is over the chart"
    page.click("summary:has-text('as a table')")
    heads = page.locator("figure details th").all_inner_texts()
    assert heads == ["UTC", "Published/s", "Finished/s, all channels", "Requeued/s", "Depth", "In flight"]
    row = page.locator("figure details tbody tr:first-child td").all_inner_texts()
    assert row[1:] == ["0.5", "0.5", "3.0", "50", "5"]
    page.evaluate("document.querySelector('figure canvas').marked = true")
    figure = page.locator("#live tfoot td[data-label=Published]")
    before = int(figure.inner_text())
    publish(node, "orders", "y")
    expect(figure).to_have_text(str(before + 1))
    assert page.evaluate("document.querySelector('figure canvas').marked") is True
    page.set_viewport_size({"width": 375, "height": 800})
    assert page.evaluate("document.documentElement.scrollWidth") == 375


def test_a_phone_shows_notices_in_one_line_that_unfolds_and_stays_so(page: Page, tmp_path: Path) -> None:
    with nsqd(tmp_path) as own, nsqadmin("-nsqd-http-address", own.http, "-nsqd-http-address", "127.0.0.1:1") as admin:
        publish(own, "clicks", "x")
        post(own, "/topic/pause", topic="clicks")
        page.set_viewport_size({"width": 390, "height": 800})
        page.goto(f"http://{admin.http}/nodes")
        paused, line = (
            page.locator(".notices .banner", has_text="Paused: clicks for"),
            page.locator("label[for=notices]"),
        )
        expect(line).to_have_text(re.compile(r"\d notices"))
        expect(paused).to_be_hidden()
        page.focus("#notices")
        page.keyboard.press("Space")
        expect(paused).to_be_visible()
        seen = page.inner_text("#as-of time")
        expect(page.locator("#as-of time")).not_to_have_text(seen)
        expect(paused).to_be_visible()  # a new look keeps it
        page.set_viewport_size({"width": 1280, "height": 800})
        page.reload()
        expect(paused).to_be_visible()
        expect(line).to_be_hidden()


def test_the_menu_counts_the_alarms_of_every_look(page: Page, node: Daemon) -> None:
    gone = "127.0.0.1:1"
    with nsqadmin("-nsqd-http-address", node.http, "-nsqd-http-address", gone, "-alarm-interval", "1s") as admin:
        page.goto(f"http://{admin.http}/nodes")
        expect(page.locator("header a[data-key=m]")).to_have_text(re.compile(r"Alarms \(\d\)"))
        page.keyboard.press("?")
        expect(page.locator("#palette li", has_text="Page, g m")).to_have_text(re.compile(r"^Alarms Page"))


def test_times_in_the_zone_of_the_reader(page: Page, url: str) -> None:
    page.goto(f"{url}/")
    assert page.inner_text("#as-of time").endswith(" UTC")
    page.select_option("#zone select", "local")
    expect(page.locator("#as-of time")).to_contain_text("GMT+9")
    at, shown = page.locator("#as-of time").evaluate("one => [one.dateTime, one.innerText]")
    assert int(shown[:2]) == (int(at[11:13]) + 9) % 24
    page.goto(f"{url}/topics/orders")  # it is kept
    expect(page.locator("#as-of time")).to_contain_text("GMT+9")
    page.select_option("#zone select", "utc")
    expect(page.locator("#as-of time")).to_contain_text("UTC")


def test_names_are_not_broken_and_nothing_is_wider_than_the_page(page: Page, url: str) -> None:
    page.goto(f"{url}/")
    name = page.locator("tbody th a", has_text=LONG)
    assert name.get_attribute("title") == LONG
    for width in (1280, 768, 375):
        page.set_viewport_size({"width": width, "height": 800})
        assert page.evaluate("document.documentElement.scrollWidth") == width
        box = name.bounding_box()
        assert box["height"] < 30  # one line
        if width == 1280:
            assert name.evaluate("(one) => one.scrollWidth <= one.clientWidth")  # all of it
    assert page.locator("td.zero").first.is_hidden()


def press(page: Page, *keys: str) -> None:
    """Press keys one after the other, or type what is the name of no key, such as "orders"."""
    for one in keys:
        is_key = len(one) == 1 or one[0].isupper()
        (page.keyboard.press if is_key else page.keyboard.type)(one)


def test_pages_are_gone_to_by_keys_alone(page: Page, url: str) -> None:
    page.goto(f"{url}/")
    press(page, "Tab")
    assert page.evaluate("document.activeElement.innerText") == "Skip to content"
    press(page, "Enter", "Tab")
    assert page.evaluate("document.activeElement.closest('main') !== null")
    page.evaluate("document.activeElement.blur()")
    press(page, "/", "orders", "Enter")
    page.wait_for_url("**q=orders**")
    page.evaluate("document.activeElement.blur()")
    press(page, "j", "Enter")
    page.wait_for_url("**/topics/orders")
    press(page, "g", "a")
    page.wait_for_url("**/audit")
    press(page, "?")
    page.wait_for_selector("#palette[open] li")


def test_the_command_palette_finds_pages_and_topics_by_keyboard_alone(page: Page, url: str) -> None:
    page.goto(f"{url}/nodes")
    press(page, "Control+k")
    expect(page.locator("#palette")).to_be_visible()
    expect(page.locator("#palette input")).to_be_focused()
    press(page, "stor", "Enter")
    page.wait_for_url("**/storage")
    press(page, "Control+k", "payments-")
    expect(page.locator("#palette li").first).to_contain_text(LONG)
    press(page, "Enter")
    page.wait_for_url(f"**/topics/{LONG}")
    press(page, "Control+k", "ArrowDown")
    second = page.locator("#palette li").nth(1)
    expect(second).to_have_attribute("aria-selected", "true")
    assert page.get_attribute("#palette input", "aria-activedescendant") == second.get_attribute("id")
    press(page, "Escape")
    expect(page.locator("#palette")).to_be_hidden()


def test_a_filter_is_saved_with_its_order_and_found_again(page: Page, url: str) -> None:
    page.on("dialog", lambda dialog: dialog.accept("<b>mine</b>"))
    page.goto(f"{url}/?q=c&sort=depth&order=asc")
    page.click("button:text-is('Save filter')")
    page.goto(f"{url}/")
    page.select_option("#saved select", label="<b>mine</b>")
    page.wait_for_url("**/?q=c&sort=depth&order=asc")
    page.goto(f"{url}/nodes")
    press(page, "Control+k", "mine", "Enter")
    page.wait_for_url("**/?q=c&sort=depth&order=asc")
    press(page, "Control+k", "mine", "Delete")
    expect(page.locator("#palette li")).to_have_count(0)
    page.reload()
    expect(page.locator("#saved select")).to_be_hidden()

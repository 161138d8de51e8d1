"""Whether a page can be used by all: it fits in every window, and axe finds no fault in it."""

from __future__ import annotations

from functools import partial

from playwright.sync_api import Page

from tests.admin.screenshots import WIDTHS
from tests.daemons import eventually
from tests.requirements import CLIENTS

_AXE = CLIENTS / "axe" / "node_modules" / "axe-core" / "axe.min.js"
_FAULTS = """async () => (await axe.run({resultTypes: ["violations"]})).violations.map(
  one => one.id + ": " + one.nodes.map(node => node.target).join(" "))"""


def faults(page: Page) -> list[str]:
    """Return what axe has against the page that is shown, in a context without the policy that forbids its script."""
    if not page.evaluate("'axe' in window"):
        page.add_script_tag(path=_AXE)
    return list(page.evaluate(_FAULTS))


def assert_usable(page: Page, url: str) -> None:
    """Open a page, and assert that it fits in each width and that axe has nothing against it, wide and light, narrow and dark.

    It is loaded once: a load takes as much CPU as axe does.
    """
    page.emulate_media(color_scheme="light", reduced_motion="reduce")  # colours change at once
    page.goto(url)
    wide = partial(page.evaluate, "document.documentElement.scrollWidth")
    for width in sorted(WIDTHS, reverse=True):
        page.set_viewport_size({"width": width, "height": 800})
        eventually(lambda width=width: wide() == width, what=f"{width} wide: {url}")  # charts follow
        if width == max(WIDTHS):
            assert faults(page) == [], url
    page.emulate_media(color_scheme="dark")
    assert faults(page) == [], f"{url}, dark"

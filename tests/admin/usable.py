"""Whether a page can be used by all: it fits in every window, and axe finds no fault in it."""

from __future__ import annotations

from functools import partial

from playwright.sync_api import Page

from tests.admin.screenshots import WIDTHS
from tests.daemons import eventually
from tests.requirements import CLIENTS

_AXE = CLIENTS / "axe" / "node_modules" / "axe-core" / "axe.min.js"
_FAULTS = "axe.run().then(r => r.violations.map(v => v.id + ': ' + v.nodes.map(n => n.target).join(' ')))"
LOOKS = (
    ("light", max(WIDTHS)),
    ("dark", min(WIDTHS)),
)  # colours, and the width in which axe looks, which takes longest


def faults(page: Page) -> list[str]:
    """Return what axe has against the page that is shown, in a context without the policy that forbids its script."""
    page.add_script_tag(path=_AXE)
    return list(page.evaluate(_FAULTS))


def assert_usable(page: Page, url: str, axe_width: int) -> None:
    """Open a page, and assert that it fits in each width and that axe has nothing against it in one."""
    page.goto(url)
    for width in sorted(WIDTHS, key=axe_width.__eq__):  # that of axe last
        page.set_viewport_size({"width": width, "height": 800})
        wide = partial(page.evaluate, "document.documentElement.scrollWidth")
        eventually(lambda wide=wide, width=width: wide() == width, what=f"{width} wide: {url}")  # charts follow
    assert faults(page) == [], url

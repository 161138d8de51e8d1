"""Whether a page can be used by all: it fits in every window, axe finds no fault in it, and its controls have names."""

from functools import partial
from html.parser import HTMLParser

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


def obstacles(html: str) -> list[str]:
    """Return the controls and links of a page that have no name or that Tab does not reach, and ids that it has twice.

    axe finds more, but takes seconds for a page.
    """
    found = _Controls()
    found.feed(html)
    return [*found.faults, *(f"#{one}" for one in set(found.ids) if found.ids.count(one) > 1)]


class _Controls(HTMLParser):
    """What one can act on. It is named by a label around it, by its text if it is a link or button, or by an aria-label."""

    def __init__(self) -> None:
        super().__init__()
        self.faults: list[str] = []
        self.ids: list[str] = []
        self._open: list[list[str]] = []  # of elements that are named by their text: tag, text

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.ids += [given["id"]] if "id" in given else []
        is_named = given.get("aria-label") or any(one == "label" for one, _ in self._open)
        if tag in ("input", "select", "textarea") and given.get("type") != "hidden" and not is_named:
            self.faults.append(self.get_starttag_text() or tag)
        if tag in ("a", "button", "input", "select", "textarea", "summary") and given.get("tabindex") == "-1":
            self.faults.append(f"Tab does not reach {self.get_starttag_text()}")
        if tag in ("a", "button", "summary", "label", "caption"):
            self._open.append([tag, given.get("aria-label", "")])

    def handle_data(self, data: str) -> None:
        for one in self._open:
            one[1] += data.strip()

    def handle_endtag(self, tag: str) -> None:
        if self._open and self._open[-1][0] == tag and not self._open.pop()[1]:
            self.faults.append(f"<{tag}> without text")

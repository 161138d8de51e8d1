"""The browser in which tests look at the pages."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tests.requirements import chromium

if TYPE_CHECKING:
    from playwright.sync_api import Browser


@contextmanager
def browser() -> Iterator[Browser]:
    from playwright.sync_api import (
        expect,
        sync_playwright,
    )  # here: units do without, and conftest.py imports this module

    expect.set_options(timeout=60_000)  # ms; its 5 s are shorter than pauses of a busy machine
    with sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=chromium(), args=["--no-sandbox"])
        try:
            yield found
        finally:
            found.close()

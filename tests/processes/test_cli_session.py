"""The session of docs/reference/cli.md is true: each command prints what the page shows, except for numbers and ids."""

from importlib.util import find_spec

import pytest

from docs.cli_session import ARCHIVE, TEXT, shape, written
from tests.processes.test_penstock_up import free_offset

pytestmark = pytest.mark.process


def parts(text: str) -> dict[str, list[str]]:
    """Return the command lines of each part, each with its output."""
    return {name: lines.split("\n\n") for name, _, lines in (part.partition("\n\n") for part in text.split("\n# "))}


def test_each_command_prints_what_the_page_shows() -> None:
    shown, printed = (parts(shape(text)) for text in (TEXT.read_text(), written(free_offset(3))))
    if find_spec("deltalake") is None:
        del shown[ARCHIVE], printed[ARCHIVE]
    assert printed == shown

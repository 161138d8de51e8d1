"""The documents are true: every path that ARCHITECTURE.md and README.md name exists."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
_PATH = re.compile(r"`([a-z_]+(?:/[A-Za-z_.]+)+)`|\]\(([A-Za-z/_.]+)\)")
_MADE = ("penstock/_app/",)  # exists in a wheel only


@pytest.mark.parametrize("document", ["ARCHITECTURE.md", "README.md"])
def test_paths_exist(document: str) -> None:
    text = (ROOT / document).read_text()
    named = {match[1] or match[2] for match in _PATH.finditer(text)} - set(_MADE)
    assert len(named) >= 3
    assert [path for path in sorted(named) if not (ROOT / path).exists()] == []


def test_architecture_names_every_file_of_the_core() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text()
    files = [path.relative_to(ROOT).as_posix() for path in (ROOT / "nsqd/core").glob("*.py") if path.stem != "__init__"]
    assert [file for file in files if file not in text] == []

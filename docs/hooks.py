"""Hooks of mkdocs: `nav` may name directories, and pages may link to any file of the repository."""

from __future__ import annotations

import re
from pathlib import Path, PurePosixPath
from typing import Any

DOCS = Path(__file__).parent
_LINK = re.compile(r"(?<!!)\[([^\]]*)\]\(([^)\s:#]+)(#[^)\s]*)?\)")
FIRST = (
    "index.md",
    "quickstart.md",
    "concepts.md",
    "publish.md",
    "consume.md",
)  # first in their directory; the others follow by name


def on_config(config: Any) -> Any:
    """Replace each directory in `nav` by its pages, and leave out what does not exist."""
    config["nav"] = expanded(config["nav"])
    return config


def expanded(entries: list[Any]) -> list[Any]:
    """Return the entries of a navigation with the pages of its directories."""
    found: list[Any] = []
    for entry in entries:
        if isinstance(entry, dict):
            ((title, below),) = entry.items()
            pages = expanded(below if isinstance(below, list) else [below])
            alone = isinstance(below, str) and not below.endswith("/")
            if pages:
                found.append({title: pages[0] if alone else pages})
        elif entry.endswith("/"):
            found += _pages(entry)
        elif (DOCS / entry).exists():
            found.append(entry)
    return found


def _pages(directory: str) -> list[str]:
    names = sorted(path.name for path in (DOCS / directory).glob("*.md"))
    return [
        directory + name
        for name in sorted(names, key=lambda name: (name not in FIRST, FIRST.index(name) if name in FIRST else 0))
    ]


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Return the page with its links out of docs/ as plain text: on GitHub they lead to the file, the site does not have it."""
    parent = PurePosixPath(page.file.src_uri).parent

    def plain(match: re.Match[str]) -> str:
        depth = 0
        for part in (parent / match[2]).parts:
            depth += -1 if part == ".." else 1
            if depth < 0:
                return match[1]
        return match[0]

    return _LINK.sub(plain, markdown)

"""Write pages of the reference in Markdown: rows of tables, and the frame of a page."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

MADE = "<!-- `make reference` writes this page from the code. -->\n"


def table_row(*cells: Any) -> str:
    """Return a row of a table. Code is shown as it is, except for a `|`, which would end a cell."""
    return "| " + " | ".join(_cell(str(cell)) for cell in cells) + " |"


def _cell(text: str) -> str:
    parts = re.split(r"(`[^`]*`)", text.replace("|", "\\|"))
    return "".join(part if part.startswith("`") else part.replace("<", "&lt;") for part in parts)


def page(parts: Iterable[str]) -> str:
    """Return a page of these parts, the first of which is its title."""
    text = re.sub(r"\n{3,}", "\n\n", "\n".join(parts)).rstrip() + "\n"
    title, _, rest = text.partition("\n")
    return f"{title}\n\n{MADE}{rest}"

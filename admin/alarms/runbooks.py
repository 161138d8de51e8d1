"""The runbooks of the alarm rules as nsqadmin serves them: the text of docs/, by sections."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from admin.alarms.rules import RULES

DOCS = Path(__file__).parent.parent.parent / "docs"  # next to the rooms, in a checkout and in a wheel
NAMES = frozenset(rule.runbook.partition("#")[0].removesuffix(".md") for rule in RULES)


@dataclass(frozen=True, slots=True)
class Section:
    """A part of a runbook, from one heading to the next."""

    anchor: str
    title: str
    text: str  # Markdown


@cache
def runbook(name: str) -> tuple[str, tuple[Section, ...]]:
    """Return the title and the sections of a runbook, the first without a title. Raises KeyError if no rule names it."""
    if name not in NAMES:
        raise KeyError(name)
    text = (DOCS / f"{name}.md").read_text(encoding="utf-8")
    title, _, rest = text.removeprefix("# ").partition("\n")
    first, *others = re.split(r"^## ", rest, flags=re.MULTILINE)
    found = [Section("", "", first.strip())]
    for one in others:
        heading, _, body = one.partition("\n")
        found.append(Section(_anchor(heading), heading, body.strip()))
    return title, tuple(found)


def _anchor(heading: str) -> str:
    """Return the anchor that the documentation site gives to a heading."""
    return re.sub(r"[\s-]+", "-", re.sub(r"[^\w\s-]", "", heading).strip().lower())

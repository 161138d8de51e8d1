"""The product's source texts, of which a test parses as few as it must: all of them take 3 s of CPU."""

import ast
import re
from collections.abc import Iterator
from functools import cache

from tests.daemons import ROOT

PACKAGES = ("admin", "apps", "lookupd", "nsqd", "penstock", "pipeline", "pyspark_nsq", "shared")


@cache
def sources(package: str) -> dict[str, str]:
    """Return the text of each Python file of a package, by its path from the root."""
    return {file.relative_to(ROOT).as_posix(): file.read_text() for file in sorted((ROOT / package).rglob("*.py"))}


def trees(packages: tuple[str, ...], pattern: str) -> Iterator[tuple[str, ast.Module]]:
    """Yield path and syntax tree of the files in which a regular expression matches."""
    for package in packages:
        for path, text in sources(package).items():
            if re.search(pattern, text):
                yield path, ast.parse(text)

"""`penstock pipeline doctor`: check what the daemons and the pipeline require of this machine, and say how to meet it."""

from __future__ import annotations

import importlib.metadata
import resource
import sys
from collections.abc import Callable

from pipeline.session import OLDEST_JAVA, Missing, find_java

FILES = 1024  # open files that a daemon wants


def main() -> int:
    """Print the checks, and return 1 if the daemons lack something, 2 if only the pipeline does, otherwise 0."""
    worst = 0
    for name, need, check in _CHECKS:
        good, detail = check()
        worst = max(worst, 0 if good else {"daemons": 2, "pipeline": 1}[need])
        print(f"{'ok     ' if good else 'MISSING'} {name:8} {detail}")
    if worst:
        print("the daemons cannot run" if worst == 2 else "penstock pipeline cannot run; the daemons can")
    return {0: 0, 1: 2, 2: 1}[worst]


def _python() -> tuple[bool, str]:
    return sys.version_info >= (3, 11), f"{sys.version.split()[0]}; Python 3.11 or later is required"


def _files() -> tuple[bool, str]:
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    return most >= FILES, f"limit of open files: {most}; raise it with ulimit -Hn for more connections"


def _java() -> tuple[bool, str]:
    try:
        program, version = find_java()
    except Missing as missing:
        return False, str(missing)
    return version >= OLDEST_JAVA, f"{version}, {program}"


def _package(name: str) -> Callable[[], tuple[bool, str]]:
    def check() -> tuple[bool, str]:
        try:
            return True, importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            return False, "not installed: make spark, or: pip install 'penstock[spark]'"

    return check


_CHECKS = (
    ("python", "daemons", _python),
    ("files", "daemons", _files),
    ("java", "pipeline", _java),
    ("pyspark", "pipeline", _package("pyspark")),
    ("pyarrow", "pipeline", _package("pyarrow")),
)

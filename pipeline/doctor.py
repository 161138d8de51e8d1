"""`penstock doctor`: what of this machine the daemons and the pipeline need, what is there, and what to do about the rest."""

from __future__ import annotations

import importlib.metadata
import resource
import sys
from collections.abc import Callable

from pipeline.session import OLDEST_JAVA, Missing, find_java

FILES = 1024  # that a daemon wants to open


def main() -> int:
    """The exit code: 1 if something that the daemons need is missing, 2 if only the pipeline lacks something."""
    worst = 0
    for name, need, look in _CHECKS:
        good, told = look()
        worst = max(worst, 0 if good else {"daemons": 2, "pipeline": 1}[need])
        print(f"{'ok     ' if good else 'MISSING'} {name:8} {told}")
    if worst:
        print(
            f"without it {'the daemons do not run' if worst == 2 else 'penstock pipeline does not run; the daemons do'}"
        )
    return {0: 0, 1: 2, 2: 1}[worst]


def _python() -> tuple[bool, str]:
    return sys.version_info >= (3, 11), f"{sys.version.split()[0]}; 3.11 or later is needed"


def _files() -> tuple[bool, str]:
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    return most >= FILES, f"{most} may be open; raise it by ulimit -Hn for more connections"


def _java() -> tuple[bool, str]:
    try:
        program, version = find_java()
    except Missing as missing:
        return False, str(missing)
    return version >= OLDEST_JAVA, f"{version}, {program}"


def _package(name: str) -> Callable[[], tuple[bool, str]]:
    def look() -> tuple[bool, str]:
        try:
            return True, importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            return False, "not installed: make spark, or: pip install 'penstock[spark]'"

    return look


_CHECKS = (
    ("python", "daemons", _python),
    ("files", "daemons", _files),
    ("java", "pipeline", _java),
    ("pyspark", "pipeline", _package("pyspark")),
    ("pyarrow", "pipeline", _package("pyarrow")),
)

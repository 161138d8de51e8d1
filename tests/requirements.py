"""Requirements of tests beyond Python: programs, or the superuser's rights.

Without them the rest still runs: the test is skipped, and pytest prints why (-ra). CI lists in the environment variable REQUIRE
what it has promised to have (REQUIRE=java,node,nginx,promtool,chromium,root,namespaces): there the same is a failure.
"""

import os
import shutil
import subprocess

import pytest

from pipeline.session import Missing, find_java
from tests import namespaces
from tests.daemons import ROOT

CLIENTS = ROOT / "tests" / "clients"
NODE_PACKAGES = (("nsqjs", "nsqjs"), ("jackd", "jackd"), ("axe", "axe-core"), ("disqueue", "disqueue-node"))
NODE_MODULES = CLIENTS / "nsqjs" / "node_modules"
NGINX = ROOT / ".venv" / "nginx" / "usr" / "sbin" / "nginx"  # see the Makefile
PROMTOOL = ROOT / ".venv" / "prometheus" / "usr" / "bin" / "promtool"


def require(name: str) -> None:
    """Skip the calling test if `name`, one of those that `_missing` knows, is missing; fail if REQUIRE lists it."""
    missing = _missing(name)
    if not missing:
        return
    if name in os.environ.get("REQUIRE", "").replace(" ", "").split(","):
        pytest.fail(f"{missing}, and REQUIRE lists {name}", pytrace=False)
    pytest.skip(missing)


def nginx() -> str:
    """The program: ours, else the machine's; "" if there is none that runs."""
    for program in (str(NGINX), shutil.which("nginx")):
        if program and os.path.exists(program) and subprocess.run([program, "-v"], capture_output=True).returncode == 0:
            return program
    return ""


def promtool() -> str:
    """The program: ours, else the machine's; "" if there is none."""
    return next(filter(None, map(shutil.which, (str(PROMTOOL), "promtool"))), "")


def chromium() -> str:
    """The program, of whatever name; "" if there is none."""
    return next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), "")


def _missing(name: str) -> str:
    """Return the missing part of `name`; "" if nothing is missing."""
    if name == "root":
        return "" if os.geteuid() == 0 else "not running as root"
    if name == "namespaces":
        return namespaces.missing()
    if name == "node":
        if shutil.which("node") is None:
            return "node is not installed"
        absent = [name for name, package in NODE_PACKAGES if not (CLIENTS / name / "node_modules" / package).is_dir()]
        return f"{' and '.join(absent)} not installed (make test does that)" if absent else ""
    if name == "nginx":
        return "" if nginx() else "nginx is not there (make test fetches it by apt-get)"
    if name == "promtool":
        return "" if promtool() else "promtool is not there (make test fetches it by apt-get)"
    if name == "java":
        try:
            find_java()
        except Missing as missing:
            return str(missing)
        return ""
    if name == "chromium":
        return "" if chromium() else "chromium is not installed"
    raise ValueError(f"no check for {name}")

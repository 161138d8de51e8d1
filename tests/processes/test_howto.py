"""Code in `sh` and `python` on the pages for users runs, page by page: README.md, the start, and docs/how-to."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.daemons import ROOT, Daemon
from tests.processes.entry_points import install_entry_points

pytestmark = pytest.mark.process

PAGES = [ROOT / "README.md", ROOT / "docs/tutorials/quickstart.md", *sorted((ROOT / "docs/how-to").glob("*.md"))]
FENCE = re.compile(r"^ *```(sh|python)\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
PATIENCE = 240.0  # s for one block; each takes less than 3 on a quiet machine
STARTED = ("make up",)  # the fixture has done that


@pytest.fixture(scope="module")
def ports(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """The addresses that the pages name, and those of the daemons."""
    data = tmp_path_factory.mktemp("data")
    with (
        Daemon("nsqlookupd") as lookupd,
        Daemon(
            "nsqd",
            *("-data-path", str(data), "-lookupd-tcp-address", lookupd.tcp, "-beanstalk-address", "127.0.0.1:0"),
            listens=("TCP", "HTTP", "BEANSTALK"),
        ) as nsqd,
    ):
        beanstalk = nsqd.addresses["BEANSTALK"]
        yield {
            "127.0.0.1:4150": nsqd.tcp,
            "127.0.0.1:4151": nsqd.http,
            "127.0.0.1:4161": lookupd.http,
            "127.0.0.1:11300": beanstalk,
            '("127.0.0.1", 11300)': f'("127.0.0.1", {beanstalk.rpartition(":")[2]})',
        }


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_what_a_page_shows_runs(page: Path, ports: dict[str, str], tmp_path: Path) -> None:
    site = install_entry_points(tmp_path / "site")  # penstock:// of Celery is one
    environ = {
        **os.environ,
        "PYTHONPATH": f"{ROOT}{os.pathsep}{site}",
        "PENSTOCK_LOOKUPD_HTTP_ADDRESS": ports["127.0.0.1:4161"],
        "PENSTOCK_NSQD_HTTP_ADDRESS": ports["127.0.0.1:4151"],
    }
    for language, text in FENCE.findall(page.read_text()):
        if text.strip() in STARTED or "pyspark" in text:
            continue
        for written, real in ports.items():
            text = text.replace(written, real)
        done = subprocess.run(
            [sys.executable, "-W", "ignore", "-c", text]
            if language == "python"
            else ["bash", "-euo", "pipefail", "-c", shell(text)],
            cwd=tmp_path,
            env=environ,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
        assert done.returncode == 0, f"{text}\n{done.stdout}\n{done.stderr}"
        assert '{"message":' not in done.stdout, f"{text}\n{done.stdout}"


def shell(text: str) -> str:
    """The commands as they run anywhere; curl fails where HTTP does."""
    text = re.sub(r"\.venv/bin/(\w+)", rf"{sys.executable} -m penstock.launch \1", text)
    return text.replace("curl ", "curl -sS ")

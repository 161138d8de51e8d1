"""docs/tutorials/failover.md is true: a node loses its disk, and has all messages again."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.daemons import ROOT
from tests.processes.test_penstock_up import free_offset, run, started

pytestmark = pytest.mark.process

PAGE = (ROOT / "docs/tutorials/failover.md").read_text()
BLOCK = re.compile(r"^```sh\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PATIENCE = 240.0  # s for one block


def shell(text: str, offset: int, cwd: Path) -> str:
    """Run a block of the page on the ports of this set, and return what it prints."""
    text = re.sub(r"127\.0\.0\.1:(\d+)", lambda match: f"127.0.0.1:{int(match[1]) + offset}", text)
    text = re.sub(r"\.venv/bin/(\w+)", rf"{sys.executable} -m penstock.launch \1", text)
    text = text.replace("curl ", "curl -sS ")
    (cwd / "block.sh").write_text(text)  # not -c: pgrep would find the text in the shell's own command line
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "block.sh"], cwd=cwd, env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=PATIENCE, check=False,
    )  # fmt: skip
    assert done.returncode == 0, f"{text}\n{done.stdout}\n{done.stderr}"
    assert '{"message":' not in done.stdout
    return done.stdout


def test_the_rehearsal_loses_nothing(tmp_path: Path) -> None:
    offset = free_offset(3)
    publish, kill, recover, consume = BLOCK.findall(PAGE.partition("## A disk is lost")[2])
    with run(
        *("up", "--nodes", "3", "--set", "failover-quorum=none", "--data", "data-none", "--port-offset", str(offset)),
        cwd=tmp_path,
    ) as process:
        started(process)
        shell(publish, offset, tmp_path)
        shell(kill, offset, tmp_path)
        assert shell(recover, offset, tmp_path).splitlines()[-1] == "whole"
        process.send_signal(signal.SIGUSR1)
        assert shell(consume, offset, tmp_path).splitlines()[-1] == "1000"
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=PATIENCE)
        assert (process.returncode, "Traceback" in errors) == (0, False), errors
    names = {path.name for path in (tmp_path / "data-none").iterdir()}
    assert names == {"cluster.secret", "logs", "nsqadmin", "nsqd", "nsqd-2", "nsqd-3"}

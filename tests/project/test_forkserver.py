"""Programs that several threads start at once, before there is a process that forks."""

import subprocess
import sys

import pytest

from tests.forkserver import ROOT

pytestmark = pytest.mark.process

SCRIPT = """
from concurrent.futures import ThreadPoolExecutor
from tests.forkserver import LAUNCH, run
with ThreadPoolExecutor(8) as pool:
    print(*pool.map(lambda _: run([*LAUNCH, "nsqd", "-version"], capture_output=True).returncode, range(8)))
"""


def test_threads_that_start_programs_at_once_share_one_server() -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout) == (0, "0 0 0 0 0 0 0 0\n"), done.stderr

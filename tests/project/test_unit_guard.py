"""The guard of `make unit`: a unit test that opens a socket or starts a process fails, whatever its code catches."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.daemons import ROOT

pytestmark = pytest.mark.process

CAUGHT = """
import asyncio, contextlib, queue, socket, subprocess, threading, trio

asked, opened = queue.SimpleQueue(), queue.SimpleQueue()
threading.Thread(target=lambda: opened.put(asked.get()()), daemon=True).start()

def test_socket():
    with contextlib.suppress(Exception):
        socket.socket()

def test_socketpair():
    with contextlib.suppress(Exception):
        socket.socketpair()

def test_process():
    with contextlib.suppress(Exception):
        subprocess.run(["true"])

def test_an_event_loop_is_allowed():
    asyncio.run(asyncio.sleep(0))

async def test_and_so_is_trio():
    pass

async def test_threads_of_its_own():
    with contextlib.suppress(Exception):
        await trio.to_thread.run_sync(socket.socket)

def test_a_thread_from_before_the_test_is_not_its_own():
    asked.put(socket.socket)
    opened.get(timeout=60).close()
"""


def test_a_unit_test_that_leaves_its_process_fails(tmp_path: Path) -> None:
    file = tmp_path / "test_made.py"
    file.write_text(CAUGHT)
    flags = ["-p", "tests.conftest", "-c", str(ROOT / "pyproject.toml"), "-p", "no:cacheprovider", "-n", "0", "-q"]
    command = [sys.executable, "-m", "pytest", *flags, "--unit", str(file)]
    said = subprocess.run(command, cwd=ROOT, capture_output=True, text=True).stdout
    assert "4 failed, 3 passed" in said, said
    assert "NotAUnitTest: subprocess.Popen in a unit test: mark the test `process`" in said

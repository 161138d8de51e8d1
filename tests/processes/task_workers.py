"""Workers of frameworks over tubes, and the file in which their tasks note that they are done."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from penstock.jobs import Jobs, NotFound
from tests.daemons import ROOT

PATIENCE = 240.0  # s


@contextmanager
def worker(directory: Path, address: str, *command: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run a module of Python with the node's address as BROKER, and kill its processes at the end."""
    environ = {**os.environ, "BROKER": address, "DONE": str(directory / "done"), "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(
        [sys.executable, "-m", *command], env=environ, cwd=ROOT, start_new_session=True, stderr=subprocess.DEVNULL
    )
    try:
        yield process
    finally:
        kill(process)


def kill(process: subprocess.Popen[bytes]) -> None:
    """Kill the process and its children; again is allowed."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        assert process.poll() is not None
    process.wait()


def note(line: str) -> None:
    """Append a line to the worker's file; one write of a line is one piece."""
    with open(os.environ["DONE"], "a") as file:
        file.write(f"{line}\n")


def lines(directory: Path) -> list[str]:
    """Return the lines that the workers have noted."""
    done = directory / "done"
    return done.read_text().splitlines() if done.exists() else []


def job_counts(address: str, tube: str) -> tuple[object, ...]:
    """Return the numbers of ready, reserved, delayed and buried jobs of the tube."""
    with Jobs(address) as jobs, suppress(NotFound):
        stats = jobs.stats_tube(tube)
        return tuple(stats[f"current-jobs-{state}"] for state in ("ready", "reserved", "delayed", "buried"))
    return 0, 0, 0, 0


def is_empty(address: str, tube: str) -> bool:
    """Return whether the tube has no jobs."""
    return not any(job_counts(address, tube))

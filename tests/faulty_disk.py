"""Runs a program of this project whose syncs are slow or fail, as a file says: `python -m tests.faulty_disk FILE nsqd ...`

The file holds lines of two words, and may change at any time. `delay 0.2`: each sync takes that many seconds longer.
`fail replicas`: each sync of a file whose path contains that word fails with EIO. Without the file all is well.

This is for machines without device-mapper (dm-delay, dm-flakey, dm-error). A dead disk is tried with the real file
systems of bench/crash/volume.py.
"""

from __future__ import annotations

import errno
import os
import runpy
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path


def faulty(sync: Callable[[int], None], orders: Path, descriptor: int) -> None:
    """Sync a file as the orders say. Raises OSError."""
    try:
        lines = orders.read_text().splitlines()
    except FileNotFoundError:
        lines = []
    for verb, word in map(str.split, lines):
        if verb == "delay":
            time.sleep(float(word))
        elif verb == "fail" and word in os.readlink(f"/proc/self/fd/{descriptor}"):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
    sync(descriptor)


def main() -> None:
    orders, *sys.argv = sys.argv[1:]
    sys.argv.insert(0, "penstock.launch")
    os.fsync = partial(faulty, os.fsync, Path(orders))  # type: ignore[assignment]
    os.fdatasync = partial(faulty, os.fdatasync, Path(orders))  # type: ignore[assignment]
    runpy.run_module("penstock.launch", run_name="__main__")


if __name__ == "__main__":
    main()

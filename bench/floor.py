"""The floor of durable publishing: what the disk itself takes for a write and a sync, without any server."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path

_FILE = 48 * 1024 * 1024  # bytes
_CHUNK = 16 * 1024  # bytes written at a time: Linux keeps what one call writes in one piece, and syncs whole pieces


@dataclass(frozen=True, slots=True)
class Floor:
    """Times of one write and sync, in ns."""

    p50: int
    p99: int
    cpu: int


def measure_floor(directory: Path, size: int, seconds: float) -> Floor:
    """Write and sync `size` bytes again and again for `seconds`, in a file whose blocks were written before.

    This is a `pwrite` and an `fdatasync`, by one thread that does nothing else. Raises OSError.
    """
    fd = os.open(directory / "floor", os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        for at in range(0, _FILE, _CHUNK):
            os.pwrite(fd, bytes(_CHUNK), at)
        os.fsync(fd)
        return _measure(fd, os.urandom(size), seconds)
    finally:
        os.close(fd)
        os.unlink(directory / "floor")


def _measure(fd: int, data: bytes, seconds: float) -> Floor:
    times, at = list[int](), 0
    spent, until = time.process_time_ns(), time.perf_counter() + seconds
    while not times or time.perf_counter() < until:
        began = time.perf_counter_ns()
        os.pwrite(fd, data, at)
        os.fdatasync(fd)
        times.append(time.perf_counter_ns() - began)
        at += len(data)
        if at + len(data) > _FILE:
            at = 0
    spent = time.process_time_ns() - spent
    times.sort()
    last = len(times) - 1
    return Floor(times[last // 2], times[last * 99 // 100], spent // len(times))

"""The memory of the process, under the names of NSQ's memory statistics, as far as CPython knows it.

* `heap_objects`: allocated blocks of Python's allocator. Frames of messages are among them.
* `heap_in_use_bytes`: resident anonymous memory, including the interpreter's own.
* `heap_released_bytes`: how far resident memory is below its peak. `heap_idle_bytes` is the same, because CPython does not
  report how much memory is free inside its allocators.
* `gc_pause_usec_*`: percentiles of the last 256 pauses of the cyclic garbage collector, which stop all threads.
* `next_gc_bytes`: 0. CPython collects after a number of allocations, not of bytes.
* `gc_total_runs`: collections, of all generations.

See docs/contributing/design/nsq-programs.md#statsd.
"""

import gc
import math
import sys
import time
from collections import deque

KEPT = 256  # pauses; Go's runtime keeps as many


class GcPauses:
    """The latest pauses of the collector. It is one of gc.callbacks, and costs a microsecond per collection."""

    def __init__(self) -> None:
        self._began = 0  # ns: start of the current collection
        self._pauses: deque[int] = deque(maxlen=KEPT)  # ns

    def __call__(self, phase: str, info: dict[str, int]) -> None:
        """Note the start or end of a collection. gc calls this in the collecting thread; there is one collection at a time."""
        if phase == "start":
            self._began = time.perf_counter_ns()
        else:
            self._pauses.append(time.perf_counter_ns() - self._began)

    def percentile(self, percent: float) -> int:
        """Return a percentile in microseconds, picked from the sorted pauses as the original does."""
        pauses = sorted(self._pauses.copy())
        if not pauses:
            return 0
        index = math.floor(percent / 100 * len(pauses) + 0.5)
        return pauses[min(index, len(pauses) - 1)] // 1000


class Memory:
    """The source of these statistics, for any thread."""

    def __init__(self) -> None:
        """Start to measure the collector's pauses, until `close`."""
        self._pauses = GcPauses()
        gc.callbacks.append(self._pauses)

    def close(self) -> None:
        """Stop measuring the pauses of the collector."""
        gc.callbacks.remove(self._pauses)

    def figures(self) -> dict[str, int]:
        """Return the statistics in the original's order."""
        sizes = _sizes()
        released = max(0, sizes.get("VmHWM", 0) - sizes.get("VmRSS", 0))
        return {
            "heap_objects": sys.getallocatedblocks(),
            "heap_idle_bytes": released,
            "heap_in_use_bytes": sizes.get("RssAnon", 0),
            "heap_released_bytes": released,
            "gc_pause_usec_100": self._pauses.percentile(100),
            "gc_pause_usec_99": self._pauses.percentile(99),
            "gc_pause_usec_95": self._pauses.percentile(95),
            "next_gc_bytes": 0,
            "gc_total_runs": sum(generation["collections"] for generation in gc.get_stats()),
        }


def resident_bytes() -> int:
    """Return the resident memory of the process; 0 without /proc."""
    return _sizes().get("VmRSS", 0)


def _sizes() -> dict[str, int]:
    """Return the kernel's sizes in bytes, by their names; empty without /proc."""
    try:
        with open("/proc/self/status") as file:
            fields = [line.split() for line in file]
    except OSError:
        return {}
    return {name.rstrip(":"): int(size[0]) * 1024 for name, *size in fields if size[-1:] == ["kB"]}

"""What a process says of its memory, under the names of NSQ's memory statistics (specs/nsq.md b), with what CPython has.

* `heap_objects`: blocks that Python's allocator has given out. Frames of messages are among them.
* `heap_in_use_bytes`: resident memory that is no file's, the interpreter's own included.
* `heap_released_bytes`: how far that is below its peak: what the system got back. `heap_idle_bytes` is the same: what is
  free and kept inside the allocators is not known.
* `gc_pause_usec_*`: percentiles of the last 256 pauses of the cyclic garbage collector, which stop all threads.
* `next_gc_bytes`: 0. CPython collects after so many allocations, not bytes.
* `gc_total_runs`: collections, of all generations.
"""

import gc
import math
import sys
import time
from collections import deque

KEPT = 256  # pauses, as many as Go's runtime keeps


class GcPauses:
    """The latest pauses of the collector. Given to gc.callbacks; costs a microsecond a collection."""

    def __init__(self) -> None:
        self._began = 0  # ns; of the collection under way
        self._pauses: deque[int] = deque(maxlen=KEPT)  # ns

    def __call__(self, phase: str, info: dict[str, int]) -> None:
        """What gc.callbacks are called with, in whatever thread collects. There is one collection at a time."""
        if phase == "start":
            self._began = time.perf_counter_ns()
        else:
            self._pauses.append(time.perf_counter_ns() - self._began)

    def percentile(self, percent: float) -> int:
        """Microseconds; as the original picks it from the sorted pauses."""
        pauses = sorted(self._pauses.copy())
        if not pauses:
            return 0
        index = math.floor(percent / 100 * len(pauses) + 0.5)
        return pauses[min(index, len(pauses) - 1)] // 1000


class Memory:
    """Asked for the figures above. Any thread may ask."""

    def __init__(self) -> None:
        """From now on the collector's pauses are measured, until `close`."""
        self._pauses = GcPauses()
        gc.callbacks.append(self._pauses)

    def close(self) -> None:
        """Stop measuring."""
        gc.callbacks.remove(self._pauses)

    def figures(self) -> dict[str, int]:
        """In the original's order."""
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


def _sizes() -> dict[str, int]:
    """Bytes by the kernel's names for them; none where there is no /proc."""
    try:
        with open("/proc/self/status") as file:
            lines = [line.split() for line in file]
    except OSError:
        return {}
    return {words[0].rstrip(":"): int(words[1]) * 1024 for words in lines if words[-1:] == ["kB"]}

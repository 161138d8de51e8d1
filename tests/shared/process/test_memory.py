"""The memory statistics of the daemons: NSQ's keys in NSQ's order, and the pauses of the collector."""

import gc

from shared.process.memory import KEPT, GcPauses, Memory

NSQS_KEYS = [
    *("heap_objects", "heap_idle_bytes", "heap_in_use_bytes", "heap_released_bytes"),
    *("gc_pause_usec_100", "gc_pause_usec_99", "gc_pause_usec_95", "next_gc_bytes", "gc_total_runs"),
]


def test_the_keys_are_nsqs_and_after_close_nothing_is_measured() -> None:
    memory = Memory()
    figures = memory.figures()
    memory.close()
    assert list(figures) == NSQS_KEYS
    assert figures["heap_objects"] > 10_000
    assert figures["heap_in_use_bytes"] > 1_000_000
    assert all(value >= 0 for value in figures.values())

    callbacks = list(gc.callbacks)
    memory = Memory()
    assert len(gc.callbacks) == len(callbacks) + 1
    memory.close()
    assert gc.callbacks == callbacks


def test_collections_are_counted_and_timed() -> None:
    memory = Memory()
    before = memory.figures()
    garbage = [[] for _ in range(100_000)]  # type: ignore[var-annotated]
    for item in garbage:
        item.append(item)
    del garbage, item
    gc.collect()
    after = memory.figures()
    memory.close()
    assert after["gc_total_runs"] > before["gc_total_runs"]
    assert after["gc_pause_usec_100"] >= after["gc_pause_usec_95"]
    assert after["gc_pause_usec_100"] > 0  # 100,000 cycles take milliseconds


def test_which_pauses_are_kept_and_how_percentiles_are_picked() -> None:
    pauses = GcPauses()
    assert pauses.percentile(100) == 0
    pauses._pauses.extend(number * 1000 for number in range(100, 0, -1))  # ns
    assert [pauses.percentile(percent) for percent in (100, 99, 95, 0)] == [100, 100, 96, 1]
    pauses = GcPauses()
    for _ in range(2 * KEPT):
        pauses("start", {})
        pauses("stop", {})
    assert len(pauses._pauses) == KEPT

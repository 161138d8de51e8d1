"""The disk's floor, and the lines of the rows that are compared with it."""

from pathlib import Path

from bench.durable import measure_floor


def test_the_floor_is_measured_at_least_once_and_leaves_nothing(tmp_path: Path) -> None:
    floor = measure_floor(tmp_path, 300, 0.0)
    assert floor.p50 == floor.p99 > 0
    assert list(tmp_path.iterdir()) == []

"""The disk's floor, and the lines of the rows that are compared with it."""

from pathlib import Path

from bench.durable import Floor, ModeStats, Speed, measure_floor


def test_the_floor_is_measured_at_least_once_and_leaves_nothing(tmp_path: Path) -> None:
    floor = measure_floor(tmp_path, 300, 0.0)
    assert floor.p50 == floor.p99 > 0
    assert list(tmp_path.iterdir()) == []


def test_the_lines_have_ratios_and_the_distance_to_the_floor() -> None:
    row = Speed("log-pub-1", "pub", 1, {("os", "Go in memory"): 0.9})
    always, mode_os, go = (ModeStats(rate, 50_000, 250_000, 900_000) for rate in (3000, 9000, 10_000))
    lines = list(row._lines({"always": always, "os": mode_os, "Go in memory": go}))
    assert [line.compared for line in lines] == ["0.33x os, 0.30x Go in memory", "0.90x Go in memory", ""]
    assert [line.aim for line in lines] == ["", ">= 0.9x Go in memory", ""]
    assert "CPU 50.0 us, p50 250 us, p99 0.90 ms" in lines[0].measured
    line = row._floor_line(always, [Floor(110_000, 130_000, 40_000), Floor(100_000, 1, 1), Floor(190_000, 1, 1)])
    assert line.what == "floor: write and sync 297 B"
    assert (line.compared, line.aim) == ("always: p50 +140 us", "p50 <= +90 us")

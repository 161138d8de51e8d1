"""The lake's manifests, which are plain files: written, read back and refused."""

import json
from math import floor, log
from pathlib import Path

import pytest

from pipeline.lake import Batch, Lake, LakeError, Range, gaps
from pipeline.report import Sum


def made(first: int, last: int, count: int | None = None, topic: str = "t") -> Range:
    total = last - first + 1 if count is None else count
    return Range(topic, "1", "log", first, last, total, 100, "2026-11-21T10:00:00Z", "2026-11-21T10:01:00Z")


def batch(number: int, *ranges: Range) -> Batch:
    return Batch(f"batch={number:010d}", f"archive/batch={number:010d}", (number,), ranges)


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    lake = Lake(tmp_path / "lake")
    lake.create()
    return lake


def test_what_is_finished_is_there(lake: Lake) -> None:
    first, second = batch(0, made(0, 9)), batch(1, made(10, 19))
    lake.finish(second)
    lake.finish(first)
    lake.finish(first)  # done again
    assert lake.batches() == [first, second]
    assert gaps(lake.batches()) == []
    lake.create()  # it is there already
    lake.check()


def test_what_was_compacted_is_there_once_whatever_is_left_of_it(lake: Lake) -> None:
    for number in range(3):
        lake.finish(batch(number, made(number * 10, number * 10 + 9)))
        (lake.root / "archive" / f"batch={number:010d}").mkdir(parents=True)
    whole = Batch("0000000000-0000000001", "compact/0000000000-0000000001", (0, 1), (made(0, 19),))
    lake.finish(whole)
    assert [one.batches for one in lake.batches()] == [(0, 1), (2,)]
    lake.remove_compacted()
    assert [one.batches for one in lake.batches()] == [(0, 1), (2,)]
    assert [path.name for path in (lake.root / "archive").iterdir()] == ["batch=0000000002"]
    assert sum(one.count for one in lake.batches()) == 30


def test_gaps_are_reported_and_one_job_works_at_a_time(lake: Lake) -> None:
    ranges = (made(0, 9), made(15, 19), made(20, 29, count=8), made(0, 4, topic="u"))
    assert gaps([batch(number, one) for number, one in enumerate(ranges)]) == [
        "t on node 1: offsets 10 to 14",
        "t on node 1: 2 of 20 to 29",
    ]
    with lake.locked_by("archive"):
        with pytest.raises(LakeError, match="another archive is running in"), lake.locked_by("archive"):
            raise AssertionError("it is held")
        with lake.locked_by("rollup"):
            pass


def test_foreign_directories_are_refused(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("x")
    with pytest.raises(LakeError, match="is not empty and not a lake"):
        Lake(tmp_path).create()
    with pytest.raises(LakeError, match="is not a lake"):
        Lake(tmp_path).check()
    (tmp_path / "lake.json").write_text('{"lake": 99}')
    with pytest.raises(LakeError, match="version 99"):
        Lake(tmp_path).check()


def test_a_checkpoint_and_a_manifest_of_other_jobs_are_named(lake: Lake) -> None:
    path = lake.checkpoint("archive", {"topics": "a"})
    assert lake.checkpoint("archive", {"topics": "a"}) == path
    with pytest.raises(LakeError, match="with another topics"):
        lake.checkpoint("archive", {"topics": "b"})
    (lake.manifests / "batch=0000000000.json").write_text(json.dumps({"path": "x"}))
    with pytest.raises(LakeError, match=r"batch=0000000000\.json is not a valid manifest"):
        lake.batches()


def test_percentiles_of_buckets_are_right_within_four_percent() -> None:
    total = Sum()

    for size in range(1, 10_001):
        total.add({"messages": 1, "bytes": size, "largest": size, "sizes": [(floor(log(size) / log(1.04)), 1)]})
    for share in (0.5, 0.95, 0.99):
        assert abs(total.percentile(share) - share * 10_000) < 0.04 * share * 10_000
    assert total.percentile(1) <= total.largest

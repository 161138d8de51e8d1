"""A node is started without the options of its cluster, and channels are attached in slices."""

from pathlib import Path

import pytest

from nsqd.start.clustering import AT_ONCE, SLICE, for_a_slice
from nsqd.start.front_ends import _warn_unserved
from tests.nsqd.cluster.test_early import promoted


def test_without_a_cluster_promoted_logs_are_not_served(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    _warn_unserved(tmp_path)
    (tmp_path / "promoted" / "no log").mkdir(parents=True)
    _warn_unserved(tmp_path)
    assert not caplog.records
    promoted(tmp_path)
    _warn_unserved(tmp_path)
    (record,) = caplog.records
    assert record.levelname == "WARNING"
    assert f"1 logs of other nodes, in {tmp_path / 'promoted'}, are not served" in record.getMessage()


def test_channels_are_attached_for_a_slice_of_a_turn_at_least_a_few() -> None:
    now, left, limits = [0], [10], list[int]()

    def batch(limit: int) -> bool:
        limits.append(limit)
        now[0] += SLICE // 2
        left[0] -= 1
        return left[0] > 0

    assert for_a_slice(batch, lambda: now[0])
    assert limits == [AT_ONCE] * 2
    now[0], left[0] = 0, 1
    assert not for_a_slice(batch, lambda: now[0])
    left[0] = 2
    assert not for_a_slice(batch, lambda: now[0])

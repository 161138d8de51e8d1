"""What a node says when it is started without the options of its cluster."""

from __future__ import annotations

from pathlib import Path

import pytest

from nsqd.front_ends import _warn_unserved
from tests.nsqd.replication.test_early_owned import adopted


def test_a_node_without_a_cluster_says_that_it_does_not_serve_what_it_has_adopted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    _warn_unserved(tmp_path)
    (tmp_path / "adopted" / "no log").mkdir(parents=True)
    _warn_unserved(tmp_path)
    assert not caplog.records
    adopted(tmp_path)
    _warn_unserved(tmp_path)
    (record,) = caplog.records
    assert record.levelname == "WARNING"
    assert f"1 logs of other nodes, in {tmp_path / 'adopted'}, are not served" in record.getMessage()

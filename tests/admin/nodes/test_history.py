"""The history of a lake as the pipeline reports it, and failures on the way."""

from pathlib import Path
from typing import Any

import pytest

from admin.nodes import history
from admin.nodes.history import History, history_view
from shared.http.errors import HttpError
from tests.async_tests import on_asyncio
from tests.cases import each


def test_bars_are_as_high_as_they_should_be() -> None:
    view = history_view({"grain": "hour", "step": 3600, "from": 7200, "messages": [5, 0, 10], "bytes": [50, 0, 100]})
    assert [(bar["at"], bar["messages"], bar["height"]) for bar in view["bars"]] == [
        (7200 * 10**9, 5, 50.0), (10_800 * 10**9, 0, 0.0), (14_400 * 10**9, 10, 100.0),
    ]  # fmt: skip
    assert view["largest"] == 10


@each("data", [
    {}, {"messages": 7, "bytes": [1]}, {"messages": ["x", None], "bytes": [1, 2], "step": -5, "from": "y"},
    {"topics": [{"topic": 7}, 3], "channels": [{"channel": None, "finished": "x"}], "producers": {}},
])  # fmt: skip
def test_whatever_the_pipeline_reports(data: dict[str, Any]) -> None:
    view = history_view(data)
    assert all(isinstance(bar["messages"], int) for bar in view["bars"])


@pytest.mark.process
@on_asyncio
async def test_the_error_of_an_invalid_lake_and_a_timeout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(HttpError, match="penstock pipeline history: ") as found:
        await History(str(tmp_path)).rollups("t", "hour")
    assert found.value.status == 502
    with pytest.raises(HttpError) as found:
        await History(str(tmp_path)).rollups("t", "century")
    assert found.value.status == 400
    monkeypatch.setattr(history, "TIMEOUT", 0.001)
    with pytest.raises(HttpError, match="took longer"):
        await History(str(tmp_path)).rollups("t", "hour")

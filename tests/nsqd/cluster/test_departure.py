"""The last lines of a node that leaves: they show an operator which of its logs may lack messages."""

from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from nsqd.cluster.departure import Departure
from nsqd.cluster.ownership.leaving import LeavingState
from tests.cases import each

LOG = b"l" * 16
NOTHING: dict[str, Any] = {"state": LeavingState.TRANSFERRING, "lacking": [], "to_transfer": [], "left_behind": []}
LINES = (
    "this node has left the cluster",
    "may lack messages",
    "ends as the leader of its log",
    "which no node leads",
    "no other node is connected",
)


@each("changed, said", [
    ({}, ()), ({"state": LeavingState.LEFT}, LINES[:1]), ({"lacking": [LOG]}, LINES[1:2]),
    ({"to_transfer": [LOG]}, LINES[2:3]), ({"left_behind": [LOG]}, LINES[3:4]),
    ({"state": LeavingState.GAVE_UP}, LINES[4:]), ({"state": LeavingState.GAVE_UP, "left_behind": [LOG]}, LINES[3:4]),
])  # fmt: skip
def test_the_last_lines(caplog: pytest.LogCaptureFixture, changed: dict[str, Any], said: tuple[str, ...]) -> None:
    caplog.clear()
    caplog.set_level("INFO", "penstock")
    ended: list[bool] = []
    unused: Any = None
    departure = Departure(unused, unused, unused, unused, Mock(), unused, lambda: ended.append(True))
    leaving: Any = SimpleNamespace(**NOTHING | changed)
    departure.end(leaving)
    assert ended == [True]
    assert tuple(one for one in LINES if any(one in line for line in caplog.messages)) == said

"""What the monitor finds while no page is open."""

from __future__ import annotations

from admin.merge import JsonObject
from admin.monitor import _figures_of


def test_figures_of_an_original_node() -> None:
    one: JsonObject = {"depth": 2, "in_flight_count": 1, "deferred_count": 4, "client_count": 1}
    topic = {"topic_name": "t", "depth": 3, "message_count": 9, "channels": [one]}
    answer = _figures_of([topic])
    assert answer["totals"]["depth"] == 5
    assert answer["columns"] == {"held": [10], "buried": [0]}

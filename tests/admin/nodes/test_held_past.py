"""Changes of the backlogs of original nodes over the last minutes, while pages are open."""

import pytest

from admin.nodes import held_past
from admin.nodes.held_past import EVERY, SPAN, HeldPast
from admin.nodes.merge import topic_of
from shared.json_fields import JsonObject

T0 = 1_800_000_000  # s


def topic(depth: int, node: str = "a:1", *, own: int = 0) -> JsonObject:
    channel = {"channel_name": "c", "depth": depth, "in_flight_count": 2, "deferred_count": 1}
    return topic_of({"topic_name": "t", "depth": own, "channels": [channel]}, node, "h", 0)


def backlog(channel: str, depth: int, change: int | None, seconds: int) -> JsonObject:
    return {"channel": channel, "depth": depth, "change": change, "seconds": seconds}


def test_a_change_is_that_of_minutes() -> None:
    held = HeldPast()
    held.note([topic(100)], T0)
    assert held.backlogs(topic(100), T0) == [backlog("", 0, None, 0), backlog("c", 100, None, 0)]
    for second in range(2, 600, 2):
        held.note([topic(100 + second)], T0 + second)
    [_, one] = held.backlogs(topic(700, own=3), T0 + 600)
    assert SPAN - EVERY <= one["seconds"] <= SPAN
    assert one == backlog("c", 700, one["seconds"], one["seconds"])
    assert held.ages(topic(700), T0 + 600) == {"channels": {"c": 0}, "changes": {"c": [one["seconds"]] * 2}}
    assert held.ages(topic(700, "b:1"), T0 + 600) == {"channels": {"c": 0}, "changes": {}}
    assert held.ages(topic(700), T0 + 600 + SPAN)["changes"] == {}, "no page was open for too long"


def test_samples_after_a_clock_that_is_set_back_are_forgotten() -> None:
    held = HeldPast()
    held.note([topic(100)], T0)
    held.note([topic(90)], T0 - 1000)
    assert held.backlogs(topic(80), T0 - 990)[1] == backlog("c", 80, -10, 10)


def test_the_number_of_channels_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(held_past, "MOST", 4)
    held = HeldPast()
    for node in ("a:1", "b:1", "c:1"):
        held.note([topic(5, node)], T0)
    assert len(held._samples) == 4
    assert held.ages(topic(5), T0 + 9)["changes"] == {}
    assert held.ages(topic(5, "c:1"), T0 + 9)["changes"] == {"c": [0, 9]}

"""One look sums channels up over the nodes, and believes no figure that cannot be."""

from __future__ import annotations

from admin.snapshot import Snapshot
from tests.admin.looks import NOW, channel, topic


def row(**more: object) -> dict[str, object]:
    return {"topic": "t", "channel": "c", **more}


def test_a_channel_is_summed_up_over_the_nodes() -> None:
    look = Snapshot(NOW)
    look.add_attention("a:1", {"channels": [row(depth=3, buried=1, oldest=NOW, clients=1)]})
    look.add_attention("b:1", {"channels": [row(depth=4, oldest=NOW - 5, paused=True, paused_at=7)], "left_out": 2})
    assert look.channels == {
        ("t", "c"): channel(depth=7, buried=1, oldest=NOW - 5, clients=1, paused=True, paused_at=7_000_000_000)
    }
    assert look.left_out == 2


def test_topics_and_tubes() -> None:
    look = Snapshot(NOW)
    for node in ("a:1", "b:1"):
        listed = {"topics": [{"topic": "t", "depth": 2}], "tubes": [{"tube": "u", "buried": 3, "ready": 1}]}
        look.add_attention(node, listed)
    assert look.topics == {"t": topic(depth=4)}
    assert look.tubes == {("u", "a:1"): 3, ("u", "b:1"): 3}

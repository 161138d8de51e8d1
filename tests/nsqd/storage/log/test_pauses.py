"""A pause in the log: who paused what, when and until when, over a kill and over a checkpoint."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsqd.core import records
from nsqd.core.pauses import MOST_BY
from nsqd.core.timing.pause import NOT_KNOWN, Pause, dump_pause, load_pause
from shared.values import SECOND
from tests.nsqd.storage.log.test_damage import open_node
from tests.nsqd.storage.sim_disk import SimDisk
from tests.nsqd.storage.sim_node import SimNode

SECONDS = st.integers(0, 2**63)
PAUSES = st.builds(Pause, st.text(max_size=MOST_BY), SECONDS, SECONDS)


@given(st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1), st.none() | PAUSES)
def test_a_pause_is_read_as_it_was_written(topic: int, channel: int, pause: Pause | None) -> None:
    content = records.pack_pause(topic, channel, pause)
    assert records.CHANNEL_OF.unpack_from(content) == (topic, channel)
    assert records.unpack_pause(content) == pause
    assert load_pause(dump_pause(pause)) == pause


def test_pauses_of_format_8_are_read() -> None:
    assert records.unpack_pause(records.PAUSE.pack(1, 2, True)) == NOT_KNOWN
    assert records.unpack_pause(records.PAUSE.pack(1, 2, False)) is None
    assert (load_pause(True), load_pause(False)) == (NOT_KNOWN, None)


@pytest.mark.parametrize("end", ["kill", "checkpoint"])
def test_a_restart_keeps_them(end: str) -> None:
    disk = SimDisk(Random(1))
    node = open_node(disk, tail_records=5 if end == "checkpoint" else 1 << 30)
    topic = node.broker.topic("t")
    kept, resumed = topic.channel("kept"), topic.channel("resumed")
    at = node.broker.wall // SECOND

    def pause(node: SimNode) -> None:
        node.broker.pause(topic, True, "ann", at + 60)
        node.broker.pause(kept, True, "bob")
        node.broker.pause(resumed, True, "eve", at + 60)

    node.turn(lambda: pause(node))
    node.turn(lambda: node.broker.pause(resumed, False))
    if end == "checkpoint":
        node.log.close()
        assert node.log.upkeep is not None
        assert node.log.upkeep.checkpoints.written > 0
    other = open_node(disk.kill())
    expected = {("t", ""): Pause("ann", at, at + 60), ("t", "kept"): Pause("bob", at, 0)}
    assert other.broker.registry.pauses.details == expected
    assert other.broker.topics["t"].paused == expected["t", ""]
    assert other.broker.topics["t"].channels["resumed"].paused is None
    assert other.broker.end_pauses(at + 60, 9) == [("t", "")]
    other.turn()
    other.broker.check()
    again = open_node(other.disk.kill())
    assert again.broker.topics["t"].paused is None

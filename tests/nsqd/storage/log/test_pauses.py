"""A pause in the log: who paused what, when and until when, over a kill and over a checkpoint."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsqd.commands.verify import _as_json, _text
from nsqd.core import records
from nsqd.core.pauses import MOST_BY
from nsqd.core.timing.pause import Pause, dump_pause, load_pause
from nsqd.core.work_queue.pausable import LONGEST_PAUSE
from nsqd.storage.log.verify import verify
from shared.values import SECOND
from tests.nsqd.storage.log.test_damage import open_node
from tests.nsqd.storage.sim_disk import SimDisk
from tests.nsqd.storage.sim_node import SimNode

SECONDS = st.integers(0, 2**63)
WAYS = st.sampled_from(((True, False), (False, True), (True, True)))  # the paused directions of a queue
PAUSES = st.builds(
    lambda by, at, until, ways: Pause(by, at, until, *ways), st.text(max_size=MOST_BY), SECONDS, SECONDS, WAYS
)


@given(st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1), st.none() | PAUSES)
def test_a_pause_is_read_as_it_was_written(topic: int, channel: int, pause: Pause | None) -> None:
    content = records.pack_pause(topic, channel, pause)
    assert records.CHANNEL_OF.unpack_from(content) == (topic, channel)
    assert (records.unpack_pause(content), load_pause(dump_pause(pause))) == (pause, pause)


def restarted(node: SimNode, end: str) -> SimNode:
    if end == "checkpoint":
        node.log.close()
        assert node.checkpoints > 0
    return open_node(node.disk.kill())


@pytest.mark.parametrize("end", ["kill", "checkpoint"])
def test_a_restart_keeps_them(end: str) -> None:
    node = open_node(SimDisk(), tail_records=5 if end == "checkpoint" else 1 << 30)
    topic = node.broker.topic("t")
    kept, resumed = topic.channel("kept"), topic.channel("resumed")
    at = node.broker.wall // SECOND

    def pause(node: SimNode) -> None:
        node.broker.pause(topic, True, "ann", at + 60)
        node.broker.pause(kept, True, "bob")
        node.broker.pause(resumed, True, "eve", at + 60)

    node.turn(lambda: pause(node))
    node.turn(lambda: node.broker.pause(resumed, False))
    other = restarted(node, end)
    expected = {("t", ""): Pause("ann", at, at + 60), ("t", "kept"): Pause("bob", at, 0)}
    assert other.broker.registry.pauses.details == expected
    assert other.broker.topics["t"].paused == expected["t", ""]
    assert other.broker.topics["t"].channels["resumed"].paused is None
    assert other.broker.end_pauses(at + 60, 9) == [("t", "")]
    other.turn()
    other.broker.check()
    again = open_node(other.disk.kill())
    assert again.broker.topics["t"].paused is None


OUT, INTO, ALL = Pause("ann", 7, 0), Pause("10.0.0.1", 7, 0, out=False, into=True), Pause("", 7, 0, into=True)


@pytest.mark.parametrize("end", ["kill", "checkpoint"])
def test_a_restart_keeps_pauses_of_queues_and_no_others(end: str) -> None:
    node = open_node(SimDisk(), tail_records=5 if end == "checkpoint" else 1 << 30)
    pauses = {"out": OUT, "into": INTO, "all": ALL, "none": None, "ended": None, "in": INTO}

    def pause(node: SimNode) -> None:
        made = node.broker.tubes.made
        for name, paused in pauses.items():
            made(name).pause_queue(paused)
        made("none").pause_for(60 * SECOND, node.clock.now)
        made("ended").pause_queue(OUT)
        made("ended").pause_for(60 * SECOND, node.clock.now)  # pause-tube ends that of the queue
        made("in").pause_queue(ALL)
        made("in").pause_for(0, node.clock.now)

    node.turn(lambda: pause(node))
    other = restarted(node, end)
    tubes = {name: other.broker.tubes.made(name) for name in pauses}
    assert {name: tube.paused for name, tube in tubes.items()} == {**pauses, "in": replace(ALL, out=False)}
    assert {name for name, tube in tubes.items() if tube.refuses_jobs} == {"into", "all", "in"}
    assert {name for name, tube in tubes.items() if tube.pause_until > other.clock.now} == {"out", "all"}
    assert {name: tube.pause_left(other.clock.now) for name, tube in tubes.items() if tube.is_held} == {
        "out": LONGEST_PAUSE, "all": LONGEST_PAUSE,
    }  # fmt: skip
    other.broker.check()
    other.turn(lambda: tubes["all"].pause_queue(None))
    again = open_node(other.disk.kill())
    assert again.broker.tubes.made("all").paused is None


def test_verify_reports_them() -> None:
    node = open_node(SimDisk())
    node.turn(lambda: node.broker.tubes.made("q").pause_queue(ALL), lambda: node.broker.tubes.made("r") and None)
    findings = verify(node.disk.kill(), lambda done, total: None)
    assert {topic.name: topic.queue_pause for topic in findings.topics} == {"q": "all", "r": ""}
    reported = _as_json(findings)["topics"]
    assert [topic.get("queue_paused") for topic in reported] == ["all", None]
    assert "  tube: 0 ready, 0 delayed, 0 buried; the queue is paused: all" in _text(findings).splitlines()

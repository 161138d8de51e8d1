"""Offsets never change: an unfinished message has the ordinal in its log that it had when it was first found there."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nsqd.cluster.promotion.promoted_log import ATTACHING
from nsqd.core.broker import Broker
from nsqd.storage.log.locations import read_frames
from nsqd.storage.log.opening import OpenLog
from tests.simulation.books import number_of

if TYPE_CHECKING:
    from tests.simulation.cluster import ClusterRun
    from tests.simulation.machine import Machine

Key = tuple[bytes, str, int]  # log id, topic, number of the publish


class Offsets:
    """The ordinals of the messages of one run."""

    def __init__(self, run: ClusterRun) -> None:
        self._run = run
        self._known: dict[Key, int] = {}

    def judge(self) -> None:
        """Compare the messages that leaders have with what was found before. AssertionError if one has another ordinal."""
        for machine in self._run.machines:
            for log_id, broker, opened in _logs(machine):
                self._judge_log(log_id, broker, opened)

    def _judge_log(self, log_id: bytes, broker: Broker, opened: OpenLog) -> None:
        for topic in broker.topics.values():
            if topic.name not in self._run.channel_topics():
                continue
            for ordinal, body in _messages(opened, topic.number):
                publish = self._run.books.publishes[number_of(body)]
                first = self._known.setdefault((log_id, topic.name, publish.number), ordinal)
                assert first == ordinal, f"the offset of {publish} was {first}, and is {ordinal}"
                self._run.books.counts["offsets compared"] += 1


def _logs(machine: Machine) -> list[tuple[bytes, Broker, OpenLog]]:
    node = machine.node
    if node is None:
        return []
    found = [(machine.log_id, node.broker, node.log)]
    for log_id, one in node.promoted.promotions.logs.items():
        if one.broker in node.broker.logs and one.state != ATTACHING and one.log is not None:
            found.append((log_id, one.broker, one.log))
    return found


def _messages(opened: OpenLog, topic: int) -> list[tuple[int, bytes]]:
    """Return the messages of a topic that are on disk, each with its ordinal."""
    sequence = opened.store.find_sequence(topic)
    found: list[tuple[int, bytes]] = []
    for stored in sequence.live() if sequence is not None else ():
        try:
            frames = read_frames(opened.disk, opened.writer.files, topic, stored, list(stored.locations)).frames
        except OSError:
            continue
        found += [(stored.first + at, frame[34:]) for at, frame in enumerate(frames) if frame]
    return found

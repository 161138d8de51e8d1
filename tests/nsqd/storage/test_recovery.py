"""States of a log become topics of a broker that runs already, one a turn."""

from dataclasses import replace

import pytest

from nsqd.core.broker import Broker
from nsqd.core.recovery import LogSnapshot, NameTaken, Recovery, recover
from shared.topic_config import Durability
from tests.nsqd.storage.sim_disk import SimDisk
from tests.nsqd.storage.sim_node import Clock, SimNode


class Late:
    """A node that was started with the first topic of its log, and the other topics of the log."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *names: str, tail_records: int = 1 << 30) -> None:
        clock = Clock()
        node = SimNode(SimDisk(), Durability.ALWAYS, clock)
        for name in names:
            node.broker.topic(name).channel("c")
            node.broker.topic(name).publish([name.encode()], 1)
            node.turn()
        monkeypatch.setattr("tests.nsqd.storage.sim_node.recover", self._recover)
        self.node = SimNode(node.disk.kill(), Durability.ALWAYS, clock, tail_records=tail_records)

    def _recover(self, broker: Broker, picture: LogSnapshot, now: int) -> None:
        recover(broker, replace(picture, topics=picture.topics[:1]), now)
        self.rest = replace(picture, topics=picture.topics[1:])

    def bodies(self, topic: str) -> list[bytes]:
        _, inbox = self.node.subscribe(topic, "c")
        self.node.eager = True
        self.node.advance(0)
        return [delivery.body for delivery in inbox.take()]


def test_topics_come_one_a_turn_while_others_deliver(monkeypatch: pytest.MonkeyPatch) -> None:
    late = Late(monkeypatch, "a", "b", "c")
    node, recovery = late.node, Recovery(late.node.broker, late.rest)
    assert late.bodies("a") == [b"a"]
    node.turn(lambda: node.broker.topic("new").publish([b"new"], 3))
    assert recovery.recover_batch(node.clock.now)
    assert (list(node.broker.topics), late.bodies("b")) == (["a", "new", "b"], [b"b"])
    assert not recovery.recover_batch(node.clock.now)
    assert late.bodies("c") == [b"c"]
    numbers = [number for topic in node.broker.topics.values() for number in (topic.number, *topic.readers)]
    assert len(set(numbers)) == len(numbers)
    node.broker.check()


def test_a_name_that_is_there_already_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    late = Late(monkeypatch, "a", "b")
    recovery = Recovery(late.node.broker, late.rest)
    late.node.broker.topic("b")
    with pytest.raises(NameTaken, match="there is a topic b already"):
        Recovery(late.node.broker, late.rest)
    with pytest.raises(NameTaken, match="there is a topic b already"):
        recovery.recover_batch(late.node.clock.now)
    late.node.broker.delete_topic("b")
    assert not recovery.recover_batch(late.node.clock.now)
    assert late.bodies("b") == [b"b"]


def test_a_number_that_is_taken_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    late = Late(monkeypatch, "a", "b")
    late.rest.topics[0].number = late.node.broker.topics["a"].number
    with pytest.raises(NameTaken, match="the number 1 of topic b is another's"):
        Recovery(late.node.broker, late.rest)


@pytest.mark.parametrize("is_stopped", [False, True])
def test_no_checkpoint_is_begun_that_would_not_know_of_a_topic(
    monkeypatch: pytest.MonkeyPatch, is_stopped: bool
) -> None:
    late = Late(monkeypatch, "a", "b", tail_records=10)
    node = late.node

    def publish() -> None:
        for _ in range(30):
            node.turn(lambda: node.broker.topic("a").publish([b"x"], 1))
            node.syncer.step()

    publish()
    recovery = Recovery(node.broker, late.rest)
    publish()
    assert node.log.checkpoints.written == 0
    if is_stopped:
        node.log.close()
    else:
        assert not recovery.recover_batch(node.clock.now)
        publish()
        assert node.log.checkpoints.written
    monkeypatch.undo()
    again = SimNode(node.disk.kill(), Durability.ALWAYS, node.clock)
    assert sorted(again.broker.topics) == ["a", "b"]

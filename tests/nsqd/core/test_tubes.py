"""Tubes with NSQ's side of their topics, and what must not grow without bound."""

from collections.abc import Callable

from nsqd.core.limits import Limits
from nsqd.core.retention.policy import StoragePolicy
from nsqd.core.topic import Topic
from nsqd.core.tubes import MOST_WATCHED
from nsqd.core.work_queue.job import JobState
from shared.topic_config import TopicConfig
from tests.nsqd.core.node import SECOND, Node
from tests.nsqd.protocols.beanstalk.wire import Wire, facts, put


def test_a_topic_goes_with_its_tube_unless_it_has_more_whatever_is_retained() -> None:
    wire = Wire()
    broker = wire.node.broker
    spoilers: dict[str, Callable[[Topic], object]] = {
        "config": lambda topic: topic.configure(TopicConfig(retention=SECOND)),
        "published": lambda topic: topic.publish([b"x"], 1),
        "channel": lambda topic: topic.channel("c"),
        "nothing": lambda topic: None,
    }
    for name, spoil in spoilers.items():
        wire.ask(b"watch %s\r\nuse %s\r\n" % (name.encode(), name.encode()) + put(b"") + b"use default\r\n")
        spoil(broker.topics[name])
        wire.node.turn()
        while (found := wire.ask(b"reserve-with-timeout 0\r\n")) != b"TIMED_OUT\r\n":
            wire.ask(b"delete %s\r\n" % found.split()[1])
        wire.ask(b"ignore %s\r\n" % name.encode())
    broker.topic("made")
    wire.ask(b"use made\r\nuse default\r\n")
    assert set(broker.topics) == {"config", "published", "channel", "made"}
    broker.check()
    broker.tubes.check()
    wire = Wire(Node(Limits(policy=StoragePolicy(retention=SECOND))))
    topics = wire.node.broker.topics
    wire.ask(b"use q\r\npause-tube q 1\r\n")
    assert set(topics) == {"q"}
    wire.ask(b"use r\r\n" + put(b"") + b"reserve\r\ndelete 1\r\nuse default\r\n")
    assert set(topics) == {"r"}  # its jobs can be read back
    wire.node.broker.tubes.check()


def test_a_message_makes_the_tube_for_its_watchers_also_again() -> None:
    node = Node()
    first, second = Wire(node), Wire(node)
    assert node.broker.tubes.names_of_all() == []  # `default` is there for every client, and has nothing
    first.send(b"watch q\r\nreserve\r\n")
    node.publish("q", b"from NSQ")
    assert first.said() == b"WATCHING 2\r\nRESERVED 1 8\r\nfrom NSQ\r\n"
    node.broker.delete_topic("q")
    assert first.ask(b"peek 1\r\nreserve-with-timeout 0\r\n") == b"NOT_FOUND\r\nTIMED_OUT\r\n"
    first.send(b"reserve\r\n")
    node.publish("q", b"again")
    assert first.said() == b"RESERVED 2 5\r\nagain\r\n"
    first.send(b"watch r\r\nreserve\r\n")
    second.ask(b"use r\r\n" + put(b"job") + b"use again\r\n")
    assert first.said() == b"WATCHING 3\r\nRESERVED 3 3\r\njob\r\n"
    node.broker.tubes.made("made")
    assert node.broker.tubes.names_of_all() == ["q", "r", "made", "again"]
    node.broker.check()
    node.broker.tubes.check()


def test_going_round_leaves_no_trail_and_replies_of_a_turn_are_bounded() -> None:
    wire = Wire()
    wire.ask(put(b"x" * 60_000) * 5)
    for _ in range(30):
        wire.ask(b"reserve-job 3\r\nrelease 3 0 0\r\n" * 10)
        wire.ask(b"reserve-job 2\r\ntouch 2\r\nbury 2 0\r\nkick-job 2\r\n" * 3)
    wire.node.broker.tubes.check()  # its heaps are bounded by its jobs
    assert facts(wire.ask(b"stats-job 3\r\n"))["releases"] == "300"
    wire.peer.receive(b"peek 1\r\n" * 500, wire.node.now)
    assert sum(map(len, wire.peer.take_output())) < 1_300_000
    assert wire.peer.has_more


def test_a_long_backlog_comes_over_several_turns_and_one_worker_watches_so_many_tubes() -> None:
    node = Node()
    node.publish("t", *[b"x"] * 7000)
    wire = Wire(node)
    wire.peer.receive(b"watch t\r\n", node.now)
    tube = node.broker.tubes.tube("t")
    assert 0 < tube.table.counts[JobState.READY] < 7000
    node.turn()
    assert tube.table.counts[JobState.READY] == 7000
    node.broker.tubes.check()
    node = Node()
    wire = Wire(node)
    lines = [b"watch w%d\r\n" % number for number in range(MOST_WATCHED)]
    answers = wire.ask(b"".join(lines)).splitlines()
    assert answers[-2:] == [b"WATCHING %d" % MOST_WATCHED, b"OUT_OF_MEMORY"]
    assert node.broker.refused == {"max_watched_tubes": 1}
    assert wire.ask(b"watch w1\r\n") == b"WATCHING %d\r\n" % MOST_WATCHED  # it does already
    assert Wire(node).ask(b"watch another\r\n") == b"WATCHING 2\r\n"
    wire.leave()
    assert len(node.broker.tubes.listed.names) == 2
    node.broker.tubes.check()


def test_to_use_or_watch_a_tube_makes_no_topic() -> None:
    node = Node(Limits(max_topics=3))
    crowd, other = Wire(node), Wire(node)
    assert crowd.ask(b"watch a\r\nuse b\r\nwatch b\r\n") == b"WATCHING 2\r\nUSING b\r\nWATCHING 3\r\n"
    assert not node.broker.topics
    assert crowd.ask(b"list-tubes\r\n") == b"OK 22\r\n---\n- default\n- a\n- b\n\r\n"
    assert facts(crowd.ask(b"stats-tube a\r\n"))["current-watching"] == "1"
    assert crowd.ask(b"watch c\r\nuse c\r\n") == b"OUT_OF_MEMORY\r\n" * 2  # as many as there may be topics
    node.publish("x", b"")
    node.publish("y", b"")
    assert other.ask(put(b"1")) == b"INSERTED 3\r\n"  # the topic `default` is the third
    assert other.ask(b"watch x\r\nreserve\r\n") == b"WATCHING 2\r\nRESERVED 3 1\r\n1\r\n"
    assert set(node.broker.topics) == {"x", "y", "default"}
    node.broker.check()
    node.broker.tubes.check()

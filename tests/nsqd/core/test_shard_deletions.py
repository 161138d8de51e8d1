"""Deletions from one promoted log concern that log alone, by number."""

from nsqd.core.channel.inflight import NOT_IN_FLIGHT
from nsqd.core.message.deletion import Deletion, DeletionKind
from nsqd.core.shard_deletions import delete_from_promoted
from tests.nsqd.core.node import Node, bodies
from tests.nsqd.core.promoted import PromotedLog, promote

ENDLESS = 1 << 40


def delete(node: Node, log: PromotedLog, *deletions: Deletion) -> list[str]:
    done = delete_from_promoted(node.broker, log.broker, deletions)
    node.turn()
    node.broker.check()
    return done


def topic_of(log: PromotedLog, name: str = "t") -> Deletion:
    return Deletion(DeletionKind.TOPIC_DELETED, log.broker.topics[name].number)


def channel_of(log: PromotedLog, kind: DeletionKind, ordinal: int = ENDLESS, channel: str = "c") -> Deletion:
    topic = log.broker.topics["t"]
    return Deletion(kind, topic.number, topic.channels[channel].number, ordinal)


def test_a_channel_goes_and_the_home_channel_of_its_name_keeps_its_messages_and_consumers(node: Node) -> None:
    consumer, inbox = node.subscribe("t", "c", ready=2)
    log, other = promote(node, 8, "t", "c", b"a", b"b", b"c"), promote(node, 9, "t", "c", b"x")
    deletion = channel_of(log, DeletionKind.CHANNEL_DELETED)
    first = inbox.take()
    assert bodies(first) == [b"a", b"b"]
    node.publish("t", b"own")
    assert delete(node, log, deletion) == ["the channel c of the topic t"]
    assert not inbox.gone
    assert {*bodies(inbox.take())} == {b"own", b"x"}
    assert consumer.finish(first[0].id) == [(first[0].id, NOT_IN_FLIGHT)]
    assert node.channel("t", "c").shards[1:] == (other.broker.topics["t"].channels["c"],)
    assert delete(node, log, deletion) == [], "it may be repeated"


def test_a_channel_that_was_made_again_is_another_one_and_one_that_was_deleted_is_not_made_by_one_at_home(
    node: Node,
) -> None:
    log = PromotedLog(node, 8)
    log.channels("t", "c")
    deletion = channel_of(log, DeletionKind.CHANNEL_DELETED)
    log.broker.directory.delete_channel(log.broker.topics["t"], "c")
    log.publish("t", b"a")
    node.channel("t", "c")
    log.attach()  # messages that no channel had go to the local channels
    assert delete(node, log, deletion) == []
    _, inbox = node.subscribe("t", "c", ready=5)
    assert bodies(inbox.take()) == [b"a"]
    log.channels("t", "d")
    delete(node, log, channel_of(log, DeletionKind.CHANNEL_DELETED))
    node.broker.directory.delete_channel(node.broker.topics["t"], "c")
    assert node.subscribe("t", "c", ready=5)[1].take() == []
    assert list(log.broker.topics["t"].channels) == ["d"]


def test_a_channel_is_emptied_of_what_it_had_then(node: Node) -> None:
    _, inbox = node.subscribe("t", "c", ready=1)
    log = promote(node, 8, "t", "c", b"a", b"b")
    node.publish("t", b"own")
    number, shard = log.broker.topics["t"].number, log.broker.topics["t"].channels["c"]
    unknown = [
        Deletion(kind, topic, 99, 9) for kind in DeletionKind for topic in (number, 77) if (kind, topic) != (0, number)
    ]
    assert delete(node, log, *unknown) == []
    assert delete(node, log, channel_of(log, DeletionKind.CHANNEL_EMPTIED, 1)) == [], "it has been given b since"
    assert sum(shard.counts()) == 2
    emptied = channel_of(log, DeletionKind.CHANNEL_EMPTIED, 2)
    assert delete(node, log, emptied) == ["the messages of the channel c of the topic t"]
    assert delete(node, log, emptied) == []
    assert bodies(inbox.take())[1:] == [b"own"]
    assert shard.counts() == (0, 0, 0, 0)


def test_a_topic_is_deleted_with_its_tube_and_the_local_ones_stay(node: Node) -> None:
    _, inbox = node.subscribe("t", "c", ready=1)
    node.broker.tubes.made("t")
    log = PromotedLog(node, 8)
    log.channels("t", "c")
    log.broker.tubes.made("t")
    log.publish("t", b"job", b"another")
    log.attach()
    promote(node, 9, "t", "c", b"x")
    node.publish("t", b"own")
    inbox.take()
    home = node.broker.tubes.tube("t")
    assert len(home.shards) == 2
    assert delete(node, log, topic_of(log)) == ["the topic t"]
    assert not inbox.gone
    assert "t" not in log.broker.topics
    assert len(node.broker.topics["t"].shards) == 2
    assert (home.shards, home.jobs.count) == ((home,), 1)
    assert "t" in node.broker.tubes.names_of_all()
    node.channel("t", "e")


def test_a_topic_is_emptied_of_what_home_channels_were_given_since_and_of_nothing_else(node: Node) -> None:
    log = promote(node, 8, "t", "c", b"before")
    topic = log.broker.topics["t"]
    log.broker.pause(topic, True)
    emptied = Deletion(DeletionKind.TOPIC_EMPTIED, topic.number, 0, 1)
    log.publish("t", b"x")
    assert delete(node, log, emptied) == ["the messages that no channel of the topic t had"]
    log.publish("t", b"a", b"b")
    log.channels("t", "d")  # which begins with these two
    log.broker.set_pause(topic, None)
    node.turn()
    delete(node, log, emptied)
    assert topic.channels["d"].counts() == (0, 0, 0, 0)
    assert topic.channels["c"].depth == 3, "its messages cannot be distinguished"

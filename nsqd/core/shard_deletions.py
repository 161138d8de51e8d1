"""Apply to a promoted log the deletions at the node that published into it, while that node was partitioned.

Only the topics and channels of the promoted log are touched, by their numbers. The topics and channels of the same names in the
node's own broker stay, with the messages of the node's own log and of other promoted logs.

See docs/contributing/design/cluster-protocol.md#deletions.
"""

from collections.abc import Iterable

from nsqd.core.broker import Broker
from nsqd.core.channel.channel import Channel
from nsqd.core.message.deletion import Deletion, DeletionKind
from nsqd.core.topic import Topic
from nsqd.core.work_queue.tube import Tube


def delete_from_promoted(node: Broker, promoted: Broker, deletions: Iterable[Deletion]) -> list[str]:
    """Delete and empty topics and channels of a promoted log, within a turn. Returns what was there to be deleted, in words.

    `promoted` must have joined the turns of `node`, the node's own broker. At the point that the deletions name, it must have
    diverged from the copy in which they were done (`LogDeletions.holds_for`): then all its messages were known there. The call
    may be repeated.
    """
    done = []
    for one in deletions:
        topic = promoted.directory.by_number.get(one.topic)
        if topic is None:
            continue
        if one.kind is DeletionKind.TOPIC_DELETED:
            done.append(f"the topic {topic.name}")
            _delete_topic(node, promoted, topic)
        elif one.kind is DeletionKind.TOPIC_EMPTIED:
            done += _empty_topic(topic, one.ordinal)
        else:
            done += _delete_of_channel(promoted, topic, one)
    return done


def _delete_topic(node: Broker, promoted: Broker, topic: Topic) -> None:
    local = node.topics.get(topic.name)
    if local is not None:
        local.shards = tuple(one for one in local.shards if one is not topic)
    tube = node.tubes.tube(topic.name)
    for reader in list(topic.readers.values()):
        if isinstance(reader, Tube) and reader.key < 0:
            reader.end_shard(tube)
    promoted.delete_topic(topic.name)
    if tube is not None:
        node.tubes.listed.show(topic.name)  # the tube that has gone was shown under the same name


def _empty_topic(topic: Topic, first: int) -> list[str]:
    """Drop the messages from the ordinal `first` on: those that no reader has, and those that the local channels were given.

    A reader that had messages before `first` keeps all: what it was given since cannot be distinguished.
    """
    if first >= topic.offsets.end:
        return []
    had_any = topic.depth > 0
    topic.empty()
    for channel in topic.channels.values():
        if channel.start >= first and any(channel.counts()):
            channel.empty()
            had_any = True
    return [f"the messages that no channel of the topic {topic.name} had"] if had_any else []


def _delete_of_channel(promoted: Broker, topic: Topic, deletion: Deletion) -> list[str]:
    channel = topic.readers.get(deletion.channel)
    if not isinstance(channel, Channel):
        return []
    if deletion.kind is DeletionKind.CHANNEL_DELETED:
        promoted.directory.delete_channel(topic, channel.name)
        return [f"the channel {channel.name} of the topic {topic.name}"]
    if topic.offsets.distributed > deletion.ordinal or not any(channel.counts()):
        return []  # the topic was paused then, and the channel has been given messages since that it did not have
    channel.empty()
    return [f"the messages of the channel {channel.name} of the topic {topic.name}"]

"""The topics of a node, by name and by number, and how they are found, made and deleted."""

from collections.abc import Callable

from nsqd.core.channel.channel import Channel
from nsqd.core.channel.consumer import Consumer
from nsqd.core.node_context import NodeContext
from nsqd.core.registry import ChangeKind
from nsqd.core.topic import Topic
from penstock.protocol.names import is_valid_name
from shared.topic_config import TopicConfig


class Directory:
    """All topics of one node, found by name or number."""

    def __init__(self, context: NodeContext) -> None:
        self.context = context
        self.topics: dict[str, Topic] = {}
        self.named: dict[bytes, Topic] = {}  # the same topics, by the names as protocols read them
        self.by_number: dict[int, Topic] = {}  # the same topics, by number
        context.batches.topics = self.by_number
        self.ask_for_channels = False  # True: a new topic waits until Topic.start(), because nsqlookupd is asked first
        self.make_room: Callable[[], None] = lambda: None  # called before a topic is refused: it may delete one
        self.on_created: list[Callable[[Topic], None]] = []  # called with each new topic
        # called with the topic and the channel that is deleted; channel "": the topic
        self.on_deleted: list[Callable[[str, str], None]] = []
        # those of all logs, this one first: a deletion here applies to all
        self.shards: list[Directory] = [self]

    def topic(self, name: str) -> Topic:
        """Return the topic of that name, and create it if needed. The caller has checked the name. Raises TooMany."""
        topic = self.topics.get(name)
        if topic is None:
            registry = self.context.registry
            if len(self.topics) >= self.context.limits.max_topics:
                self.make_room()
            registry.admit_topic(len(self.topics))
            topic = self.promote(name, registry.next_number())
            topic.starting = self.ask_for_channels and is_valid_name(name)
            registry.note_change(ChangeKind.TOPIC_CREATED, name)
            for call in self.on_created:
                call(topic)
        return topic

    def promote(self, name: str, number: int, config: TopicConfig | None = None) -> Topic:
        """Make a topic with a number that it has already, as after a restart, without announcing it."""
        topic = self.topics[name] = Topic(name, number, self.context, config)
        self.named[name.encode()] = topic
        self.by_number[number] = topic
        return topic

    def delete(self, name: str) -> None:
        """Drop the topic with its channels, messages and connections, also from promoted logs."""
        self.drop(name)
        for call in self.on_deleted:
            call(name, "")
        for other in self.shards[1:]:
            if name in other.topics:
                other.delete(name)

    def drop(self, name: str) -> None:
        """Drop the topic of this log only."""
        topic = self.topics.pop(name)
        del self.named[name.encode()]
        del self.by_number[topic.number]
        topic.delete()
        if topic.maker is not None:
            topic.maker.topics -= 1
        registry = self.context.registry
        registry.pauses.forget((name, ""))
        registry.note_change(ChangeKind.TOPIC_DELETED, name)

    def delete_channel(self, topic: Topic, name: str) -> None:
        """Drop the channel, its messages and its connections. An ephemeral topic is deleted with its last channel."""
        is_useless = topic.delete_channel(name)
        for call in self.on_deleted:
            call(topic.name, name)
        for other in self.shards[1:]:
            shard = other.topics.get(topic.name)
            if shard is not None and name in shard.channels:
                other.delete_channel(shard, name)
        if is_useless:
            self.delete(topic.name)

    def unsubscribe(self, channel: Channel, consumer: Consumer) -> None:
        """Remove a consumer. An ephemeral channel is deleted with its last consumer."""
        if channel.unsubscribe(consumer):
            self.delete_channel(self.topics[channel.topic_name], channel.name)

    def check(self) -> None:
        """Raise AssertionError if an invariant of a topic or of the directory does not hold."""
        assert [name.encode() for name in self.topics] == list(self.named)
        assert list(self.by_number.values()) == list(self.topics.values())
        for name, topic in self.topics.items():
            assert topic.name == name
            assert self.named[name.encode()] is topic
            assert self.by_number[topic.number] is topic
            assert not topic.deleted
            topic.check()
        assert self.context.registry.channel_count == sum(len(topic.channels) for topic in self.topics.values())

    def __repr__(self) -> str:
        return f"<Directory of {len(self.topics)} topics>"

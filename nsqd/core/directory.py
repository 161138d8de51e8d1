"""The topics of a node, by name and by number: found, made and deleted."""

from collections.abc import Callable

from nsqd.core.channel.channel import Channel
from nsqd.core.channel.consumer import Consumer
from nsqd.core.commons import Commons
from nsqd.core.registry import ChangeKind
from nsqd.core.retention.keeping import TopicConfig
from nsqd.core.topic import Topic
from penstock.protocol.names import is_valid_name


class Directory:
    """See above."""

    def __init__(self, commons: Commons) -> None:
        self.commons = commons
        self.topics: dict[str, Topic] = {}
        self.named: dict[bytes, Topic] = {}  # the same, by the names as protocols read them
        self.by_number: dict[int, Topic] = {}  # the same
        self.ask_for_channels = False  # True: a new topic waits until Topic.start() (nsqlookupd is asked)
        self.on_created: list[Callable[[Topic], None]] = []  # called with each new topic

    def topic(self, name: str) -> Topic:
        """The topic of that name, created if it is not there. The name is valid: protocols check it. Raises TooMany."""
        topic = self.topics.get(name)
        if topic is None:
            registry = self.commons.registry
            registry.admit_topic(len(self.topics))
            topic = self.adopt(name, registry.next_number())
            topic.starting = self.ask_for_channels and is_valid_name(name)
            registry.tell(ChangeKind.TOPIC_CREATED, name)
            for tell in self.on_created:
                tell(topic)
        return topic

    def adopt(self, name: str, number: int, config: TopicConfig | None = None) -> Topic:
        """A topic with that number, which nobody is told of: as after a restart."""
        topic = self.topics[name] = Topic(name, number, self.commons, config)
        self.named[name.encode()] = topic
        self.by_number[number] = topic
        return topic

    def delete(self, name: str) -> None:
        """Drop the topic with its channels, messages and connections."""
        topic = self.topics.pop(name)
        del self.named[name.encode()]
        del self.by_number[topic.number]
        topic.delete()
        registry = self.commons.registry
        registry.pauses.forget((name, ""))
        registry.tell(ChangeKind.TOPIC_DELETED, name)

    def delete_channel(self, topic: Topic, name: str) -> None:
        """Drop the channel, its messages and its connections. An ephemeral topic goes with its last channel."""
        if topic.delete_channel(name):
            self.delete(topic.name)

    def unsubscribe(self, channel: Channel, consumer: Consumer) -> None:
        """The consumer is gone. An ephemeral channel goes with its last one."""
        if channel.unsubscribe(consumer):
            self.delete_channel(self.topics[channel.topic_name], channel.name)

    def check(self) -> None:
        """Raise AssertionError if a sentence above is false."""
        assert [name.encode() for name in self.topics] == list(self.named)
        assert list(self.by_number.values()) == list(self.topics.values())
        for name, topic in self.topics.items():
            assert topic.name == name
            assert self.named[name.encode()] is topic
            assert self.by_number[topic.number] is topic
            assert not topic.deleted
            topic.check()
        assert self.commons.registry.channel_count == sum(len(topic.channels) for topic in self.topics.values())

    def __repr__(self) -> str:
        return f"<Directory of {len(self.topics)} topics>"

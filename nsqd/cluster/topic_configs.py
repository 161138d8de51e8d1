"""The configurations of topics, as one node knows them: for each topic the latest that an operator has set at any node.

They are merged by the greatest version (time, node number), so nodes that hear each other agree. A node uses them for the logs
that it has adopted: what was set while a log had no owner that heard of it holds as soon as somebody serves the log.

See docs/design/cluster.md#configurations-of-topics.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, replace

from nsqd.core.broker import Broker
from nsqd.core.retention.policy import TopicConfig
from nsqd.protocols.peer.configs import MOST_CONFIGS, MOST_VALUE, VersionedConfig


class TopicConfigs:
    """The configurations of at most MOST_CONFIGS topics: of more, those that were set last."""

    def __init__(self, known: Iterable[VersionedConfig] = ()) -> None:
        self.known: dict[str, VersionedConfig] = {word.topic: word for word in known}  # by topic

    def learn(self, word: VersionedConfig) -> bool:
        """Note the configuration of a topic. Returns True if it is news."""
        known = self.known.get(word.topic)
        if known is not None and known.version >= word.version:
            return False
        if known is None and len(self.known) >= MOST_CONFIGS:
            oldest = min(self.known.values(), key=lambda one: (one.version, one.topic))
            if (oldest.version, oldest.topic) > (word.version, word.topic):
                return False
            del self.known[oldest.topic]
        self.known[word.topic] = word
        return True

    def change(self, topic: str, config: TopicConfig, at: int, node: int) -> VersionedConfig:
        """Return the word that an operator has configured a topic at a node, at `at` (ms since the epoch); it is not noted yet.

        It is later than what is known, whatever the clocks say.
        """
        known = self.known.get(topic)
        least = known.at + 1 if known is not None else 0
        return VersionedConfig(topic, min(max(at, least), MOST_VALUE), node, config)

    def use_in(self, adopted: Broker) -> None:
        """Have the topics of an adopted log as they are configured now, within a turn."""
        for word in self.known.values():
            use(word, adopted)


def use(word: VersionedConfig, adopted: Broker) -> None:
    """Have a topic of an adopted log as `word` says, if the log has it, within a turn.

    A part that `word` leaves to the node's setting stays as the log has it: what the log retains is not given up by default.
    """
    topic = adopted.topics.get(word.topic)
    if topic is not None:
        given = {name: value for name, value in asdict(word.config).items() if value is not None}
        config = replace(topic.config, **given)
        if config != topic.config:
            topic.configure(config)

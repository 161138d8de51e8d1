"""How a topic's messages are kept: what an OK waits for, how long finished messages stay in the log, when one is given up.

The node has a StoragePolicy, and a number of attempts for each topic; a topic may override each part of it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from shared.topic_config import Durability, TopicConfig


@dataclass(frozen=True, slots=True)
class StoragePolicy:
    """The settings that apply to a topic, or to all topics without their own."""

    durability: Durability = Durability.ALWAYS
    retention: int = 0  # ns after its publish that a message stays, finished or not; 0: time does not bound it
    retention_bytes: int = 0  # bytes of the newest messages that stay; 0: size does not bound them
    replicate: int = 1  # nodes that must have a message before its publish is acknowledged, this one included

    @property
    def retains(self) -> bool:
        """Return True if finished messages stay. With both bounds they stay within both; with none they go at once."""
        return self.retention > 0 or self.retention_bytes > 0

    def over(self, config: TopicConfig) -> StoragePolicy:
        """Return the settings that apply to a topic with settings of its own, where these are the node's."""
        return replace(self, **{name: value for name, value in config.own.items() if hasattr(self, name)})

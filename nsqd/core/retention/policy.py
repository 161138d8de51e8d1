"""How a topic's messages are kept: what an OK waits for, how long finished messages stay in the log, when one is given up.

The node has a StoragePolicy, and a number of attempts for each topic; a topic may override each part of it.
"""

from dataclasses import dataclass
from enum import Enum

MOST_COPIES = 16  # for which a publish or a topic may ask


class Durability(Enum):
    """The guarantee behind an OK. See docs/operating.md for what each mode can lose."""

    ALWAYS = "always"  # the message is synced to disk
    INTERVAL = "interval"  # the message is written; the log is synced every sync-every messages or sync-timeout
    OS = "os"  # the message is written; the operating system decides when to sync


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


@dataclass(frozen=True, slots=True)
class TopicConfig:
    """A topic's own settings. None: the node's setting applies."""

    durability: Durability | None = None
    retention: int | None = None
    retention_bytes: int | None = None
    replicate: int | None = None
    max_attempts: int | None = None  # failures before a message is buried; 0: any number. See Limits.attempts

    def over(self, node: StoragePolicy) -> StoragePolicy:
        """Return the settings of the topic's storage that apply."""
        return StoragePolicy(
            node.durability if self.durability is None else self.durability,
            node.retention if self.retention is None else self.retention,
            node.retention_bytes if self.retention_bytes is None else self.retention_bytes,
            node.replicate if self.replicate is None else self.replicate,
        )

"""How a topic's messages are kept: what an OK waits for, and for how long finished messages stay in the log.

The node has a Keeping; a topic may have its own word on each part of it.
"""

from dataclasses import dataclass
from enum import Enum


class Durability(Enum):
    """What an OK means. See docs/operating.md for what each can lose."""

    ALWAYS = "always"  # the message is synced to disk
    INTERVAL = "interval"  # it is written; synced every sync-every messages or sync-timeout
    OS = "os"  # it is written; the system decides


@dataclass(frozen=True, slots=True)
class Keeping:
    """What holds for a topic, or for all that say nothing themselves."""

    durability: Durability = Durability.ALWAYS
    retention: int = 0  # ns after its publish that a message stays, finished or not; 0: time does not bound it
    retention_bytes: int = 0  # of messages that stay, the newest; 0: their size does not bound them

    @property
    def retains(self) -> bool:
        """Finished messages stay. With both bounds they stay within both; with none they go at once."""
        return self.retention > 0 or self.retention_bytes > 0


@dataclass(frozen=True, slots=True)
class TopicConfig:
    """A topic's own words. None: as the node's."""

    durability: Durability | None = None
    retention: int | None = None
    retention_bytes: int | None = None

    def over(self, node: Keeping) -> Keeping:
        """What holds for the topic."""
        return Keeping(
            node.durability if self.durability is None else self.durability,
            node.retention if self.retention is None else self.retention,
            node.retention_bytes if self.retention_bytes is None else self.retention_bytes,
        )

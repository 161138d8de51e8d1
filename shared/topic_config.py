"""The settings of a topic: one row each, from which everything that knows them follows.

A row of TopicConfig is the name, the type, the bounds and the meaning of a setting. /topic/config and /topic/create read and
show it, nsqadmin's form and the reference list it, the log, checkpoints and other nodes of a cluster store it. A new setting
is a row here, and the code that acts on it (nsqd/core/topic.py, apply_config).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from enum import Enum
from typing import Any

from penstock.protocol.nsq import MAX_ATTEMPTS
from shared.values import format_duration, parse_duration, whole_number

MOST_COPIES = 16  # for which a publish or a topic may ask
MOST = (1 << 62) - 1  # of any number
AS_NODE = "default"  # as a value: the node's setting applies


class Durability(Enum):
    """The guarantee behind an OK. docs/explanation/guarantees.md says what each mode can lose."""

    ALWAYS = "always"  # the message is synced to disk
    INTERVAL = "interval"  # the message is written; the log is synced every sync-every messages or sync-timeout
    OS = "os"  # the message is written; the operating system decides when to sync


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting of topics. Its values are whole numbers, or a Durability."""

    label: str  # its name in nsqadmin
    about: str  # what it does, in a sentence without a period
    expected: str  # what a value must be, after "must be"
    least: int = 0
    most: int = MOST
    is_duration: bool = False  # a number of ns, typed and shown as a duration
    choices: type[Durability] | None = None

    def read(self, text: str) -> Any:
        """Return the value that a text means. Raises ValueError."""
        if self.is_duration:
            return self.load(parse_duration(text))
        return self.choices(text) if self.choices is not None else whole_number(text, self.least, self.most)

    def show(self, value: Any) -> str | int:
        """Return a value as JSON shows it."""
        return format_duration(value) if self.is_duration else self.dump(value)

    def load(self, plain: Any) -> Any:
        """Return the value that `dump` has written. Raises ValueError for any other."""
        if self.choices is not None:
            return self.choices(plain)
        if type(plain) is not int or not self.least <= plain <= self.most:
            raise ValueError(f"expected {self.expected}")
        return plain

    def dump(self, value: Any) -> str | int:
        """Return a value as files and frames have it."""
        return value.value if isinstance(value, Durability) else value


def _row(*row: Any, **more: Any) -> Any:
    return field(default=None, metadata={"setting": Setting(*row, **more)})


@dataclass(frozen=True, slots=True)
class TopicConfig:
    """A topic's own settings. None: the node's setting applies."""

    durability: Durability | None = _row(
        "Durability", "What an OK waits for", "always, interval or os", choices=Durability
    )
    retention: int | None = _row(
        "Retention", "How long messages are kept, finished or not; 0: as long as they are needed",
        "a duration such as 36h, 90m or 0s", is_duration=True,
    )  # fmt: skip
    retention_bytes: int | None = _row(
        "Retention size (bytes)", "How many bytes of the newest messages are kept; 0: size does not bound them",
        "a whole number of bytes",
    )  # fmt: skip
    replicate: int | None = _row(
        "Copies", "How many nodes must have a message before its OK, this one included",
        f"a whole number from 1 to {MOST_COPIES}", 1, MOST_COPIES,
    )  # fmt: skip
    max_attempts: int | None = _row(
        "Attempts before burying", "After how many failures a message is buried; 0: never",
        f"a whole number from 1 to {MAX_ATTEMPTS}, or 0 for no limit", 0, MAX_ATTEMPTS,
    )  # fmt: skip

    @property
    def own(self) -> dict[str, Any]:
        """Return the values that are set, by name."""
        return {name: value for name in SETTINGS if (value := getattr(self, name)) is not None}


SETTINGS: Mapping[str, Setting] = {one.name: one.metadata["setting"] for one in fields(TopicConfig)}  # by name


def dump(config: TopicConfig) -> dict[str, str | int]:
    """Return the settings as files and frames have them: those that are set, by name."""
    return {name: SETTINGS[name].dump(value) for name, value in config.own.items()}


def load(plain: Any) -> TopicConfig:
    """Return the settings that `dump` has written. Unknown names, of a later version, are left out. Raises ValueError."""
    if not isinstance(plain, dict):
        raise ValueError("expected settings by name")
    return TopicConfig(**{name: SETTINGS[name].load(value) for name, value in plain.items() if name in SETTINGS})

"""The settings of a topic and its channels: one row each, from which everything that knows them follows.

A row of TopicConfig is the name, the type, the bounds and the meaning of a setting. /topic/config and /topic/create read and
show it, nsqadmin's form and the reference list it, the log, checkpoints and other nodes of a cluster store it. A new setting
is a row here, and the code that acts on it (nsqd/core/topic.py, apply_config; of readers, nsqd/core/reader.py, ReaderSettings).

Settings of readers hold for each channel of the topic, and for the tube of that name. One channel may have its own.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, fields, replace
from enum import Enum
from typing import Any

from penstock.protocol.names import is_ephemeral, is_valid_name
from penstock.protocol.nsq import MAX_ATTEMPTS
from shared.retry import Retry
from shared.values import format_duration, parse_duration, whole_number

MOST_COPIES = 16  # for which a publish or a topic may ask
MOST = (1 << 62) - 1  # of any number
MOST_CHANNELS = 100  # of a topic that have settings of their own
MOST_RATE = 1_000_000  # messages per second
MOST_TEXT = 100  # characters of a value
CHANNELS = "channels"  # the name under which files and frames have the settings of channels
AS_NODE = "default"  # as a value: the node's setting applies
NO_TOPIC = "none"  # in place of the name of a topic


class Durability(Enum):
    """The guarantee behind an OK. docs/explanation/guarantees.md says what each mode can lose."""

    ALWAYS = "always"  # the message is synced to disk
    INTERVAL = "interval"  # the message is written; the log is synced every sync-every messages or sync-timeout
    OS = "os"  # the message is written; the operating system decides when to sync


class Ordering(Enum):
    """In which order a channel delivers its messages."""

    NONE = "none"  # as its consumers can take them
    GROUP = "group"  # those with an equal header `group` one at a time, as they were published
    PRIORITY = "priority"  # the most urgent first, as the header `priority` says


class OnBury(Enum):
    """What becomes of an ordered group when one of its messages is buried."""

    SKIP = "skip"  # the next message of the group is delivered
    HOLD = "hold"  # the group waits until the buried message is finished or kicked


class OnExpire(Enum):
    """What happens to a message that is older than its topic's `ttl`."""

    DROP = "drop"
    BURY = "bury"
    FORWARD = "forward"  # to the dead-letter topic; without one it is buried


class Overflow(Enum):
    """What happens to a message that is published to a topic of the greatest length."""

    REFUSE = "refuse"  # it is not taken
    DROP_OLDEST = "drop-oldest"  # the oldest ready messages of each channel go instead
    BURY = "bury"  # each full channel buries it


class Switch(Enum):
    """Whether a channel does something that it can do without: it is off or on."""

    OFF = "off"
    ON = "on"


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting. Its values are whole numbers, members of an Enum, or of a class with `parse` and `str`."""

    label: str  # its name in nsqadmin
    about: str  # what it does, in a sentence without a period
    expected: str  # the values it may have, after "must be"
    least: int = 0
    most: int = MOST
    is_duration: bool = False  # a number of ns, typed and shown as a duration
    choices: type[Enum] | None = None
    parse: Callable[[str], Any] | None = None
    default: Any = None  # the value without one of its own; None: the node's flags say
    unit: str = ""  # may follow a number that is typed
    of_channels: bool = False  # a channel may have a value of its own, which holds there instead of the topic's

    @property
    def words(self) -> tuple[str, ...]:
        """Return the texts among which a value is chosen; () if it is none of a few."""
        return tuple(str(one.value) for one in self.choices or ())

    def read(self, text: str) -> Any:
        """Return the value that a text means. Raises ValueError."""
        if self.is_duration:
            return self.load(parse_duration(text))
        if self.choices is not None or self.parse is not None:
            return self.load(text)
        return whole_number(text.removesuffix(self.unit), self.least, self.most)

    def show(self, value: Any) -> str | int:
        """Return a value as JSON shows it."""
        return format_duration(value) if self.is_duration else self.dump(value)

    def load(self, plain: Any) -> Any:
        """Return the value that `dump` has written. Raises ValueError for any other."""
        if self.choices is not None:
            return self.choices(plain)
        if self.parse is not None and type(plain) is str and len(plain) <= MOST_TEXT:
            return self.parse(plain)
        if self.parse is not None or type(plain) is not int or not self.least <= plain <= self.most:
            raise ValueError(f"expected {self.expected}")
        return plain

    def dump(self, value: Any) -> str | int:
        """Return a value as files and frames have it."""
        if self.choices is not None:
            return str(value.value)
        return str(value) if self.parse is not None else int(value)


def _read_topic(text: str) -> str:
    """Return the name of a topic that keeps messages, or NO_TOPIC. Raises ValueError."""
    if text != NO_TOPIC and (not is_valid_name(text) or is_ephemeral(text)):
        raise ValueError("expected a topic")
    return text


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
        f"a whole number from 1 to {MAX_ATTEMPTS}, or 0 for no limit", 0, MAX_ATTEMPTS, of_channels=True,
    )  # fmt: skip
    retry: Retry | None = _row(
        "Retry", "How long a message that failed waits before its next delivery, if the consumer names no delay",
        "none, fixed(5s) or exponential(1s, 10m), with delays from 1ms to 30 days",
        parse=Retry.parse, default=Retry(), of_channels=True,
    )  # fmt: skip
    concurrency: int | None = _row(
        "Most in flight", "How many messages of a channel are in flight at most, at all its consumers together; 0: any number",
        "a whole number, or 0 for no limit", default=0, of_channels=True,
    )  # fmt: skip
    rate: int | None = _row(
        "Most per second", "How many messages a channel delivers in a second at most; 0: any number",
        f"a whole number from 1 to {MOST_RATE} such as 100 or 100/s, or 0 for no limit", 0, MOST_RATE, default=0,
        unit="/s", of_channels=True,
    )  # fmt: skip
    group_concurrency: int | None = _row(
        "Most in flight of a group", "How many messages of a `group` are in flight at most; 0: any number",
        "a whole number, or 0 for no limit", default=0, of_channels=True,
    )  # fmt: skip
    group_rate: int | None = _row(
        "Most per second of a group", "How many messages of a `group` a channel delivers in a second at most; 0: any number",
        f"a whole number from 1 to {MOST_RATE} such as 100 or 100/s, or 0 for no limit", 0, MOST_RATE, default=0,
        unit="/s", of_channels=True,
    )  # fmt: skip
    fair: Switch | None = _row(
        "Fair", "Whether messages of a `group` with more than a tenth of all in flight, and 30, wait behind others",
        "off or on", choices=Switch, default=Switch.OFF, of_channels=True,
    )  # fmt: skip
    ttl: int | None = _row(
        "Time to live", "How long after its publish a message may be delivered; 0: at any time",
        "a duration such as 36h, 90m or 0s", is_duration=True, default=0, of_channels=True,
    )  # fmt: skip
    on_expire: OnExpire | None = _row(
        "After that time", "Whether a message that is too old is dropped, buried, or sent to the dead-letter topic",
        "drop, bury or forward", choices=OnExpire, default=OnExpire.DROP, of_channels=True,
    )  # fmt: skip
    max_length: int | None = _row(
        "Most messages", "How many messages the fullest channel has at most, or how many jobs there are; 0: any number",
        "a whole number, or 0 for no limit", default=0,
    )  # fmt: skip
    max_bytes: int | None = _row(
        "Most bytes", "About how many bytes the messages of the fullest channel take at most, or the jobs; 0: any number",
        "a whole number of bytes, or 0 for no limit", default=0,
    )  # fmt: skip
    overflow: Overflow | None = _row(
        "When full", "Whether further messages are refused, the oldest ready ones of a channel dropped, or further ones buried",
        "refuse, drop-oldest or bury", choices=Overflow, default=Overflow.REFUSE,
    )  # fmt: skip
    ordering: Ordering | None = _row(
        "Ordering", "Whether messages of a `group` are delivered one at a time, or those of the most urgent `priority` first",
        "none, group or priority", choices=Ordering, default=Ordering.NONE, of_channels=True,
    )  # fmt: skip
    on_bury: OnBury | None = _row(
        "Burial in a group", "Whether an ordered group continues when one of its messages is buried (skip) or waits (hold)",
        "skip or hold", choices=OnBury, default=OnBury.SKIP, of_channels=True,
    )  # fmt: skip
    dead_letter: str | None = _row(
        "Dead-letter topic", "To which topic a channel sends messages that failed max_attempts times; none: it buries them",
        "the name of a topic that is not ephemeral, or none", parse=_read_topic, default=NO_TOPIC, of_channels=True,
    )  # fmt: skip
    channels: Mapping[str, TopicConfig] = field(default_factory=dict)  # by name, those that have settings of their own

    @property
    def own(self) -> dict[str, Any]:
        """Return the values that are set, by name, without those of channels."""
        return {name: value for name in SETTINGS if (value := getattr(self, name)) is not None}

    def of(self, channel: str) -> TopicConfig:
        """Return the settings that hold for a channel."""
        own = self.channels.get(channel)
        return self if own is None else replace(self, **own.own)

    def value(self, name: str) -> Any:
        """Return the value of a setting that holds; None: the node's."""
        value = getattr(self, name)
        return SETTINGS[name].default if value is None else value

    def with_channel(self, channel: str, own: TopicConfig) -> TopicConfig:
        """Return these settings with those of one channel. Raises ValueError if more than MOST_CHANNELS would have some."""
        others = {name: one for name, one in self.channels.items() if name != channel}
        channels = others | {channel: own} if own.own else others
        if len(channels) > MOST_CHANNELS:
            raise ValueError(f"more than {MOST_CHANNELS} channels with settings of their own")
        return replace(self, channels=channels)


SETTINGS: Mapping[str, Setting] = {
    one.name: one.metadata["setting"] for one in fields(TopicConfig) if one.metadata
}  # by name
OF_CHANNELS = tuple(name for name, one in SETTINGS.items() if one.of_channels)


def dump(config: TopicConfig) -> dict[str, Any]:
    """Return the settings as files and frames have them: those that are set, by name."""
    plain: dict[str, Any] = {name: SETTINGS[name].dump(value) for name, value in config.own.items()}
    return plain | {CHANNELS: {name: dump(own) for name, own in config.channels.items()}} if config.channels else plain


def load(plain: Any) -> TopicConfig:
    """Return the settings that `dump` has written. Unknown names, of a later version, are left out. Raises ValueError."""
    return replace(_load(plain, SETTINGS), channels=_load_channels(plain.get(CHANNELS, {})))


def _load(plain: Any, names: Collection[str]) -> TopicConfig:
    if not isinstance(plain, dict):
        raise ValueError("expected settings by name")
    return TopicConfig(**{name: SETTINGS[name].load(value) for name, value in plain.items() if name in names})


def _load_channels(plain: Any) -> dict[str, TopicConfig]:
    if not isinstance(plain, dict) or len(plain) > MOST_CHANNELS:
        raise ValueError(f"expected settings of at most {MOST_CHANNELS} channels by name")
    if not all(isinstance(name, str) and is_valid_name(name) for name in plain):
        raise ValueError("expected the names of channels")
    return {name: _load(own, OF_CHANNELS) for name, own in plain.items()}

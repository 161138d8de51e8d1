"""What of topics and channels concerns the whole node: their numbers, how many there may be, and what the outside is told."""

from collections import Counter
from dataclasses import dataclass
from enum import Enum

from nsqd.core.limits import Limits, TooMany
from nsqd.core.pauses import Pauses
from penstock.protocol.names import is_valid_name


class ChangeKind(Enum):
    """What can happen to the topology."""

    TOPIC_CREATED = "topic created"
    TOPIC_DELETED = "topic deleted"
    CHANNEL_CREATED = "channel created"
    CHANNEL_DELETED = "channel deleted"
    PAUSED = "paused or unpaused"


@dataclass(frozen=True, slots=True)
class Change:
    """Something the outside (nsqlookupd, the metadata file) has to be told."""

    kind: ChangeKind
    topic: str
    channel: str = ""

    @property
    def lasting(self) -> bool:
        """False if it concerns only what is ephemeral, and so is not written down."""
        return not (self.channel or self.topic).endswith("#ephemeral") and not self.topic.endswith("#ephemeral")


class Registry:
    """See above."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._next_number = 1
        self.is_open = False  # True: what was written down is made again, beyond the limits if need be
        self.changes: list[Change] = []  # what happened and was not fetched yet
        self.channel_count = 0  # of all topics
        self.refused: Counter[str] = Counter()  # what a limit did not let in, by the limit
        self.pauses = Pauses()  # what is known of paused topics and channels

    # numbers

    def next_number(self) -> int:
        """A number for a topic or reader, never given before."""
        number = self._next_number
        self._next_number = number + 1
        return number

    @property
    def highest_number(self) -> int:
        """The highest one that a topic or reader was given."""
        return self._next_number - 1

    def continue_numbers(self, number: int) -> None:
        """After a restart: lower ones were given."""
        self._next_number = max(self._next_number, number)

    # limits

    def admit_topic(self, count: int) -> None:
        """A topic is about to be made, beside `count` others. Raises TooMany."""
        if count >= self._limits.max_topics and not self.is_open:
            raise self.exceeded("max_topics", f"topics exceed limit of {self._limits.max_topics}")

    def admit_channel(self) -> None:
        """A channel, or another reader, is about to be made. Raises TooMany."""
        if self.channel_count >= self._limits.max_channels and not self.is_open:
            raise self.exceeded("max_channels", f"channels exceed limit of {self._limits.max_channels}")

    def exceeded(self, limit: str, text: str) -> TooMany:
        """A limit does not let something in: that is counted. Returns what is to be raised."""
        self.refused[limit] += 1
        return TooMany(text)

    # changes

    def tell(self, kind: ChangeKind, topic: str, channel: str = "") -> None:
        """This happened. A topic that only clients of beanstalkd can name is nobody's business."""
        if is_valid_name(topic):
            self.changes.append(Change(kind, topic, channel))

    def fetch_changes(self) -> list[Change]:
        """What happened since the last call."""
        changes, self.changes = self.changes, []
        return changes

    def channel_created(self, topic: str, channel: str) -> None:
        """A topic made a channel."""
        self.channel_count += 1
        self.tell(ChangeKind.CHANNEL_CREATED, topic, channel)

    def channel_deleted(self, topic: str, channel: str) -> None:
        """A topic dropped a channel."""
        self.channel_count -= 1
        self.pauses.forget((topic, channel))
        self.tell(ChangeKind.CHANNEL_DELETED, topic, channel)

    def __repr__(self) -> str:
        return f"<Registry: {self.channel_count} channels, numbers below {self._next_number} given>"

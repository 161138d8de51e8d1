"""The node-wide affairs of topics and channels: their numbers, their limits, and the changes that others have to know."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from nsqd.core.limits import Limits, TooMany
from nsqd.core.pauses import Pauses
from penstock.protocol.names import is_valid_name


class ChangeKind(Enum):
    """The kinds of changes to the topology."""

    TOPIC_CREATED = "topic created"
    TOPIC_DELETED = "topic deleted"
    CHANNEL_CREATED = "channel created"
    CHANNEL_DELETED = "channel deleted"
    PAUSED = "paused or unpaused"


@dataclass(frozen=True, slots=True)
class Change:
    """A change that nsqlookupd and the metadata file have to get."""

    kind: ChangeKind
    topic: str
    channel: str = ""

    @property
    def lasting(self) -> bool:
        """Return False if the change concerns an ephemeral topic or channel, which is not written down."""
        return not (self.channel or self.topic).endswith("#ephemeral") and not self.topic.endswith("#ephemeral")


class Registry:
    """The numbers, limits, pauses and pending changes of one node."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._next_number = 1
        self.is_open = False  # True: a saved topology is being restored, beyond the limits if need be
        self.changes: list[Change] = []  # the changes that were not fetched yet
        self.channel_count = 0  # channels of all topics
        self.refused: Counter[str] = Counter()  # how often each limit refused something
        self.pauses = Pauses()  # of topics and channels
        self.on_channel_created: list[Callable[[str, str], None]] = []  # called with topic and name of each new channel

    # numbers

    def next_number(self) -> int:
        """Return a number for a topic or reader that was never given before."""
        number = self._next_number
        self._next_number = number + 1
        return number

    @property
    def highest_number(self) -> int:
        """Return the highest number that a topic or reader was given."""
        return self._next_number - 1

    def continue_numbers(self, number: int) -> None:
        """Give only numbers from `number` on: a restart found that the lower ones were given."""
        self._next_number = max(self._next_number, number)

    # limits

    def admit_topic(self, count: int) -> None:
        """Raise TooMany if no topic may be made in addition to `count` others."""
        if count >= self._limits.max_topics and not self.is_open:
            raise self.exceeded("max_topics", f"topics exceed limit of {self._limits.max_topics}")

    def admit_channel(self) -> None:
        """Raise TooMany if no further channel or other reader may be made."""
        if self.channel_count >= self._limits.max_channels and not self.is_open:
            raise self.exceeded("max_channels", f"channels exceed limit of {self._limits.max_channels}")

    def exceeded(self, limit: str, text: str) -> TooMany:
        """Count a refusal by `limit`, and return the exception that the caller is to raise."""
        self.refused[limit] += 1
        return TooMany(text)

    # changes

    def note_change(self, kind: ChangeKind, topic: str, channel: str = "") -> None:
        """Note a change. Topics that only clients of beanstalkd can name are left out, for NSQ does not know them."""
        if is_valid_name(topic):
            self.changes.append(Change(kind, topic, channel))

    def fetch_changes(self) -> list[Change]:
        """Return the changes since the last call."""
        changes, self.changes = self.changes, []
        return changes

    def channel_created(self, topic: str, channel: str) -> None:
        """Count and note a channel that a topic made."""
        self.channel_count += 1
        self.note_change(ChangeKind.CHANNEL_CREATED, topic, channel)
        for call in self.on_channel_created:
            call(topic, channel)

    def channel_deleted(self, topic: str, channel: str) -> None:
        """Note that a topic dropped a channel, and forget its pause."""
        self.channel_count -= 1
        self.pauses.forget((topic, channel))
        self.note_change(ChangeKind.CHANNEL_DELETED, topic, channel)

    def __repr__(self) -> str:
        return f"<Registry: {self.channel_count} channels, numbers below {self._next_number} given>"

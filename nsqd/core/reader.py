"""The Reader protocol. A reader takes messages out of a topic's sequence: a channel of NSQ, or a tube of beanstalkd.

A topic knows its readers by this protocol alone. A third kind of reader adds its class, its durable state and a number in
ReaderKind. Topic and log do not change for it; the broker only gains its maker.

See docs/contributing/design/channel.md#readers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, fields
from enum import IntEnum
from typing import NamedTuple, Protocol

from nsqd.core.limits import Limits
from nsqd.core.sequence.journal import Extents, ReaderJournal
from nsqd.core.sequence.offsets import TopicOffsets
from nsqd.core.sequence.put_batch import JobOptions, PutBatch
from nsqd.core.timing.agenda import Agenda, AgendaReader
from nsqd.core.timing.deferred import Message
from shared.retry import Retry
from shared.topic_config import NO_TOPIC, OnBury, OnExpire, Ordering, Overflow, Switch, TopicConfig


class ReaderKind(IntEnum):
    """The kind of a reader. The log stores it as one byte, so a number is never used for another kind."""

    CHANNEL = 0
    WORK_QUEUE = 1


@dataclass(frozen=True, slots=True)
class ReaderSettings:
    """The settings of a topic (shared/topic_config.py) that hold for one of its readers."""

    max_attempts: int = 0  # failures before a message is buried; 0: any number
    retry: Retry = field(default_factory=Retry)
    concurrency: int = 0  # messages in flight at most; 0: any number
    rate: int = 0  # messages delivered in a second at most; 0: any number
    group_concurrency: int = 0  # the same two for messages of one group
    group_rate: int = 0
    fair: Switch = Switch.OFF
    ttl: int = 0  # ns after its publish in which a message may be delivered; 0: any number
    on_expire: OnExpire = OnExpire.DROP
    max_length: int = 0  # messages that are not buried; 0: any number
    max_bytes: int = 0  # of these messages; 0: any number
    overflow: Overflow = Overflow.REFUSE
    ordering: Ordering = Ordering.NONE
    on_bury: OnBury = OnBury.SKIP
    dead_letter: str = NO_TOPIC  # the topic to which a channel sends messages that failed too often

    @classmethod
    def of(cls, config: TopicConfig, usual_attempts: int) -> ReaderSettings:
        """Return the settings in a configuration. `usual_attempts`: `max_attempts` if it has none."""
        attempts = usual_attempts if config.max_attempts is None else config.max_attempts
        return cls(attempts, *map(config.value, _AS_CONFIGURED))

    @property
    def order(self) -> tuple[Ordering, int, int, Switch]:
        """Return the settings that decide which backlog a channel has."""
        return self.ordering, self.group_concurrency, self.group_rate, self.fair

    @property
    def overflows(self) -> bool:
        """Return True if a channel drops or buries messages beyond a limit; else the topic refuses them, or there is none."""
        return bool(self.max_length or self.max_bytes) and self.overflow is not Overflow.REFUSE

    def excess(self, count: int, size: Callable[[], int]) -> int:
        """Return the number of `count` messages that exceed the limits. `size` returns the mean bytes of one."""
        most = min(count, self.max_length or count)
        return count - min(most, self.max_bytes // max(1, size()) if self.max_bytes else most)

    def is_given_up(self, failures: int) -> bool:
        """Return True if a message that failed so often is to be buried instead of delivered again."""
        return 0 < self.max_attempts <= failures


_, *_AS_CONFIGURED = (one.name for one in fields(ReaderSettings))  # all but max_attempts


@dataclass(frozen=True, slots=True)
class Parts:
    """The arguments for the constructor of every reader, which keeps the parts that it needs."""

    topic: str  # the topic's name
    number: int  # the reader's number
    offsets: TopicOffsets
    extents: Extents
    journal: ReaderJournal
    agenda: Agenda
    limits: Limits
    settings: ReaderSettings
    random_below: Callable[[int], int]  # random_below(n) returns a number in 0..n-1


class DistributedBatch(NamedTuple):
    """The messages first..end (`end` excluded) that the distributed offset of the topic has just passed."""

    first: int  # ordinal
    end: int
    ordinary: int  # how many of them have no delay
    delayed: int  # how many of them wait in the topic's delay queue
    # The jobs that a client has just put, if the batch is exactly these jobs; None: the batch may hold anything.
    put_batch: PutBatch | None


class Counts(NamedTuple):
    """How many messages of a reader are in which state."""

    ready: int
    in_flight: int  # with a consumer; of jobs: reserved
    deferred: int  # waiting for a time
    buried: int


class Reader(AgendaReader, Protocol):
    """Anything that takes messages out of a topic.

    A reader is in the agenda while it can deliver, and while one of its messages waits for a time.
    """

    kind: ReaderKind
    name: str
    number: int  # never used again on this node
    start: int  # messages before it are not for this reader
    delayed: int  # messages in the topic's delay queue that will be released to it
    deleted: bool
    ephemeral: bool
    # True: its messages are jobs, which have options and wait for their time in the reader itself
    takes_job_options: bool

    def extend(self, batch: DistributedBatch) -> None:
        """Take over the messages of `batch`, which the distributed offset has just passed."""

    def skip(self, first: int, end: int, ordinary: int) -> None:
        """Leave out messages first..end, which this reader does not get. `Edge.ordinary` already counts `ordinary` of them."""

    def expect(self, first: int, count: int, options: JobOptions) -> None:
        """Note that `count` messages from `first` on come with these options once the distributed offset passes them.

        The topic calls this only on a reader that `takes_job_options`.
        """

    def release(self, message: Message) -> None:
        """Make a message ready, because its delay in the topic's delay queue is over."""

    def own(self, due: int, message: Message, now: int) -> None:
        """Hold a message from the topic's delay queue in this reader alone, until `due` (monotonic ns)."""

    def read_completed(self) -> None:
        """Continue to read: the store has loaded the extent for which its `read` returned None."""

    def delete(self) -> None:
        """Drop all messages, and disconnect or release the clients. Called by the topic."""

    def configure(self, settings: ReaderSettings) -> None:
        """Use these settings from now on, also for messages that have come before."""

    def move(self, agenda: Agenda) -> None:
        """Take part in the turns of another agenda from now on, with what waits for a time. There are no clients yet."""

    # queries

    def is_buried(self, ordinal: int) -> bool:
        """Return True if the message is buried here."""

    def frozen_chunks(self) -> Iterable[bytes]:
        """Return chunks of messages that a checkpoint may write ahead of the reader's state (nsqd/core/written_chunks.py)."""

    def counts(self) -> Counts:
        """Return the number of messages in each state."""

    @property
    def pending_count(self) -> int:
        """Return at most how many messages the reader was given that `counts` does not include yet."""

    @property
    def finishable_count(self) -> int:
        """Return the number of messages in flight that a client can still finish: not those of consumers that have left."""

    def check(self) -> None:
        """Raise AssertionError if an invariant of the reader does not hold."""

"""Sources of a checkpoint's state: a live broker, or a copy of a log that only applies records."""

from collections.abc import Iterable, Iterator
from typing import Protocol

from nsqd.core.batches.table import BatchTable
from nsqd.core.broker import Broker
from nsqd.core.records import RecordKind
from nsqd.core.scheduling.table import ScheduleTable
from nsqd.core.topic_state import TopicState, frozen_chunks, state_of
from nsqd.core.written_chunks import WrittenChunks
from nsqd.storage.log.replay import Replay
from nsqd.storage.log.state import encode_topic
from nsqd.storage.log.store import LogStore
from nsqd.storage.sequence import Sequence

# how often chunks are written ahead of a topic's state: in the turns that one round takes, some of them are replaced
ROUNDS = 3


class StateSource(Protocol):
    """The state of a log's topics, as a checkpoint needs it."""

    @property
    def highest(self) -> int:
        """Return the highest number of any topic or reader."""

    @property
    def leased(self) -> int:
        """Return the id below which message ids may have been issued."""

    @property
    def offset(self) -> int:
        """Return the offset from the states' clock to the log's time, in ns."""

    def topics(self) -> list[int]:
        """Return the numbers of all topics of the log."""

    def frozen_chunks(self, topic: int) -> Iterable[bytes]:
        """Return chunks of the topic's messages that seldom change. The topic may change while they are iterated over."""

    @property
    def batches(self) -> BatchTable:
        """Return the batches of the log."""

    @property
    def schedules(self) -> ScheduleTable:
        """Return the schedules of the log."""

    def describe(self, topic: int, written: WrittenChunks) -> tuple[TopicState, Sequence | None] | None:
        """Return a topic's final state and its messages as they are now; None if it was deleted. `written`: written chunks."""


class LiveSource:
    """The state of a broker, and of the store to which it writes. Implements StateSource."""

    def __init__(self, broker: Broker, store: LogStore) -> None:
        self._broker, self.store = broker, store

    @property
    def highest(self) -> int:
        return self._broker.registry.highest_number

    @property
    def leased(self) -> int:
        return self.store.leased

    @property
    def offset(self) -> int:
        return self.store.clock_offset

    @property
    def batches(self) -> BatchTable:
        return self._broker.context.batches

    @property
    def schedules(self) -> ScheduleTable:
        return self._broker.context.schedules

    def topics(self) -> list[int]:
        return list(self._broker.directory.by_number)

    def frozen_chunks(self, topic: int) -> Iterable[bytes]:
        live = self._broker.directory.by_number.get(topic)
        return () if live is None or live.ephemeral else frozen_chunks(live)

    def describe(self, topic: int, written: WrittenChunks) -> tuple[TopicState, Sequence | None] | None:
        live = self._broker.directory.by_number.get(topic)
        if live is None or live.ephemeral:
            return None
        return state_of(live, self._broker.now, written), self.store.find_sequence(topic)


class AppliedSource:
    """The state that the records of a log add up to, without a broker. Implements StateSource."""

    offset = 0

    def __init__(self, replay: Replay) -> None:
        """Wrap a replay that began with a complete checkpoint or at the log's beginning."""
        self._replay = replay
        self.batches, self.schedules = replay.batches, replay.schedules

    @property
    def highest(self) -> int:
        return self._replay.highest

    @property
    def leased(self) -> int:
        return self._replay.lease

    def topics(self) -> list[int]:
        return list(self._replay.topics)

    def frozen_chunks(self, topic: int) -> Iterable[bytes]:
        return ()

    def describe(self, topic: int, written: WrittenChunks) -> tuple[TopicState, Sequence | None] | None:
        state = self._replay.concluded(topic)
        return (state, self._replay.sequences[topic]) if state is not None else None


def contents(source: StateSource) -> Iterator[tuple[RecordKind, bytes]]:
    """Yield the records of a checkpoint after STATE. Each describes the state at the time when it is yielded."""
    for number in source.topics()[::-1]:
        written = WrittenChunks(number)
        for _ in range(ROUNDS):
            yield from written.records(source.frozen_chunks(number))
        described = source.describe(number, written)
        if described is not None:
            state, sequence = described
            yield RecordKind.STATE_TOPIC, encode_topic(state, sequence, source.offset)
            yield from state.details(source.offset)
    yield from source.batches.dump()
    yield from source.schedules.dump()
    yield RecordKind.STATE_END, b""

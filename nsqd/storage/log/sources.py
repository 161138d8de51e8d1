"""Whose state a checkpoint holds: a broker's, or what records were only applied to."""

from collections.abc import Iterator
from typing import Protocol

from nsqd.core.broker import Broker
from nsqd.core.records import Kind
from nsqd.core.topic_state import TopicState, state_of
from nsqd.storage.log.replay import Replay
from nsqd.storage.log.state import encode_topic
from nsqd.storage.log.store import LogStore
from nsqd.storage.sequence import Sequence


class Source(Protocol):
    """The state of a log's topics."""

    @property
    def is_whole(self) -> bool:
        """All topics of the log are there. A checkpoint that did not know of one would lose it."""

    @property
    def overdue(self) -> bool:
        """Something is retained for longer than its topic says."""

    @property
    def highest(self) -> int:
        """The highest number of a topic or reader."""

    @property
    def leased(self) -> int:
        """Message ids below it may have been issued."""

    @property
    def offset(self) -> int:
        """From the states' clock to the log's (ns)."""

    def topics(self) -> list[int]:
        """The numbers of the topics."""

    def describe(self, topic: int) -> tuple[TopicState, Sequence | None] | None:
        """A topic's state, settled, and its messages, as they are now. None: the topic is gone."""


class LiveSource:
    """A broker, and the store that it writes to. Implements Source."""

    def __init__(self, broker: Broker, store: LogStore) -> None:
        self._broker = broker
        self._store = store

    @property
    def is_whole(self) -> bool:
        return self._store.is_whole

    @property
    def overdue(self) -> bool:
        return self._store.overdue

    @property
    def highest(self) -> int:
        return self._broker.registry.highest_number

    @property
    def leased(self) -> int:
        return self._store.leased

    @property
    def offset(self) -> int:
        return self._store.clock_offset

    def topics(self) -> list[int]:
        return list(self._broker.directory.by_number)

    def describe(self, topic: int) -> tuple[TopicState, Sequence | None] | None:
        live = self._broker.directory.by_number.get(topic)
        if live is None or live.ephemeral:
            return None
        return state_of(live, self._broker.now), self._store.known_sequence(topic)


class AppliedSource:
    """States that records were applied to, and no broker has: a copy of another node's log.

    Implements Source, and Messages (tidying.py).
    """

    is_whole = True
    overdue = False  # whoever owns the log says what is not retained any more
    reshaped = 0
    offset = 0

    def __init__(self, replay: Replay) -> None:
        """`replay` began with a complete checkpoint, or with the log; more records may be applied to it meanwhile."""
        self._replay = replay

    @property
    def highest(self) -> int:
        return self._replay.highest

    @property
    def leased(self) -> int:
        return self._replay.lease

    def retire(self) -> bool:
        return False

    def topics(self) -> list[int]:
        return list(self._replay.topics)

    logged = topics

    def known_sequence(self, topic: int) -> Sequence | None:
        return self._replay.sequences.get(topic)

    def describe(self, topic: int) -> tuple[TopicState, Sequence | None] | None:
        state = self._replay.settled(topic)
        return (state, self._replay.sequences[topic]) if state is not None else None


def contents(source: Source) -> Iterator[tuple[Kind, bytes]]:
    """The records of a checkpoint behind STATE, each as things are when it is asked for."""
    for number in source.topics()[::-1]:
        described = source.describe(number)
        if described is not None:
            state, sequence = described
            yield Kind.STATE_TOPIC, encode_topic(state, sequence, source.offset)
            yield from state.details(source.offset)
    yield Kind.STATE_END, b""

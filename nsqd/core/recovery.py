"""Recovery: makes topics of a broker from the states that were read from a log.

Messages that were in flight are ready again. Attempts, delays and burials are kept.
"""

from collections.abc import Callable
from dataclasses import dataclass

from nsqd.core.batches.table import BatchTable
from nsqd.core.broker import Broker
from nsqd.core.scheduling.table import ScheduleTable
from nsqd.core.timing.deferred import pack
from nsqd.core.timing.deferred_pages import DeferredPages, after, pages_of, shifted
from nsqd.core.timing.pause import NOT_KNOWN
from nsqd.core.topic_state import TopicState


@dataclass(frozen=True, slots=True)
class LogSnapshot:
    """The content of a log, with which a broker is to be filled."""

    topics: list[TopicState]  # settled
    batches: BatchTable
    schedules: ScheduleTable
    next_number: int  # for the next topic or reader
    offset: int  # ns by which the states' times are later than the monotonic clock's

    def numbers(self) -> list[int]:
        """Return the numbers of all topics and readers."""
        return [number for topic in self.topics for number in (topic.number, *topic.readers)]


class NameTaken(Exception):
    """The broker already has a topic of that name or number."""


class Recovery:
    """Adds topics to a broker, a few in each turn. The broker may run already, and its store has the messages.

    No checkpoint begins before all topics exist (LogStore.is_whole), because it would leave out the others.
    """

    def __init__(self, broker: Broker, snapshot: LogSnapshot) -> None:
        """Take over the states of `picture`. Raises NameTaken, and then nothing has changed."""
        self._broker = broker
        self._offset = snapshot.offset
        self._waiting = snapshot.topics[::-1]
        for state in self._waiting:
            self._refuse(state)
        broker.registry.continue_numbers(snapshot.next_number)
        broker.context.batches.load(snapshot.batches)
        broker.context.schedules.load(snapshot.schedules)

    def recover_batch(self, now: int, limit: int = 1) -> bool:
        """Make up to `limit` topics, which deliver from then on. Returns True if more are to be made. `now`: monotonic ns.

        Raises NameTaken if a topic of that name was made since. Once that topic is deleted, the call may be repeated.
        """
        for _ in range(min(limit, len(self._waiting))):
            self._revive(self._waiting[-1], now)
            self._waiting.pop()
        return bool(self._waiting)

    def _refuse(self, state: TopicState) -> None:
        directory = self._broker.directory
        if state.name in directory.topics:
            raise NameTaken(f"there is a topic {state.name} already")
        if state.number in directory.by_number:
            raise NameTaken(f"the number {state.number} of topic {state.name} is another's")

    def _revive(self, state: TopicState, now: int) -> None:
        self._refuse(state)
        broker, offset = self._broker, self._offset
        topic = broker.directory.promote(state.name, state.number, state.config)
        topic.cursors.update(state.cursors)
        keys = {key: stamp - offset for key, stamp in state.publishers.keys.items()}
        pending = {key: known for key, known in state.publishers.pending.items() if known[0] < state.end}
        topic.intake.dedup.restore(keys, state.publishers.producers, pending, now)
        ahead = b"".join([pack(ordinal, due, 0) for ordinal, due in state.delayed.items()])
        queued = DeferredPages([after(page, now + offset) for page in state.waiting.pages()])
        delayed = [*pages_of([ahead], -offset), *(shifted(page, -offset) for page in queued.pages())]
        topic.resume(state.end, state.distributed, state.paused, delayed, now)
        kinds = topic.journal.extents(0, state.distributed)
        plain = [(first, end) for first, end, is_delayed in kinds if not is_delayed]
        for its in state.readers.values():
            reader = broker.revive(topic, its.kind, its.name, its.number)
            its.revive(reader, plain, queued, offset, now)
            reader.delayed = queued.count(reader.start)
        for key, pause in [(topic.key, topic.paused), *((one.key, one.paused) for one in topic.channels.values())]:
            if pause is not None and pause != NOT_KNOWN:
                broker.registry.pauses.remember(key, pause)
        topic.distribute()

    def __repr__(self) -> str:
        return f"<Recovery: {len(self._waiting)} topics to be made>"


def recover(broker: Broker, snapshot: LogSnapshot, now: int, interrupt: Callable[[], None] = lambda: None) -> None:
    """Fill an empty broker at the start of the node. `interrupt` is called after each topic; what it raises ends the work."""
    recovery = Recovery(broker, snapshot)
    while recovery.recover_batch(now):
        interrupt()
    broker.fetch_changes()  # nsqlookupd gets everything when it is connected

"""A Store that behaves like a disk: syncs and reads complete when the test says so."""

from typing import Any

from nsqd.core.retention.policy import StoragePolicy
from nsqd.core.sequence.extent import Extent
from nsqd.core.sequence.mark import Mark, Promise
from nsqd.storage.memory import MemoryStore, MemoryTopic
from nsqd.storage.sequence import Sequence


class SlowTopic(MemoryTopic):
    """Its extents must be fetched before they can be read, while the store is cold."""

    __slots__ = ("_number", "_store")

    def __init__(self, store: "SlowStore", number: int) -> None:
        super().__init__(Sequence())
        self._store = store
        self._number = number

    def set_policy(self, keeping: StoragePolicy) -> tuple[Mark, ...]:
        return self._store.marks

    def publish(self, *arguments: Any, **more: Any) -> None:
        self._store.end += 1
        super().publish(*arguments, **more)

    def read(self, ordinal: int) -> Extent | None:
        extent = super().read(ordinal)
        if self._store.cold and (self._number, extent.first) not in self._store.cached:
            self._store.wanted.append((self._number, ordinal))
            return None
        return extent

    def fetch(self, ordinal: int) -> None:
        """Let the requested messages be read from now on."""
        extent = super().read(ordinal)
        self._store.cached.add((self._number, extent.first))


class SlowStore(MemoryStore):
    """Nothing is durable before `sync`, nothing can be read before `fetch`."""

    def __init__(self) -> None:
        super().__init__(lambda ceiling: True)
        self.topics: dict[int, SlowTopic] = {}
        self.durable = Mark("durable")
        self.marks = (self.durable,)
        self.end = 0  # of the log that there is not: behind what was published last
        self.cached: set[tuple[int, int]] = set()  # (topic, first ordinal of the extent)
        self.wanted: list[tuple[int, int]] = []  # (topic, ordinal), reads that were begun
        self.cold = False  # True: extents must be fetched first

    def topic(self, number: int, name: str) -> SlowTopic:
        self.topics[number] = SlowTopic(self, number)
        return self.topics[number]

    def commit(self) -> tuple[Promise, ...]:
        return (Promise(self.durable, self.end),) if self.durable.position < self.end else ()

    def sync(self) -> None:
        self.durable.position = self.end

    def fetch(self) -> list[int]:
        """Complete the reads that were begun; returns the topics."""
        wanted, self.wanted = self.wanted, []
        for topic, ordinal in wanted:
            self.topics[topic].fetch(ordinal)
        return [topic for topic, _ in wanted]

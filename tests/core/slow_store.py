"""A Store that behaves like a disk: syncs and reads complete when the test says so. What the commit log will be."""

from typing import Any

from nsqd.core.retention.keeping import Keeping
from nsqd.core.sequence.mark import Mark, Promise
from nsqd.core.sequence.store import Extent
from nsqd.storage.memory import MemoryStore


class SlowStore(MemoryStore):
    """Nothing is durable before `sync`, nothing can be read before `fetch`."""

    def __init__(self) -> None:
        super().__init__(lambda ceiling: True)
        self.durable = Mark("durable")
        self._marks = (self.durable,)
        self.end = 0  # of the log: behind what was published last
        self.cached: set[tuple[int, int]] = set()  # (topic, first ordinal of the extent)
        self.wanted: list[tuple[int, int]] = []  # (topic, ordinal), reads that were begun
        self.cold = False  # True: extents must be fetched first

    def keep(self, topic: int, keeping: Keeping) -> tuple[Mark, ...]:
        return self._marks

    def publish(self, *arguments: Any, **more: Any) -> None:
        self.end += 1
        super().publish(*arguments, **more)

    def commit(self) -> list[Promise]:
        return [Promise(self.durable, self.end)] if self.durable.position < self.end else []

    def sync(self) -> None:
        self.durable.position = self.end

    def read(self, topic: int, ordinal: int) -> Extent | None:
        extent = super().read(topic, ordinal)
        assert extent is not None
        if self.cold and (topic, extent.first) not in self.cached:
            self.wanted.append((topic, ordinal))
            return None
        return extent

    def fetch(self) -> list[int]:
        """Complete the reads that were begun; returns the topics."""
        wanted, self.wanted = self.wanted, []
        for topic, ordinal in wanted:
            extent = super().read(topic, ordinal)
            assert extent is not None
            self.cached.add((topic, extent.first))
        return [topic for topic, _ in wanted]

"""A Store that behaves like a disk: syncs and reads complete when the test says so. What the commit log will be."""

from nsqd.core.sequence.store import Extent
from nsqd.storage.memory import MemoryStore


class SlowStore(MemoryStore):
    """Nothing is durable before `sync`, nothing can be read before `fetch`."""

    def __init__(self) -> None:
        super().__init__(lambda ceiling: True)
        self.synced = 0
        self.cached: set[tuple[int, int]] = set()  # (topic, first ordinal of the extent)
        self.wanted: list[tuple[int, int]] = []  # (topic, ordinal), reads that were begun
        self.cold = False  # True: extents must be fetched first
        self.failed = False  # True: nothing becomes durable any more

    @property
    def durable(self) -> int:
        return self.synced

    @property
    def broken(self) -> bool:
        return self.failed

    def sync(self) -> None:
        self.synced = self._position

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

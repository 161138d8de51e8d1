"""A store whose replies wait for marks that the test moves: durable, and copied to other nodes."""

from nsqd.core.retention.policy import StoragePolicy
from nsqd.core.sequence.mark import Mark, Promise
from nsqd.storage.memory import MemoryStore, MemoryTopic
from nsqd.storage.sequence import Sequence


class MarkedTopic(MemoryTopic):
    """Its replies wait for the marks of its name, and those that ask for copies for one more mark."""

    __slots__ = ("_marks", "_store")

    def __init__(self, store: "MarkedStore", name: str) -> None:
        super().__init__(Sequence())
        self._store = store
        self._marks = store.choices.get(name, (store.durable,))

    def set_policy(self, keeping: StoragePolicy) -> tuple[Mark, ...]:
        return self._marks

    def promise(self) -> None:
        self._store.awaited |= set(self._marks)

    def ask_for_copies(self, count: int, has_limit: bool = False) -> tuple[Mark, ...]:
        assert has_limit
        marks = (*self._marks, self._store.copies.setdefault(count, Mark(f"copied {count}")))
        self._store.awaited |= set(marks)
        return marks

    def publish(self, *arguments: object, **more: object) -> None:
        self._store.end += 1
        self.promise()
        super().publish(*arguments, **more)


class MarkedStore(MemoryStore):
    """Topics `d`, `c` and `both` wait for one mark, another and both; others wait for the first."""

    def __init__(self) -> None:
        super().__init__(lambda ceiling: True)
        self.durable, self.copied = Mark("durable"), Mark("copied")
        self.choices = {"d": (self.durable,), "c": (self.copied,), "both": (self.durable, self.copied)}
        self.copies: dict[int, Mark] = {}
        self.awaited: set[Mark] = set()
        self.end = 0

    def topic(self, number: int, name: str) -> MarkedTopic:
        return MarkedTopic(self, name)

    def commit(self) -> tuple[Promise, ...]:
        awaited, self.awaited = self.awaited, set()
        promises = [Promise(mark, self.end) for mark in awaited]
        return tuple(promise for promise in promises if not promise.is_kept)

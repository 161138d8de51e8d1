"""What replay finds of messages, by topic."""

from collections.abc import Callable, Collection, Iterable, Mapping

from nsqd.core.retention.cursors import Cursor
from nsqd.core.retention.keeping import Keeping, TopicConfig
from nsqd.core.sequence.extent import Extent
from nsqd.storage.sequence import Sequence


class RecoveredStore:
    """Implements Store. Nothing of it survives the process but the id lease, by way of `write_lease`."""

    def __init__(self, write_lease: Callable[[int], bool]) -> None:
        self._write_lease = write_lease
        self._topics: dict[int, Sequence] = {}
        self._position = 0

    @property
    def durable(self) -> int:
        """All there is: memory promises nothing beyond the process, and that at once."""
        return self._position

    def begin(self, now: int, wall: int) -> None:
        pass

    @property
    def refusal(self) -> str:
        return ""

    @property
    def broken(self) -> bool:
        return False

    @property
    def stuck(self) -> bool:
        return False

    def promise(self, topic: int) -> None:
        pass

    def keep(self, topic: int, keeping: Keeping) -> None:
        pass

    def configure(self, topic: int, config: TopicConfig) -> None:
        self._position += 1

    def commit(self) -> int:
        return self._position

    def lease(self, ceiling: int) -> bool:
        return self._write_lease(ceiling)

    def publish(
        self, topic: int, first: int, frames: list[bytes], ids: bytes, largest: int, due: int, attributes: bytes = b""
    ) -> None:
        self._position += 1
        self.sequence(topic).append(first, frames, ids, largest, due != 0)

    def distribute(
        self, topic: int, first: int, end: int, channels: int, owners: Collection[int] | None = None
    ) -> None:
        self._position += 1
        sequence = self._topics[topic]
        sequence.edge = end
        owing = channels if owners is None else len(owners)
        for held, start, stop in sequence.spans(first, end):
            held.owe(start, stop, owing)

    def finish(self, topic: int, channel: int, first: int, count: int) -> None:
        self._position += 1
        sequence = self._topics[topic]
        for held, start, stop in sequence.spans(first, first + count):
            if held.finish(start, stop):
                sequence.sweep()

    def create_topic(self, topic: int, name: str) -> None:
        self._position += 1

    def hold(self, topic: int, cursors: Mapping[str, Cursor]) -> None:
        pass

    def set_cursor(self, topic: int, name: str, cursor: Cursor | None) -> None:
        self._position += 1

    def create_channel(self, topic: int, channel: int, name: str, start: int) -> None:
        self._position += 1

    def owe_again(self, topic: int, first: int, end: int) -> list[tuple[int, int, bool]]:
        sequence = self._topics[topic]
        sequence.owe_again(first, end)
        return list(sequence.kinds(first, end))

    def drop_channel(self, topic: int, channel: int) -> None:
        self._position += 1

    def pause(self, topic: int, channel: int, paused: bool) -> None:
        self._position += 1

    def advance(self, topic: int, channel: int, cursor: int) -> None:
        self._position += 1

    def requeue(self, topic: int, channel: int, ordinal: int, attempts: int, due: int) -> None:
        self._position += 1

    def job(self, topic: int, channel: int, ordinal: int, row: bytes) -> None:
        self._position += 1

    def bury(self, topic: int, channel: int, ordinal: int, message_id: bytes, attempts: int, reason: str) -> None:
        self._position += 1

    def finish_all(self, topic: int, channel: int, end: int, owed: Iterable[tuple[int, int]]) -> None:
        for first, count in owed:
            self.finish(topic, channel, first, count)

    def hole(self, topic: int, first: int, end: int) -> None:
        self._position += 1
        if topic in self._topics:
            self._topics[topic].cut(first)

    def drop_topic(self, topic: int) -> None:
        self._position += 1
        self._topics.pop(topic, None)

    def look(self, topic: int, ordinal: int, attributes: bool = True) -> bytes:
        sequence = self._topics.get(topic)
        held = sequence.holder(ordinal) if sequence is not None else None
        if held is None or held.extent is None or (attributes and held.attributed):
            return b""
        return held.extent.frames[ordinal - held.first]

    def published(self, topic: int, ordinal: int) -> int:
        sequence = self._topics.get(topic)
        held = sequence.holder(ordinal) if sequence is not None else None
        return held.published_at(ordinal - held.first) if held is not None else 0

    def published_plain(self, topic: int, ordinal: int) -> int:
        sequence = self._topics.get(topic)
        held = sequence.next_plain(ordinal) if sequence is not None else None
        return held.published_at(max(0, ordinal - held.first)) if held is not None else 0

    def file_number(self, topic: int, ordinal: int) -> int:
        return 0

    def read(self, topic: int, ordinal: int) -> Extent | None:
        sequence = self._topics.get(topic)
        return sequence.at(ordinal) if sequence else Extent(0, False)

    def take_over(self, other: "RecoveredStore") -> None:
        """All that `other` holds; it is not used any more."""
        self._topics = other._topics

    def sequence(self, topic: int) -> Sequence:
        """The topic's extents; for storage that knows more of them."""
        found = self._topics.get(topic)
        if found is None:
            found = self._topics[topic] = Sequence()
        return found

    def adopt(self, topic: int, sequence: Sequence) -> None:
        """These are the topic's extents."""
        self._topics[topic] = sequence

    def cold(self, topic: int, first: int, end: int) -> int:
        sequence = self._topics.get(topic)
        return sequence.cold(first, end) if sequence else 0

    def extents(self, topic: int, first: int, end: int) -> Iterable[tuple[int, int, bool]]:
        sequence = self._topics.get(topic)
        return sequence.kinds(first, end) if sequence else []

    def present(self, topic: int, first: int, end: int) -> list[tuple[int, int]]:
        """The parts (first, end) of first..end that are in extents there are."""
        sequence = self._topics.get(topic)
        return sequence.present(first, end) if sequence else []

    def plain_spans(self, topic: int, end: int) -> list[tuple[int, int]]:
        """(first, end) of all extents before `end` that were published without a delay."""
        sequence = self._topics.get(topic)
        return sequence.plain(0, end) if sequence else []

    def held(self) -> tuple[int, int]:
        """Messages in memory, and the bytes of their frames. Walks everything: for tests and figures."""
        extents = [held.extent for sequence in self._topics.values() for held in sequence.held if held.extent]
        frames = [frame for extent in extents for frame in extent.frames if frame]
        return len(frames), sum(map(len, frames))

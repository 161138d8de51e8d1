"""Messages that a channel has given up on: delivered too often, kept with the reason until somebody finishes or kicks them.

NSQ knows no such state, so it is opt-in (`--max-attempts`); beanstalkd's bury is the same. A buried message is neither ready
nor in flight nor deferred; the channel still owes it, so the store keeps it.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice


@dataclass(frozen=True, slots=True)
class Grave:
    """One buried message."""

    ordinal: int
    attempts: int  # deliveries it had
    reason: str  # e.g. "timed out"
    buried: int  # ns since the epoch


class Buried(dict[bytes, Grave]):
    """All of a channel's by message id, the first buried first. A dict: ten thousand that are empty are counted in no time."""

    __slots__ = ()

    def add(self, message_id: bytes, grave: Grave) -> None:
        """Bury a message."""
        self[message_id] = grave

    def take(self, message_ids: Iterable[bytes]) -> list[Grave]:
        """Dig these up; ids that are not buried are passed over."""
        return [grave for message_id in message_ids if (grave := self.pop(message_id, None)) is not None]

    def oldest(self, count: int) -> list[bytes]:
        """The ids of the first `count`."""
        return list(islice(self, count))

    def after(self, message_id: bytes | None, count: int) -> list[tuple[bytes, Grave]]:
        """Up to `count`, from behind the one with that id on; from the first if it is None or not buried (any more)."""
        items = iter(self.items())
        if message_id in self:
            for passed, _ in items:
                if passed == message_id:
                    break
        return list(islice(items, count))

    def __repr__(self) -> str:
        return f"<Buried: {len(self)}>"

    def ordinals(self) -> Iterator[int]:
        """Of all."""
        return (grave.ordinal for grave in self.values())

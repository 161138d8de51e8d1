"""Buried messages, the dead letters of a channel: failed too often, kept with the reason until an operator acts on them.

NSQ has no such state, so it is opt-in (`--max-attempts`); beanstalkd's bury is the same. A buried message is neither ready
nor in flight nor deferred. The channel still references it, so the store keeps it.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice

EXPIRED, OVERFLOW = "expired", "overflow"  # reasons other than failures (failures.py) and those of operators
NONE: set[int] = set()  # never changed: ten thousand channels without buried messages share it


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """The record of one buried message: when and why it was buried."""

    ordinal: int
    attempts: int  # deliveries it had
    reason: str  # e.g. "timed out"
    buried: int  # ns since the epoch
    failures: int = 0  # of these deliveries, those that failed: see failures.py


class Buried(dict[bytes, DeadLetter]):
    """All buried messages of a channel by message id, the first buried first.

    It is a subclass of dict so that len() stays cheap: statistics count ten thousand empty ones in no time.
    """

    __slots__ = ("ordinal_set",)

    def __init__(self) -> None:
        self.ordinal_set: set[int] = NONE  # ordinals of all of them, in a set once there are any

    def add(self, message_id: bytes, letter: DeadLetter) -> None:
        """Add a message to the buried ones, as the last."""
        self[message_id] = letter
        if self.ordinal_set is NONE:
            self.ordinal_set = set()
        self.ordinal_set.add(letter.ordinal)

    def pop_letters(self, message_ids: Iterable[bytes]) -> list[DeadLetter]:
        """Remove and return the messages with these ids; ignore ids that are not buried."""
        letters = [letter for message_id in message_ids if (letter := self.pop(message_id, None)) is not None]
        self.ordinal_set.difference_update(letter.ordinal for letter in letters)
        return letters

    def oldest(self, count: int) -> list[bytes]:
        """Return the ids of the `count` messages that were buried first."""
        return list(islice(self, count))

    def after(self, message_id: bytes | None, count: int) -> list[tuple[bytes, DeadLetter]]:
        """Return up to `count` messages after the one with that id; start with the first if the id is None or not buried."""
        names = iter(self)
        if message_id is not None and message_id in self:
            message_id in names  # noqa: B015  # moves past it, at a third of the cost of a loop
        return [(name, self[name]) for name in islice(names, count)]

    def __repr__(self) -> str:
        return f"<Buried: {len(self)}>"

    def ordinals(self) -> Iterator[int]:
        """Return the ordinals of all buried messages, the first buried first."""
        return (letter.ordinal for letter in self.values())

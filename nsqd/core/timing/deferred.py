"""Messages that wait for a time: the near ones in a priority queue, the far ones packed by the minute.

A far message (more than a minute away) costs 24 bytes: ordinal, due, attempts, in the page of its minute, or of one before it.
Pages are moved into the queue piece by piece during the minute before they are due, so ten million far deferrals cost neither
memory nor a stall (specs/log-and-channel.md rule 22).
"""

from array import array
from collections.abc import Collection, Iterator
from heapq import nsmallest
from struct import Struct

from nsqd.core.timing.duequeue import DueQueue

MINUTE = 60_000_000_000  # ns
PHASES = 1024
NEAR_BYTES = 250  # that a message in the queue takes: the entry, the message, three numbers
_FAR = Struct("<QqQ")  # ordinal, due ns, attempts
FAR_SIZE = _FAR.size  # bytes
pack, unpack = _FAR.pack, _FAR.iter_unpack  # what waits, as `packed` has it


class Message:
    """A message that something happened to: its place in the topic and how often it was delivered."""

    __slots__ = ("attempts", "ordinal")

    def __init__(self, ordinal: int, attempts: int) -> None:
        self.ordinal = ordinal
        self.attempts = attempts

    def __repr__(self) -> str:
        return f"<Message {self.ordinal}, {self.attempts} attempts>"


class Deferred:
    """Messages by the time they are due."""

    __slots__ = ("_far", "_near", "_phase", "count")

    def __init__(self, number: int = 0) -> None:
        """`number`: the queue's; it spreads over the minute when the pages of ten thousand queues are moved."""
        self._phase = number % PHASES * (MINUTE // PHASES) * 5 // 6  # ns after its earliest time that a page is moved
        self._near: DueQueue[Message] = DueQueue()
        self._far: dict[int, bytearray] = {}  # minute -> packed messages due in it; no page is empty
        self.count = 0  # messages in _near and _far together

    def push(self, due: int, message: Message, now: int) -> None:
        """Hold `message` until `due`."""
        self.count += 1
        if due - now <= MINUTE:
            self._near.push(due, message)
        else:
            page = self._far.setdefault(due // MINUTE, bytearray())
            page += pack(message.ordinal, due, message.attempts)

    def approach(self, now: int, limit: int) -> int:
        """Move near up to `limit` far messages whose time to be moved has come. Returns how many."""
        moved = 0
        while self._far and moved < limit:
            minute = min(self._far)
            if self._approach_at(minute) > now:
                break
            page = self._far[minute]
            part = page[-(limit - moved) * FAR_SIZE :]
            del page[-(limit - moved) * FAR_SIZE :]
            if not page:
                del self._far[minute]
            for ordinal, due, attempts in unpack(part):
                self._near.push(due, Message(ordinal, attempts))
            moved += len(part) // FAR_SIZE
        return moved

    def pop_due(self, now: int, limit: int) -> list[Message]:
        """Take out up to `limit` messages that are due, earliest first. `approach` comes before."""
        due = self._near.pop_due(now, limit)
        self.count -= len(due)
        return due

    def wake_at(self) -> int | None:
        """When pop_due has something to do: the earliest due time, or when the first far page is to be moved."""
        near = self._near.next_due()
        if not self._far:
            return near
        far = self._approach_at(min(self._far))
        return far if near is None else min(near, far)

    def remove_from(self, ordinal: int) -> None:
        """Take out all messages from `ordinal` on. Walks everything: for rare commands only."""
        near = [(due, message) for due, message in self._near.entries() if message.ordinal < ordinal]
        self._near.clear()
        for due, message in near:
            self._near.push(due, message)
        for minute, page in list(self._far.items()):
            kept = b"".join(pack(*entry) for entry in unpack(page) if entry[0] < ordinal)
            self._far[minute] = bytearray(kept)
            if not kept:
                del self._far[minute]
        self.count = len(near) + sum(map(len, self._far.values())) // FAR_SIZE

    def take(self, ordinals: Collection[int]) -> list[Message]:
        """Take these out. Walks everything: for rare commands only."""
        return [message for _, message in self.take_with_due(ordinals)]

    def take_with_due(self, ordinals: Collection[int]) -> list[tuple[int, Message]]:
        """The same, with when they were due."""
        entries = self._near.entries()
        taken = [entry for entry in entries if entry[1].ordinal in ordinals]
        if taken:
            self._near.clear()
            for due, message in entries:
                if message.ordinal not in ordinals:
                    self._near.push(due, message)
        for minute, page in list(self._far.items()):
            column = array("Q", page)[::3]
            places = sorted((column.index(ordinal) for ordinal in set(ordinals).intersection(column)), reverse=True)
            for place in places:
                part = slice(place * FAR_SIZE, (place + 1) * FAR_SIZE)
                ((ordinal, due, attempts),) = unpack(page[part])
                taken.append((due, Message(ordinal, attempts)))
                del page[part]
            if not page:
                del self._far[minute]
        self.count -= len(taken)
        return taken

    def items(self) -> Iterator[tuple[int, Message]]:
        """All (due, message), in no promised order."""
        yield from self._near.entries()
        for page in self._far.values():
            for ordinal, due, attempts in unpack(page):
                yield due, Message(ordinal, attempts)

    def page(self, after: str, limit: int, first: int, end: int) -> tuple[list[tuple[int, int, int]], str]:
        """Up to `limit` (ordinal, due, attempts), of first..end, behind `after`; and what to go on behind.

        "" is the beginning, and the end. The near ones come by their time, then the far ones by the minute. Raises ValueError.
        """
        place = tuple(map(int, after[1:].split("."))) if after else (-1, -1)
        if len(place) != 2 or after[:1] not in ("", "n", "f"):
            raise ValueError("no such place")
        found: list[tuple[int, int, int]] = []
        if after[:1] != "f":
            waiting = (
                (due, one.ordinal, one.attempts) for due, one in self._near.entries() if first <= one.ordinal < end
            )
            near = nsmallest(limit + 1, (entry for entry in waiting if entry[:2] > place))
            found = [(ordinal, due, attempts) for due, ordinal, attempts in near[:limit]]
            if len(near) > limit:
                return found, f"n{found[-1][1]}.{found[-1][0]}"
            place = (-1, -1)
        for minute in sorted(minute for minute in self._far if minute >= place[0]):
            index = place[1] + 1 if minute == place[0] else 0
            entries = unpack(memoryview(self._far[minute])[max(0, index) * FAR_SIZE :])
            for ordinal, due, attempts in entries:
                if first <= ordinal < end:
                    if len(found) == limit:
                        return found, f"f{minute}.{index - 1}"
                    found.append((ordinal, due, attempts))
                index += 1
        return found, ""

    def packed(self) -> tuple[bytes, list[bytes]]:
        """The near ones, 24 bytes each, in no promised order; and the far ones likewise, some minute's in each piece."""
        near = [pack(message.ordinal, due, message.attempts) for due, message in self._near.entries()]
        return b"".join(near), [bytes(page) for page in self._far.values()]

    def load(self, page: bytes) -> None:
        """Hold a piece of far ones again, that `packed` gave out. Their times may have been moved, all by as much."""
        minute = min(array("q", page)[1::3]) // MINUTE
        self._far.setdefault(minute, bytearray()).extend(page)
        self.count += len(page) // FAR_SIZE

    def clear(self) -> None:
        """Drop everything."""
        self._near.clear()
        self._far.clear()
        self.count = 0

    def __len__(self) -> int:
        return self.count

    def __repr__(self) -> str:
        return f"<Deferred: {len(self._near)} near, {self.count - len(self._near)} far>"

    @property
    def memory(self) -> int:
        """Bytes that they take, about."""
        near = len(self._near)
        far = (self.count - near) * FAR_SIZE
        return far * 9 // 8 + near * NEAR_BYTES  # a growing bytearray has an eighth to spare

    def _approach_at(self, minute: int) -> int:
        """When the page of that minute is moved near: in the minute before it, and ten seconds before it at the latest."""
        return (minute - 1) * MINUTE + self._phase

    def check(self) -> None:
        """Raise AssertionError if an invariant of this class does not hold."""
        self._near.check()
        assert self.count == len(self._near) + sum(len(page) for page in self._far.values()) // FAR_SIZE
        assert all(self._far.values())

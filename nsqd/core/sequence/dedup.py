"""Deduplicated publish: the keys and sequences that a topic remembers, to recognize a message that is sent again.

A message has a key, or a producer that numbers its messages in ascending order. A topic remembers keys for some time, and the
last number of each producer, however old. The node limits the number of keys and producers: at the limit a topic forgets its
own oldest for each new one. Everything is restored from the messages' attributes in the log and from checkpoints, so a retry
after a kill is recognized, too.

A key may also be unique while its message is pending, instead of for some time: until every reader has finished it. The two
kinds of keys know nothing of each other. See Topic.pending_id.

See docs/contributing/design/channel.md#deduplication.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # the options need the limits, but not msgpack
    from nsqd.core.message.attributes import Attributes

# keys of messages that may be finished, with each new one: they never are many more than pending messages
CHECKED_AT_ONCE = 2
MOST_FORGOTTEN = 200  # expired keys to forget with each message, so that no turn is spent on a hundred thousand


@dataclass(frozen=True, slots=True)
class DedupLimits:
    """The limits of what a node remembers of publishers."""

    window: int = 600_000_000_000  # ns for which a key is remembered
    keys: int = 100_000
    producers: int = 10_000


@dataclass(slots=True)
class Remembered:
    """The number of keys and producers that all topics of a node remember."""

    keys: int = 0
    producers: int = 0


class Dedup:
    """The keys and producers that one topic remembers."""

    __slots__ = ("_limits", "_total", "keys", "pending", "producers")

    def __init__(self, limits: DedupLimits, total: Remembered) -> None:
        self._limits = limits
        self._total = total
        self.keys: OrderedDict[str, int] = OrderedDict()  # key -> when it was published (monotonic ns), oldest first
        # key -> ordinal and id of a message that may be pending, in the order in which they were checked last
        self.pending: OrderedDict[str, tuple[int, int]] = OrderedDict()
        self.producers: OrderedDict[str, int] = OrderedDict()  # producer -> its last number, latest last

    def admit(self, attributes: Attributes, count: int, now: int) -> int:
        """Return the number of the first of `count` messages that were published before, and remember the others.

        A key that is unique while pending is the caller's matter.
        """
        if attributes.while_pending:
            return 0
        if attributes.key:
            return count if self._is_known(attributes.key, now) else 0
        if not attributes.producer:
            return 0
        last, newest = self.producers.get(attributes.producer, -1), attributes.sequence + count - 1
        duplicates = min(count, max(0, last + 1 - attributes.sequence))
        self._note_producer(attributes.producer, max(last, newest))
        return duplicates

    def knows(self, key: str, now: int) -> bool:
        """Return True if the key was published within the window. Remembers nothing itself."""
        stamp = self.keys.get(key)
        return stamp is not None and stamp >= now - self._limits.window

    def _is_known(self, key: str, now: int) -> bool:
        self.expire_keys(now, MOST_FORGOTTEN)
        if self.knows(key, now):
            return True
        self._note_key(key, now)
        return False

    def _note_key(self, key: str, stamp: int) -> None:
        self._total.keys += key not in self.keys
        self.keys[key] = stamp
        self.keys.move_to_end(key)
        if self._total.keys > self._limits.keys:
            self._forget_first()

    def note_pending(self, key: str, ordinal: int, message_id: int, is_pending: Callable[[int], bool]) -> None:
        """Remember that the message with this ordinal and id has the key. Forget keys whose messages are not pending."""
        for _ in range(min(CHECKED_AT_ONCE, len(self.pending))):
            first, (checked, _) = next(iter(self.pending.items()))
            if is_pending(checked):
                self.pending.move_to_end(first)
            else:
                del self.pending[first]
                self._total.keys -= 1
        self._remember_pending(key, ordinal, message_id)

    def _remember_pending(self, key: str, ordinal: int, message_id: int) -> None:
        self._total.keys += key not in self.pending
        self.pending[key] = ordinal, message_id
        if self._total.keys > self._limits.keys:
            self._forget_first()

    def _note_producer(self, producer: str, last: int) -> None:
        self._total.producers += producer not in self.producers
        self.producers[producer] = last
        self.producers.move_to_end(producer)
        if self._total.producers > self._limits.producers:
            self.producers.popitem(last=False)
            self._total.producers -= 1

    def expire_keys(self, now: int, most: int = 1 << 62) -> None:
        """Forget up to `most` keys that are older than the window."""
        oldest = now - self._limits.window
        while self.keys and most > 0 and next(iter(self.keys.values())) < oldest:
            self._forget_first()
            most -= 1

    def _forget_first(self) -> None:
        (self.keys or self.pending).popitem(last=False)
        self._total.keys -= 1

    def clear(self) -> None:
        """Forget all keys and producers of the topic."""
        self._total.keys -= len(self.keys) + len(self.pending)
        self._total.producers -= len(self.producers)
        self.keys.clear()
        self.pending.clear()
        self.producers.clear()

    def restore(
        self,
        keys: Mapping[str, int],
        producers: Mapping[str, int],
        pending: Mapping[str, tuple[int, int]],
        now: int,
    ) -> None:
        """Remember, after a restart, what was known before it, the oldest first, and forget keys that are too old."""
        for key, stamp in keys.items():
            self._note_key(key, stamp)
        for key, (ordinal, message_id) in pending.items():
            self._remember_pending(key, ordinal, message_id)
        for producer, last in producers.items():
            self._note_producer(producer, last)
        self.expire_keys(now)

    def __repr__(self) -> str:
        return f"<Seen: {len(self.keys)} + {len(self.pending)} keys, {len(self.producers)} producers>"

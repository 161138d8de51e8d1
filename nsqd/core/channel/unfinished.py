"""The messages that a channel has not finished when it is emptied or deleted, and their release bit by bit.

The channel gives its containers up, and begins with new ones. As long as a message has not been released, the extent that holds
it stays, so the messages ahead of the cursor are not listed: they are looked up in the topic's sequence, extent by extent.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice

from nsqd.core.channel.buried import Buried
from nsqd.core.channel.retry import RetryQueue
from nsqd.core.sequence.ahead import Ahead
from nsqd.core.sequence.finished import Span
from nsqd.core.sequence.journal import ReaderJournal
from nsqd.core.sequence.spans import runs
from nsqd.core.timing.deferred import Deferred

SINGLES = 50  # messages in a step that are released one by one: 2 us each


@dataclass(frozen=True, slots=True)
class Unfinished:
    """All messages that a channel has not finished."""

    in_flight: list[Span]  # (first, count)
    ahead: Ahead
    retry: RetryQueue
    deferred: Deferred
    buried: Buried
    start: int  # messages before it were never for this channel
    delayed: list[Iterable[int]]  # ordinals in the topic's delay queue, some of which may be before `start`

    def steps(self) -> Iterator[list[Span]]:
        """Yield the messages as spans (first, end), the work of a step at a time, and take the containers apart."""
        for at in range(0, len(self.in_flight), SINGLES):
            yield [(first, first + count) for first, count in self.in_flight[at : at + SINGLES]]
        while self.retry:
            yield runs(self.retry.popleft()[1].ordinal for _ in range(min(SINGLES, len(self.retry))))
        while ordinals := self.deferred.pop_batch(SINGLES):
            yield runs(ordinals)
        while letters := self.buried.pop_batch(SINGLES):
            yield runs(letter.ordinal for letter in letters)
        for part in self.delayed:
            waiting = iter(part)
            while ordinals := list(islice(waiting, SINGLES)):
                yield runs(one for one in ordinals if self.start <= one < self.ahead.distributed)
        yield from self.ahead.spans()


def release_all(given_up: Unfinished, journal: ReaderJournal) -> Iterator[None]:
    """Release everything that a channel has given up, a part with each step."""
    for spans in given_up.steps():
        for first, end in spans:
            journal.release(first, end)
        yield

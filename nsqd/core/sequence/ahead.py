"""The messages of a topic that a reader has not come to yet, when it gives them up: looked up a few extents at a time.

They are not listed beforehand, because an extent stays as long as a reader references one of its messages.
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice, takewhile

from nsqd.core.sequence.finished import Span
from nsqd.core.sequence.journal import Extents
from nsqd.core.sequence.spans import without

EXTENTS_AT_ONCE = 2  # 2,048 messages in memory are released in 0.2 ms


@dataclass(frozen=True, slots=True)
class Ahead:
    """The messages between a position of a reader and the distributed offset, except for those in holes."""

    extents: Extents
    position: int
    distributed: int
    holes: deque[Span]  # ascending, disjoint
    includes_delayed: bool  # False: messages that were published with a delay are left out

    def spans(self) -> Iterator[list[Span]]:
        """Yield the spans (first, end) of a few extents at a time. Earlier spans may be released meanwhile."""
        position, holes = self.position, self.holes
        while parts := list(islice(self.extents.extents(position, self.distributed), EXTENTS_AT_ONCE)):
            position = parts[-1][1]
            yield [
                span
                for first, end, delayed in parts
                if self.includes_delayed or not delayed
                for span in without(first, end, takewhile(lambda hole, end=end: hole[0] < end, holes))  # type: ignore[misc]
            ]
            while holes and holes[0][1] <= position:
                holes.popleft()

"""How many nodes have the log up to where: the marks for which replies wait that ask for several copies.

With n copies this node is one of them, so a mark for n is where the (n - 1)th best follower is. A message that no follower gets
in time is given up: its producer gets an error that says that it may be delivered anyway, and it is delivered.

See docs/contributing/design/cluster-protocol.md#the-gate.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from nsqd.core.sequence.mark import Mark
from shared.topic_config import MOST_COPIES


@dataclass(slots=True)
class _Marks:
    """The marks for one number of copies, in the durability of one mode."""

    copied: Mark  # up to which n nodes have the log
    leaving: Mark  # up to which messages may be delivered: they are copied, or were given up
    limited: Mark  # as `copied`, for replies that have a limit of their own: they are not given up here
    # until when something waits, for which position, and whether replies do that are given up then
    waiting: deque[tuple[int, int, bool]] = field(default_factory=deque)


class Copies:
    """The marks of the copies of one log."""

    def __init__(self, position: int) -> None:
        """Begin with everything before `position` copied: earlier runs of the node have acknowledged it."""
        self._start = position
        self._marks: dict[tuple[int, bool], _Marks] = {}  # by number of copies, and whether they are to be durable
        self._positions: list[tuple[int, int]] = []
        self._fewest = MOST_COPIES + 1
        self.patience = 0  # ns after which a reply is given up; 0: never
        self._given_up = 0  # replies given up since the start, except for those with a limit of their own
        self.available = 1  # copies that are possible now, this node's included
        self.configured = 1  # the most copies that a topic was configured with since the start
        self.on_available: Callable[[int], None] = lambda available: None
        self.is_paused: Callable[[], bool] = lambda: False  # True: another node may lead the log, so no message leaves

    def _of(self, n: int, is_durable: bool) -> _Marks:
        marks = self._marks.get((n, is_durable))
        if marks is None:
            what = "durable" if is_durable else "written"
            copied, leaving = Mark(f"{what} at {n}", self._start), Mark(f"leaving at {n}", self._start)
            limited = Mark(f"{what} at {n}, or an error", self._start, has_limits=True)
            marks = self._marks[n, is_durable] = _Marks(copied, leaving, limited)
            self._move(n, is_durable, marks)
        return marks

    @property
    def asked(self) -> tuple[int, int]:
        """Return the smallest and the largest number of copies, above 1, that was asked for since the start; (0, 1): none."""
        numbers = [n for n, _ in self._marks]
        return min(numbers, default=0), max(numbers, default=1)

    @property
    def given_up(self) -> int:
        """Return the number of replies that were given up since the start."""
        return self._given_up + sum(marks.limited.in_vain for marks in self._marks.values())

    def copied(self, n: int, is_durable: bool, has_limit: bool = False) -> Mark:
        """Return the mark up to which n nodes, 2 or more, have written the log, or have it durable.

        `has_limit`: for replies that have a limit of their own.
        """
        marks = self._of(n, is_durable)
        return marks.limited if has_limit else marks.copied

    def leaving(self, n: int, is_durable: bool) -> Mark:
        """Return the mark up to which messages may be delivered that need n copies."""
        return self._of(n, is_durable).leaving

    @property
    def holds_messages(self) -> bool:
        """Return True if messages wait for copies, or were not yet seen to leave."""
        return any(marks.leaving.holds for marks in self._marks.values())

    def marks(self) -> Iterator[Mark]:
        for marks in self._marks.values():
            yield from (marks.copied, marks.leaving, marks.limited)

    def wait(self, awaited: Iterable[Mark], position: int, now: int) -> tuple[bool, bool]:
        """Note that replies wait until these marks reach `position`.

        Returns whether any of them waits for followers, and whether it waits until they have synced.
        """
        is_awaited = needs_sync = False
        for (_, is_durable), marks in self._marks.items():
            marks.leaving.release_reached(now)
            if marks.leaving in awaited and marks.leaving.position < position:
                marks.leaving.hold(position, now)
            is_given_up = marks.copied in awaited
            wants = is_given_up or marks.leaving in awaited or marks.limited in awaited
            if wants and marks.copied.position < position:
                marks.waiting.append((now + self.patience, position, is_given_up))
                is_awaited, needs_sync = True, needs_sync or is_durable
        return is_awaited, needs_sync

    def update(self, positions: Iterable[tuple[int, int]], fewest: int = 2) -> None:
        """Set the positions up to which each in-sync follower has written the log, and has it durable.

        `fewest`: the smallest number of copies of which the log states that publishes ask for it, 0: none. For fewer copies
        nothing counts yet: a start would not wait for the nodes that have them.
        """
        self._positions, self._fewest = list(positions), fewest or MOST_COPIES + 1
        for (n, is_durable), marks in self._marks.items():
            self._move(n, is_durable, marks)

    def _move(self, n: int, is_durable: bool, marks: _Marks) -> None:
        best = sorted((pair[is_durable] for pair in self._positions), reverse=True)
        if len(best) >= n - 1 and n >= self._fewest:
            position = best[n - 2]
            marks.limited.position = marks.copied.position = max(marks.copied.position, position)
        self._let_leave(marks)
        while marks.waiting and marks.waiting[0][1] <= marks.copied.position:
            marks.waiting.popleft()

    def _let_leave(self, marks: _Marks) -> None:
        if not self.is_paused():
            marks.leaving.position = max(marks.leaving.position, marks.copied.position, marks.copied.given_up)

    def set_available(self, available: int) -> None:
        """Set the number of copies that are possible now."""
        if available != self.available:
            self.available = available
            self.on_available(available)

    def longest_wait(self, now: int) -> int:
        """Return for how many ns what has waited longest for its copies has waited; 0: nothing waits."""
        dues = [marks.waiting[0][0] for marks in self._marks.values() if marks.waiting]
        return now + self.patience - min(dues) if dues else 0

    def expire(self, now: int) -> bool:
        """Give up the replies that have waited for too long. Returns True if there are any."""
        expired = False
        for marks in self._marks.values():
            while self.patience and marks.waiting and marks.waiting[0][0] <= now:
                _, position, is_given_up = marks.waiting.popleft()
                marks.copied.given_up = max(marks.copied.given_up, position)
                self._given_up += is_given_up
                expired = True
            self._let_leave(marks)
            marks.leaving.release_reached(now)
        return expired

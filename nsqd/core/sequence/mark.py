"""Marks, which say how far a log has come, and promises, for which replies wait.

A log has several marks: how far it is written, how far it is durable, and later how far other nodes have copied it. A reply
names the marks for which it waits. When the turn's records are committed, each of these marks becomes a promise that it will
reach a certain position. The reply leaves once all its promises are kept, whatever is recorded after it.

See docs/contributing/design/log.md#positions-and-marks.
"""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

GRAIN = 50_000_000  # ns between two times that a mark remembers of what waits for it; more, the more it remembers
LATE = 100_000_000  # ns: output that was held back for less is not remembered
MOST_LATE = 64  # holds that are remembered


class Mark:
    """The position up to which one property, such as "durable", holds for a log."""

    __slots__ = ("_late", "_waiting", "broken", "given_up", "has_limits", "in_vain", "name", "position")

    def __init__(self, name: str, position: int = 0, has_limits: bool = False) -> None:
        self.name = name  # of the property, for example "durable"
        self.has_limits = has_limits  # True: it is for replies that have a limit of their own, and is not given up
        self.position = position  # the property holds for every record before this position, which never decreases
        self.broken = False  # True: the mark will never move again
        # replies that wait for a position up to this one wait no longer, though it may be reached yet
        self.given_up = 0
        self.in_vain = 0  # replies with a limit of their own that have waited for the mark until that
        self._waiting: deque[tuple[int, int]] = deque()  # positions that output waits for, and since when
        # output that was held back for long: of which turns, from and until, and when it left
        self._late: deque[tuple[int, int, int]] = deque(maxlen=MOST_LATE)

    def hold(self, position: int, now: int) -> None:
        """Note that output of the turn at `now` waits until the mark reaches `position`. Times are monotonic ns."""
        waiting = self._waiting
        if not waiting or now - waiting[-1][1] >= GRAIN * (1 + len(waiting) // 20):
            waiting.append((position, now))

    @property
    def holds(self) -> bool:
        """Return True if `release_reached` has to follow."""
        return bool(self._waiting)

    def release_reached(self, now: int) -> None:
        """Note that what waited for positions which the mark has reached by `now` leaves."""
        waiting = self._waiting
        if waiting and waiting[0][0] <= self.position:
            first = waiting[0][1]
            while waiting and waiting[0][0] <= self.position:
                waiting.popleft()
            if now - first >= LATE:
                self._late.append((first, waiting[0][1] if waiting else now, now))

    def left_at(self, turn: int, now: int) -> int | None:
        """Return the time at which the output of a turn left that waited for the mark; None: it has not left by `now`."""
        self.release_reached(now)
        if self._waiting and turn >= self._waiting[0][1]:
            return None
        return next((left for first, until, left in self._late if first <= turn < until), turn)

    def __repr__(self) -> str:
        return f"<Mark {self.name} {self.position}{' broken' if self.broken else ''}>"


@dataclass(frozen=True, slots=True)
class Promise:
    """A condition of a reply, which may leave when the mark has reached the position."""

    mark: Mark
    position: int

    @property
    def is_kept(self) -> bool:
        return self.mark.position >= self.position

    @property
    def is_broken(self) -> bool:
        """Return True if the promise will never be kept, or no reply waits for it now."""
        mark = self.mark
        return (mark.broken or self.position <= mark.given_up) and not self.is_kept


def of_all(promises: Iterable[Promise]) -> list[Promise]:
    """Return the promises for which all output of a turn may wait: one of them without a limit could hold it up permanently."""
    return [promise for promise in promises if not promise.mark.has_limits]


def are_kept(promises: Iterable[Promise]) -> bool:
    """Return True if all the promises are kept."""
    for promise in promises:  # noqa: SIM110 (a generator and a property for each cost five times as much, for every reply)
        if promise.mark.position < promise.position:
            return False
    return True

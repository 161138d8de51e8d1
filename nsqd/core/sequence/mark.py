"""Marks, which say how far a log has come, and promises, for which replies wait.

A log has several marks: how far it is written, how far it is durable, and later how far other nodes have copied it. A reply
names the marks for which it waits. When the turn's records are committed, each of these marks becomes a promise that it will
reach a certain position. The reply leaves once all its promises are kept, whatever is recorded after it.

See docs/design/log.md#positions-and-marks.
"""

from collections.abc import Iterable
from dataclasses import dataclass


class Mark:
    """The position up to which one property, such as "durable", holds for a log."""

    __slots__ = ("broken", "given_up", "in_vain", "name", "position")

    def __init__(self, name: str, position: int = 0) -> None:
        self.name = name  # of the property, for example "durable"
        self.position = position  # the property holds for every record before this position, which never decreases
        self.broken = False  # True: the mark will never move again
        self.given_up = (
            0  # replies that wait for a position up to this one wait no longer, though it may be reached yet
        )
        self.in_vain = 0  # replies with a limit of their own that have waited for the mark until that

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
        """Return True if the promise will never be kept, or nobody waits for it any more."""
        mark = self.mark
        return (mark.broken or self.position <= mark.given_up) and not self.is_kept


def are_kept(promises: Iterable[Promise]) -> bool:
    """Return True if all the promises are kept."""
    for promise in promises:  # noqa: SIM110 (a generator and a property for each cost five times as much, for every reply)
        if promise.mark.position < promise.position:
            return False
    return True

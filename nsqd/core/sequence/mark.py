"""How far a log has come, and what replies wait for.

A log has several marks: how far it is written, how far it is durable, and later how far other nodes have copied it. A reply
names the marks that it waits for. When the turn's records are committed, each of them becomes a promise: this mark, that
position. The reply leaves once all its promises are kept, whatever is recorded after it.
"""

from collections.abc import Iterable
from dataclasses import dataclass


class Mark:
    """How far one log has come in one respect."""

    __slots__ = ("broken", "name", "position")

    def __init__(self, name: str, position: int = 0) -> None:
        self.name = name  # of the respect, for example "durable"
        self.position = position  # it holds of every record before this position; it never goes back
        self.broken = False  # True: it will never move again

    def __repr__(self) -> str:
        return f"<Mark {self.name} {self.position}{' broken' if self.broken else ''}>"


@dataclass(frozen=True, slots=True)
class Promise:
    """A reply may leave when the mark has reached the position."""

    mark: Mark
    position: int

    @property
    def is_kept(self) -> bool:
        return self.mark.position >= self.position

    @property
    def is_broken(self) -> bool:
        """True if it will never be kept."""
        return self.mark.broken and not self.is_kept


def are_kept(promises: Iterable[Promise]) -> bool:
    """All of them are."""
    for promise in promises:  # noqa: SIM110 (a generator and a property for each cost five times as much, for every reply)
        if promise.mark.position < promise.position:
            return False
    return True

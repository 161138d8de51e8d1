"""Frees what emptied and deleted readers and topics had, a little in each turn.

To a client, an emptied channel is empty at once, and a deleted topic is gone at once. To free three million messages takes a
second, during which nobody would be served. So the owner gives its containers up, and hands over a generator that takes them
apart: each `next` is a step of up to about 0.1 ms. Nothing that is visible, and nothing in the log, depends on how far it is.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nsqd.core.timing.agenda import Agenda

AT_ONCE = 6  # steps that are done in a row


class Reclaimer:
    """The work that is left, oldest first. While there is any, the agenda serves it in each turn. Implements Server."""

    __slots__ = ("_agenda", "_work")

    def __init__(self, agenda: Agenda) -> None:
        self._agenda = agenda
        self._work: deque[Iterator[None]] = deque()

    def add(self, steps: Iterator[None]) -> None:
        """Begin work at once, and go on in later turns if AT_ONCE steps do not end it."""
        if self._advance(steps):
            self._work.append(steps)
            self._agenda.awake[self] = None

    def add_later(self, steps: Iterator[None]) -> None:
        """Have work done in later turns only: much of it may come at once."""
        self._work.append(steps)
        self._agenda.awake[self] = None

    def serve(self, now: int) -> None:
        """Do some steps, and ask for another turn if there is more to do."""
        if self._work and not self._advance(self._work[0]):
            self._work.popleft()
        if self._work:
            self._agenda.awake[self] = None

    def _advance(self, steps: Iterator[None]) -> bool:
        """Do up to AT_ONCE steps. Return True if there may be more."""
        return all(next(steps, self) is None for _ in range(AT_ONCE))

    @property
    def is_idle(self) -> bool:
        """Return True if there is nothing left to free."""
        return not self._work

    def finish(self) -> None:
        """Do all the work that is left, however long it takes."""
        while self._work:
            for _ in self._work.popleft():
                pass

    def __repr__(self) -> str:
        return f"<Reclaimer: {len(self._work)} to take apart>"

"""The pauses of a tube, of two kinds. While either lasts, the tube gives out no job.

A pause by pause-tube has an end, and a restart ends it, too. The pause of its queue, by clients of Disque, lasts until they end
it: the log keeps it. It may also keep jobs from being added. Each command replaces what was before.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from nsqd.core.timing.pause import Pause
from shared.values import SECOND

if TYPE_CHECKING:
    from nsqd.core.sequence.journal import ReaderJournal

ENDLESS = 1 << 61  # monotonic ns: the end of a pause that has none
LONGEST_PAUSE = (1 << 32) - 1  # s that a pause may last, as with pause-tube


class Pausable(ABC):
    """What of a tube can be paused: it, and its shards with it."""

    __slots__ = ("journal", "pause_asked", "pause_until", "paused", "shards")

    journal: ReaderJournal
    shards: Sequence[Pausable]

    def __init__(self) -> None:
        self.pause_until = self.pause_asked = 0  # end of the pause (monotonic ns); length asked for (ns); 0: not paused
        self.paused: Pause | None = None  # that of its queue

    @abstractmethod
    def pause_changed(self) -> None:
        """React to a changed pause: jobs may leave, or will at another time."""

    def pause_for(self, ns: int, now: int) -> None:
        """Pause the tube for `ns`; 0 ends a pause. `now`: monotonic ns.

        If the queue is paused for jobs that go, that ends.
        """
        for shard in self.shards:
            shard._pause_for(ns, now)

    def _pause_for(self, ns: int, now: int) -> None:
        if self.paused is not None and self.paused.out:
            self._set_paused(replace(self.paused, out=False) if self.paused.into else None)
        self.pause_until, self.pause_asked = (now + ns if ns else 0), ns
        self.pause_changed()

    def pause_queue(self, paused: Pause | None) -> None:
        """Pause the queue of that name as `paused` says, until the next call, also over restarts; None: end all pauses."""
        for shard in self.shards:
            shard._pause_queue(paused)

    def _pause_queue(self, paused: Pause | None) -> None:
        if paused != self.paused:
            self._set_paused(paused)
        self.restore_pause(paused)
        self.pause_changed()

    def restore_pause(self, paused: Pause | None) -> None:
        """Take over the pause of the queue that the log knows, in place of any other."""
        self.paused = paused
        self.pause_until = self.pause_asked = ENDLESS if self.is_held else 0

    def inherit_pause(self, local: Pausable) -> None:
        """Take part in the pause of the tube that this one becomes a shard of, unless its own queue keeps its jobs back."""
        if self.is_held:
            return
        if local.is_held:
            self._pause_queue(local.paused)
        else:
            self.pause_until, self.pause_asked = local.pause_until, local.pause_asked

    def _set_paused(self, paused: Pause | None) -> None:
        self.paused = paused
        self.journal.pause(paused)

    @property
    def is_held(self) -> bool:
        """Return True if the queue is paused for jobs that go."""
        return self.paused is not None and self.paused.out

    @property
    def refuses_jobs(self) -> bool:
        """Return True if the queue is paused for jobs that clients of Disque add. Others may still put jobs."""
        return self.paused is not None and self.paused.into

    @property
    def pause_end(self) -> int | None:
        """Return the time at which a pause ends by itself (monotonic ns); None: none does."""
        return self.pause_until if self.pause_until and not self.is_held else None

    def pause_left(self, now: int) -> int:
        """Return for how many s the tube gives out no job: at most LONGEST_PAUSE, which stands indefinitely, too. `now`: ns."""
        return LONGEST_PAUSE if self.is_held else min(LONGEST_PAUSE, max(0, self.pause_until - now) // SECOND)

    def __repr__(self) -> str:
        return f"<Pausable until {self.pause_until}, {self.paused}>"

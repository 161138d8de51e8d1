"""The lines of the program's log about publishes that wait for copies of a log, or were given up."""

from __future__ import annotations

from collections.abc import Iterable

from nsqd.storage.log.copies import Copies
from shared.log import log
from shared.values import SECOND

LATE = 500_000_000  # ns that a publish waits for copies until a line says for which nodes
REPORT_EVERY = 60_000_000_000  # ns between two lines of one kind


class WaitReports:
    """Writes these lines about one log."""

    def __init__(self, copies: Copies, name: str) -> None:
        """`name`: of the log, as the lines have it."""
        self._copies, self._name = copies, name
        self._late_due = self._given_up_due = 0  # monotonic ns: when the next line of that kind may be written
        self._given_up = 0  # replies given up that lines were written about

    def report_late(self, now: int, late: Iterable[int]) -> None:
        """Report since when publishes have waited. `late`: numbers of the nodes that have not confirmed them."""
        waited = self._copies.longest_wait(now)
        if waited >= LATE and now >= self._late_due:
            log.info(
                "CLUSTER: publishes into %s have waited for copies for %.1f s: nodes %s have not confirmed them",
                self._name, waited / SECOND, sorted(late),
            )  # fmt: skip
            self._late_due = now + REPORT_EVERY

    def report_given_up(self, now: int) -> None:
        """Report how many replies were given up since the last line about them."""
        count = self._copies.given_up - self._given_up
        if count and now >= self._given_up_due:
            log.warning("CLUSTER: %d replies to publishes into %s were given up: no copy in time", count, self._name)
            self._given_up, self._given_up_due = self._copies.given_up, now + REPORT_EVERY

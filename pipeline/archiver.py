"""Topics to a Delta table, batch by batch, each message once, whichever process is killed at any moment.

A batch is planned here, read and written by tasks (`penstock.lake.task`), and added to the table by one commit, which also says
up to where each log is archived. So the table alone knows where to continue, and there is no checkpoint.

See docs/contributing/design/lake.md.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from penstock.lake.location import LakeError
from penstock.lake.progress import Advance
from penstock.lake.table import MessageTable
from penstock.lake.task import Log, Outcome, Work
from penstock.spark.follower import Follower, Positions
from penstock.spark.offsets import NodeTopic, Span, clipped, ends, firsts_of, moved
from penstock.spark.options import LATEST
from penstock.spark.reading import DataLoss
from pipeline.saying import say
from shared.counted import counted

Tasks = Sequence[tuple[Span, ...]]
Runner = Callable[[Work, Tasks], Iterable[Outcome]]  # runs the work for each task


@dataclass(slots=True)
class Archiver:
    """Archives the topics that the options name, batch by batch. It belongs to one thread."""

    table: MessageTable
    follower: Follower
    run_tasks: Runner
    most: int = 0  # messages of a batch; 0: no limit
    done: int = 0  # messages archived so far
    stopped: dict[str, str] = field(default_factory=dict)  # topics that have lost messages, each with what was lost
    _positions: Positions = field(default_factory=dict)  # where the table ends, of the logs that it has
    _cursors: Positions = field(default_factory=dict)  # where the cursors on the nodes were moved last
    _seen: set[NodeTopic] = field(default_factory=set)  # places whose position the table was asked for

    def begin(self) -> None:
        """Take the positions from the table, and note there where a new archive begins that starts at the latest messages.

        The follower must have asked all nodes. Raises LakeError.
        """
        while True:
            try:
                self._recover(self.follower.ranges)
                break
            except DataLoss as loss:
                self._stop(loss.topic, loss.what)
        if self.follower.options.starting.word == LATEST:
            end = ends({}, self.follower.ranges)
            new = {place: at for place, at in end.items() if place not in self._positions}
            self.table.commit((), [Advance(place, at.log, None, at.next, at.next) for place, at in new.items()], ())
            self._positions |= new

    def archive_all(self) -> None:
        """Archive everything that the nodes have now, in batches. Raises as `batch`."""
        target = ends({}, self.follower.ranges)
        while self.batch(target):
            pass

    def batch(self, target: Positions | None = None) -> int:
        """Archive one batch and return how many messages the table has more. `target`: as of `Follower.end_after`.

        A topic that has lost messages is archived no longer. Raises NoAnswer, Refused, Unreachable, OSError, LakeError.
        """
        while True:
            try:
                return self._batch(target)
            except DataLoss as loss:
                self._stop(loss.topic, loss.what)

    def _batch(self, target: Positions | None) -> int:
        end = self._end(target)
        begin, ranges = moved(self._positions, end, self.follower.ranges), self.follower.ranges
        if self.most:
            end = clipped(begin, end, firsts_of(ranges), self.most)
        tasks = self.follower.plan(self._positions, end)
        began = time.monotonic()
        work = Work(self.follower.options, self.table.lake, self.table.partition_by)
        outcomes = list(self.run_tasks(work, tasks)) if tasks else []
        for lost in (one.lost for one in outcomes if one.lost):
            raise DataLoss(lost[1], lost[0])
        rows = sum((one.rows for one in outcomes), Counter[Log]())
        advances = self._advances(tasks)
        missing = [
            f"{rows[one.place, one.log]} of {one}" for one in advances if rows[one.place, one.log] < one.end - one.first
        ]
        count = rows.total()
        if advances and not self.table.commit([file for one in outcomes for file in one.files], advances, missing):
            count = 0  # the commit of an earlier life, whose answer was lost
        changed = {place: at for place, at in end.items() if self._cursors.get(place) != at}
        self._cursors, added = end, {one.place for one in advances}
        # A place that had no messages stays where it was, which may be nowhere: the table has no position in its log.
        after = {place: at if place in added else self._positions.get(place) for place, at in end.items()}
        self._positions = {place: at for place, at in after.items() if at is not None}
        for failure in self.follower.move_cursors(changed):
            say(f"cannot advance the cursor: {failure}")
        self.done += count
        if advances:
            took = time.monotonic() - began
            say(
                f"archived {counted(count, 'message')} in {took:.1f} s ({count / took:,.0f}/s), {self.done:,} since the start"
            )
        return sum(one.end - one.first for one in advances)

    def _end(self, target: Positions | None) -> Positions:
        """Return the end of the next batch. Asks the table where it ends for places that were not there before."""
        while True:
            end = self.follower.end_after(self._positions, target)
            new = end.keys() - self._seen
            if not new:
                return end
            self._recover(new)

    def _recover(self, places: Iterable[NodeTopic]) -> None:
        """Take the position of places from the table. Raises DataLoss if it has the topic, and none of its logs."""
        for place in sorted(places):
            at = self.table.position(place, self.follower.ranges[place])
            if at is not None:
                self._positions[place] = at
            elif self.table.knows(place) and self.follower.options.fails_on_loss:
                raise DataLoss(
                    f"{place} has another log than the one that was archived: it was deleted and recreated",
                    place.topic,
                )
            self._seen.add(place)

    def _advances(self, tasks: Tasks) -> list[Advance]:
        """Return the offsets that the tasks add to each log."""
        found: dict[Log, tuple[int, int]] = {}
        for span in (span for task in tasks for span in task):
            first, end = found.get((span.place, span.log), (span.first, span.end))
            found[span.place, span.log] = min(first, span.first), max(end, span.end)
        return [Advance(place, log, self._next(place, log), *bounds) for (place, log), bounds in sorted(found.items())]

    def _next(self, place: NodeTopic, log: str) -> int | None:
        at = self._positions.get(place)
        return at.next if at is not None and at.log == log else None

    def _stop(self, topic: str, what: str) -> None:
        say(f"STOPPED: topic {topic} is archived no longer: {what}. --skip-lost archives what is left")
        self.stopped[topic] = what
        self.follower.leave_out(topic)
        self._positions = {place: at for place, at in self._positions.items() if place.topic != topic}
        if not self.follower.ranges:
            raise LakeError("no topic is left to archive")

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
from penstock.spark.holders import Lost
from penstock.spark.offsets import (
    OWN,
    PROMOTED,
    LogPosition,
    NodeTopic,
    Span,
    TopicRange,
    clipped,
    ends,
    firsts_of,
    moved,
)
from penstock.spark.options import LATEST
from penstock.spark.reading import DataLoss
from pipeline.saying import say
from shared.counted import counted

Tasks = Sequence[tuple[Span, ...]]
_Key = tuple[NodeTopic, str, str]  # a log of a place, and OWN or PROMOTED
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
    # places whose position the table was asked for; "": the node's own log
    _seen: set[_Key] = field(default_factory=set)
    _looked: float = -1.0  # monotonic s when the follower had looked for nodes, when promoted logs were last looked for
    _promoted: dict[NodeTopic, list[TopicRange]] = field(default_factory=dict)  # logs of lost nodes, the oldest first
    _said: set[str] = field(default_factory=set)  # lines about lost nodes and their logs, each of which is printed once

    def begin(self) -> None:
        """Take the positions from the table; note there where a new archive begins at the latest messages, or in an old log.

        The follower must have asked all nodes. Raises LakeError.
        """
        while True:
            try:
                self._recover(self._new(self.follower.ranges), at_end=self.follower.options.starting.word == LATEST)
                break
            except DataLoss as loss:
                self._stop(loss.topic, loss.what)

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
            new = self._new(end)
            if not new:
                return end
            self._recover(new)

    def _new(self, places: Iterable[NodeTopic]) -> set[NodeTopic]:
        """Return the places that the table was not asked for; also those that have messages in logs of lost nodes only."""
        if self._looked != self.follower.looked:
            self._looked = self.follower.looked
            self._note_lost(self.follower.lost())
        keys = {self._own(place) for place in places}
        keys |= {
            (place, logs[-1].log, PROMOTED) for place, logs in self._promoted.items() if place not in self._positions
        }
        return {place for place, _, _ in keys - self._seen}

    def _own(self, place: NodeTopic) -> _Key:
        """Return the key of the log into which a node publishes; "": it does not answer, or does not have the topic."""
        one = self.follower.ranges.get(place)
        return place, one.log if one is not None and one.kind == OWN else "", OWN

    def _note_lost(self, lost: Lost) -> None:
        """Note the logs of lost nodes, and print what is not archived because of them, each line once."""
        self._promoted = lost.logs
        lines = [f"cannot look for the logs of lost nodes: {failure}" for failure in lost.failures]
        for node, at in lost.nodes.items():
            lines.append(
                f"node {node} at {at} is lost: its messages wait until it returns, or another node leads its log"
            )
        for place, logs in lost.logs.items():
            for one in logs:
                if one.next > one.first and one.log not in {other.log for other in self._logs(place)}:
                    what = f"offsets {one.first} to {one.next} of {place} in the log {one.log}, at {one.address}"
                    lines.append(f"NOT ARCHIVED: {what}, which no other log of the node continues: penstock read --log")
        for line in lines:
            self._say(line)

    def _recover(self, places: Iterable[NodeTopic], *, at_end: bool = False) -> None:
        """Take the position of places from the table. Others begin in their oldest log, or with `at_end` at their end.

        Raises DataLoss if the table has the topic, and none of its logs.
        """
        new, seen = Positions(), {self._own(place) for place in places}
        for place in sorted(places):
            logs = self._logs(place)
            known = (self.table.position(place, one) for one in reversed(logs))
            at = next((one for one in known if one is not None), None)
            if at is not None:
                if self._own(place)[1] or at != LogPosition(logs[-1].log, logs[-1].next):  # there may be more
                    self._positions[place] = at
            elif self.table.knows(place) and self.follower.options.fails_on_loss:
                what = f"{place} has another log than the one that was archived: it was deleted and recreated"
                raise DataLoss(what, place.topic)
            elif at_end:
                new[place] = LogPosition(logs[-1].log, logs[-1].next)
            elif place in self._promoted:
                new[place] = LogPosition(logs[0].log, logs[0].first)
                self._say(
                    f"node {place.node} was lost: its log {logs[0].log.partition('-')[0]} is at {logs[0].address}"
                )
            if place in self._promoted:
                seen.add((place, self._promoted[place][-1].log, PROMOTED))
        if new:
            self.table.commit((), [Advance(place, at.log, None, at.next, at.next) for place, at in new.items()], ())
        self._positions |= new
        self._seen |= seen

    def _logs(self, place: NodeTopic) -> list[TopicRange]:
        """Return the logs of a place, each of which continues the one before: those of lost nodes, then that of the node."""
        own, promoted = self.follower.ranges.get(place), self._promoted.get(place, [])
        last = own if own is not None and own.log not in {one.log for one in promoted} else promoted[-1]
        return [*(one for one in promoted if one.log in dict(last.parents)), last]

    def _say(self, line: str) -> None:
        if line not in self._said:
            self._said.add(line)
            say(line)

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
        self._promoted = {place: logs for place, logs in self._promoted.items() if place.topic != topic}
        if not self.follower.ranges:
            raise LakeError("no topic is left to archive")

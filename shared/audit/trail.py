"""Writes the audit of a daemon, in a thread of its own, so that `note` never waits for the disk.

Events wait in a bounded queue. The thread appends their lines to the file, and keeps them for the audit topic. If the queue is
full or the disk fails, events are left out; a record has their number, and the chain continues.

The file is opened for each write, so a file that log rotation has renamed gets nothing more. The first record in the new file
continues the chain.
"""

from __future__ import annotations

import os
import stat
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from math import inf
from typing import NamedTuple

from shared.audit.chain import EMPTY, MOST_LINE, BrokenChainError, Head, decode, digest, encode
from shared.audit.event import NODE, Event, Outcome, bounded
from shared.audit.rollup import RollUp
from shared.files import append_whole
from shared.log import log

MOST_WAITING = 10_000  # events, and lines that wait to be published: at most 160 MB, usually 4
TAIL = 8 * MOST_LINE  # bytes that are read at the end of the file
MOST_AT_ONCE = 500  # events in one write
CLOSE_WITHIN = 5.0  # s for the last records when the daemon stops: a disk that hangs must not hold it up
LEFT_OUT = "audit/left-out"  # count: events that are not recorded
TORN = "audit/torn"  # count: bytes of half a line that were cut off
CORRUPT = "audit/corrupt"  # the line before this one is no record


class End(NamedTuple):
    """The end of an audit file when it is opened."""

    head: Head = EMPTY
    torn: int = 0  # bytes of half a line after the last whole one, which were cut off
    is_corrupt: bool = False  # the last line is no record


class TrailFigures(NamedTuple):
    """The counts of an audit since the start."""

    records: int  # written
    left_out: int  # events that are not recorded, except for their number
    unpublished: int  # records that the audit topic did not get


class Trail:
    """The audit of a daemon. All but `write` and `close` may be called by any thread."""

    def __init__(
        self,
        path: str,
        node: int,
        wall: Callable[[], int] = time.time_ns,
        clock: Callable[[], float] = time.monotonic,
        publishes: bool = False,
    ) -> None:
        """Read the end of the file. `path` "": there is none. `publishes`: keep lines for `take_lines`. Raises OSError."""
        self._path, self._node, self._wall, self._clock, self._publishes = path, node, wall, clock, publishes
        end = open_end(path) if path else End()
        self._head = end.head  # the thread's
        self._changed = threading.Condition()  # guards what follows
        self._waiting: deque[tuple[int, Event]] = deque()  # with the time, in ns since the epoch; at most MOST_WAITING
        self._rollup = RollUp()
        self._is_busy = False  # the thread is writing
        self._is_closing = False
        self._dropped = 0  # events that found the queue full, and are in no record yet
        self._lines: deque[bytes] = deque()  # at most MOST_WAITING
        self._unpublished = 0
        self._unwritten = 0  # events that the disk did not take, and are in no record yet; the thread's
        self._is_failing = False  # the last write failed; the thread's
        self._records = self._left_out = 0
        self.on_lines: Callable[[], None] = lambda: None  # called by the thread when `take_lines` has something
        self._thread = threading.Thread(target=self._run, name="audit", daemon=True)
        if end.torn:
            self.note(Event(NODE, TORN, count=end.torn))
        if end.is_corrupt:
            self.note(Event(NODE, CORRUPT, outcome=Outcome.FAILED))

    def start(self) -> None:
        """Start the thread that writes the records."""
        self._thread.start()

    def note(self, event: Event) -> None:
        """Have an event recorded, soon. Never waits for the disk."""
        event, now = bounded(event), self._clock()
        with self._changed:
            due = self._rollup.next_end
            self._enqueue(self._rollup.ended(now))
            if self._rollup.admits(event, now):
                self._enqueue([event])
            if self._waiting or self._rollup.next_end != due:  # else the thread would wake up for each one of a flood
                self._changed.notify_all()

    def _enqueue(self, events: Sequence[Event]) -> None:
        room = max(0, MOST_WAITING - len(self._waiting))
        self._waiting.extend((self._wall(), event) for event in events[:room])
        self._dropped += len(events[room:])
        self._left_out += len(events[room:])

    def take_lines(self) -> list[bytes]:
        """Return the lines that were written and not taken yet, without their ends."""
        with self._changed:
            taken = list(self._lines)
            self._lines.clear()
        return taken

    def not_published(self, count: int) -> None:
        """Count lines that were taken, and that the audit topic did not get."""
        with self._changed:
            self._unpublished += count

    def figures(self) -> TrailFigures:
        """Return the numbers of events that were recorded, left out, and not published."""
        with self._changed:
            return TrailFigures(self._records, self._left_out, self._unpublished)

    def flush(self, within: float) -> None:
        """Wait until everything that was noted is written, or `within` s are over."""
        with self._changed:
            self._changed.wait_for(lambda: not (self._waiting or self._is_busy), within)

    def close(self) -> None:
        """Write the waiting events, and end the thread, if it was started."""
        with self._changed:
            self._enqueue(self._rollup.flush())
            self._is_closing = True
            self._changed.notify_all()
        if self._thread.is_alive():
            self._thread.join(CLOSE_WITHIN)

    # the thread

    def _run(self) -> None:
        while self._wait():
            self.write()
            with self._changed:
                self._is_busy = False
                self._changed.notify_all()

    def _wait(self) -> bool:
        """Wait for something to write. Returns False at the end."""
        with self._changed:
            while not self._waiting:
                if self._is_closing:
                    return False
                self._enqueue(self._rollup.ended(self._clock()))
                if not self._waiting:
                    due = self._rollup.next_end
                    self._changed.wait(None if due == inf else max(0.0, due - self._clock()))
            self._is_busy = True
        return True

    def write(self) -> None:
        """Write what waits, up to MOST_AT_ONCE events."""
        with self._changed:
            taken = [self._waiting.popleft() for _ in range(min(len(self._waiting), MOST_AT_ONCE))]
            dropped = 0
            if not self._waiting:  # they came behind all that waited
                dropped, self._dropped = self._dropped, 0
        before = _left_out(self._unwritten, taken[0][0] if taken else self._wall())
        events = [*before, *taken, *_left_out(dropped, self._wall())]
        lines, head = list[bytes](), self._head
        for wall, event in events:
            line, head = encode(head, self._node, wall, event)
            lines.append(line)
        if self._append(lines):
            self._head, self._unwritten = head, 0
            self._written(lines)
        else:
            self._unwritten += len(taken) + dropped
            with self._changed:
                self._left_out += len(taken)

    def _append(self, lines: list[bytes]) -> bool:
        """Append lines to the file. Returns False, and the log says why at the first time, if that fails."""
        if not self._path or not lines:
            return True
        try:
            append_whole(self._path, b"\n".join([*lines, b""]), sync=True)
        except OSError as error:
            if not self._is_failing:
                log.error("AUDIT: cannot write %s: %s; records are left out until that works", self._path, error)
            self._is_failing = True
            return False
        if self._is_failing:
            log.warning("AUDIT: writes to %s again; %d events are not recorded", self._path, self._unwritten)
        self._is_failing = False
        return True

    def _written(self, lines: list[bytes]) -> None:
        with self._changed:
            self._records += len(lines)
            if not self._publishes:
                return
            room = MOST_WAITING - len(self._lines)
            self._unpublished += max(0, len(lines) - room)
            self._lines.extend(lines[:room])
        self.on_lines()


def _left_out(count: int, wall: int) -> list[tuple[int, Event]]:
    """Return the record of events that are left out, if there are any."""
    return [(wall, Event(NODE, LEFT_OUT, outcome=Outcome.FAILED, count=count))] if count else []


def open_end(path: str) -> End:
    """Return the end of the chain, and cut off half a line. Creates the file. Raises OSError, also for other kinds of files."""
    place = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK, 0o640)
    try:
        found = os.fstat(place)
        if not stat.S_ISREG(found.st_mode):
            raise OSError("not a regular file")
        tail = os.pread(place, TAIL, max(0, found.st_size - TAIL))
        whole = tail.rfind(b"\n") + 1
        torn = len(tail) - whole
        end = _end_of(tail[:whole].splitlines(), torn)
        if torn:
            os.ftruncate(place, found.st_size - torn)
    finally:
        os.close(place)
    return end


def _end_of(lines: list[bytes], torn: int) -> End:
    """Return the end of the chain in the last lines. Raises OSError if the file is none of an audit: it is left as it is."""
    if torn > MOST_LINE:
        raise OSError("this file has a longer line at its end than an audit")
    if not lines:
        return End(torn=torn)
    is_corrupt = False
    for line in reversed(lines):
        try:
            return End(Head(decode(line)["seq"], digest(lines[-1])), torn, is_corrupt)
        except BrokenChainError:
            is_corrupt = True
    raise OSError("this file has something else at its end than audit records")

"""The tasks that publish what schedules have due (nsqd/core/scheduling), and write their files; between turns."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Protocol

import trio

from nsqd.core.broker import Broker
from nsqd.core.limits import TooMany
from nsqd.core.scheduling.schedules import Key, Schedules, Tick
from nsqd.core.sequence.mark import Mark
from nsqd.storage.schedule_files import ScheduleFiles
from nsqd.tasks.time_slices import TimeSlice
from shared.log import log

EVERY = 1.0  # s: ticks are published as a second of the clock begins
AT_ONCE = 10  # ticks in a row: each takes about 100 us with a cron expression
RETRY = 5  # s until a tick that was refused, or a file that could not be written, is tried again
REST = 9  # the pause after a write of the ticks is this many times as long as the write


class WhenSent(Protocol):
    """Calls `then` when the marks have reached what the next turn publishes; never, if that may be lost."""

    def __call__(self, marks: tuple[Mark, ...], then: Callable[[], None]) -> None: ...


class ScheduleTask:
    """Publishes the ticks of a node's schedules. All methods are for the reactor's thread."""

    def __init__(
        self, broker: Broker, schedules: Schedules, files: ScheduleFiles, when_sent: WhenSent, wake: Callable[[], None]
    ) -> None:
        """`wake` makes the turn that commits what was published."""
        self._broker, self._schedules, self._files = broker, schedules, files
        self._when_sent, self._wake = when_sent, wake
        self._refused: set[Key] = set()  # schedules whose last tick was refused: that is logged once
        self._is_stopped = False  # True: the log takes nothing more
        self._waiting: list[Callable[[bool], None]] = []  # see `keep`
        self._is_wanted = trio.Event()  # set: there is something to write
        self._is_asked = trio.Event()  # set: a request waits for that

    async def publish(self) -> None:
        """Publish what is due, until cancelled."""
        while True:
            await trio.sleep(EVERY - time.time() % EVERY)
            time_slice = TimeSlice()
            while self.publish_batch(int(time.time())):
                await time_slice.yield_if_due()

    def publish_batch(self, now: int) -> bool:
        """Publish at most AT_ONCE ticks that are due at `now` (s since the epoch). Return whether there were any."""
        if self._is_stopped:
            return False
        ticks = self._schedules.fetch_due(now, AT_ONCE)
        published: dict[tuple[Mark, ...], list[Tick]] = {}
        for tick in ticks:
            if not tick.is_published:
                self._skip(tick)
            elif (marks := self._publish(tick, now)) is not None:
                published.setdefault(marks, []).append(tick)
        for marks, done in published.items():
            self._when_sent(marks, partial(self._note, done))
        if ticks:
            self._wake()
        return bool(ticks)

    def stop_publishing(self) -> None:
        """Leave the ticks that follow to the task of another log."""
        self._is_stopped = True

    def _skip(self, tick: Tick) -> None:
        schedule = tick.schedule
        log.warning("SCHEDULE: skipped %s of %s, missed since %d", schedule.name, schedule.topic, tick.at)
        self._schedules.finish(tick)
        self._note([tick])

    def _publish(self, tick: Tick, now: int) -> tuple[Mark, ...] | None:
        """Publish a tick. Returns the marks that its message has to reach; None: it was refused, and is tried again."""
        schedule = tick.schedule
        try:
            topic = self._broker.admit(schedule.topic)
        except TooMany as refusal:
            if schedule.key not in self._refused:
                log.warning("SCHEDULE: cannot publish %s to %s: %s", schedule.name, schedule.topic, refusal)
            self._refused.add(schedule.key)
            self._schedules.retry(tick, now + RETRY)
            return None
        self._refused.discard(schedule.key)
        topic.intake.publish_with([schedule.body], schedule.attributes(tick.at))
        self._schedules.finish(tick)
        return topic.marks

    def _note(self, ticks: list[Tick]) -> None:
        for tick in ticks:
            self._schedules.note(tick)
        self._is_wanted.set()

    def keep(self, then: Callable[[bool], None]) -> None:
        """Write the schedules, and call `then` when they are durable (True) or cannot be written."""
        self._waiting.append(then)
        self._is_wanted.set()
        self._is_asked.set()

    async def write(self) -> None:
        """Write the files whenever the schedules change, until cancelled. Changes that come meanwhile are written together."""
        while True:
            await self._is_wanted.wait()
            self._is_wanted, self._is_asked = trio.Event(), trio.Event()
            waiting, self._waiting = self._waiting, []
            began = trio.current_time()
            is_written = self._settle(await trio.to_thread.run_sync(self._prepare_write()))
            for then in waiting:
                then(is_written)
            with trio.move_on_after((trio.current_time() - began) * REST if is_written else RETRY):
                await self._is_asked.wait()  # ticks can wait, requests cannot

    def write_now(self) -> bool:
        """Write what has changed. Return False if that fails."""
        return self._settle(self._prepare_write()())

    def _prepare_write(self) -> Callable[[], bool]:
        """Return a function for any thread that writes what has changed by now. It returns False if that fails."""
        schedules, files = self._schedules, self._files
        known = list(schedules.known.values()) if schedules.has_changed else None
        ticks = dict(schedules.noted) if schedules.has_new_notes else None
        schedules.has_changed = schedules.has_new_notes = False

        def write() -> bool:
            try:
                if known is not None:
                    files.write_schedules(known)
                if ticks is not None:
                    files.write_ticks(ticks)
            except OSError as error:
                log.error("SCHEDULE: cannot write the schedules: %s; trying again", error)
                return False
            return True

        return write

    def _settle(self, is_written: bool) -> bool:
        if not is_written:
            self._schedules.has_changed = self._schedules.has_new_notes = True
            self._is_wanted.set()
        return is_written

    def close(self) -> None:
        """Write the files for the last time. The log is closed."""
        self._schedules.note_all()
        self.write_now()

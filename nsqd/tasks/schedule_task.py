"""The task that publishes what schedules have due (nsqd/core/scheduling); between turns."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import Protocol

import trio

from nsqd.core.broker import Broker
from nsqd.core.limits import TooMany
from nsqd.core.scheduling.recurrence import At, Cron
from nsqd.core.scheduling.schedules import Tick
from nsqd.core.scheduling.table import Key, Schedule
from nsqd.core.sequence.mark import Mark
from nsqd.tasks.time_slices import TimeSlice
from shared.log import log

EVERY = 1.0  # s: ticks are published as a second of the clock begins
AT_ONCE = 10  # ticks in a row: each takes about 100 us with a cron expression
MOST_MOVING = 1000  # schedules that wait for their copies at a time: each turn looks at them
RETRY = 5  # s until a tick that was refused is tried again


class WhenSent(Protocol):
    """Calls `then` when the marks have reached what the next turn publishes; without marks, after that turn."""

    def __call__(self, marks: tuple[Mark, ...], then: Callable[[], None]) -> None: ...


class ScheduleTask:
    """Publishes the ticks of a node's schedules. All methods are for the reactor's thread."""

    def __init__(self, broker: Broker, when_sent: WhenSent, wake: Callable[[], None]) -> None:
        """`wake` makes the turn that commits what was published."""
        self._broker, self._when_sent, self._wake = broker, when_sent, wake
        self._schedules = broker.context.schedules
        self._refused: set[Key] = set()  # schedules whose last tick was refused: that is logged once
        # schedules of promoted logs that are in the own log, too, each with the position of its log; and their topics' marks
        self._moving: dict[tuple[int, Key], tuple[Mark, ...]] = {}
        self._is_stopped = False  # True: the log takes nothing more
        for schedule in self._schedules.known.values():
            _warn(schedule)

    async def publish(self) -> None:
        """Publish what is due, until cancelled."""
        while True:
            await trio.sleep(EVERY - time.time() % EVERY)
            time_slice = TimeSlice()
            while self.publish_batch(int(time.time())):
                await time_slice.yield_if_due()

    def publish_batch(self, now: int) -> bool:
        """Publish at most AT_ONCE ticks that are due at `now` (s since the epoch). Return whether there were any."""
        if self._is_stopped or self._broker.agenda.is_held:  # the log may have another leader
            return False
        if self._take_over_batch():
            return True
        ticks, published = self._schedules.fetch_due(now, AT_ONCE), list[Tick]()
        for tick in ticks:
            if not tick.is_published:
                self._skip(tick)
            elif (done := self._publish(tick, now)) is not None:
                published.append(done)
        if published:  # the record follows the messages in the log: a crash does not keep it without them
            self._when_sent((), partial(self._note, published))
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
        self._schedules.note([tick])

    def _publish(self, tick: Tick, now: int) -> Tick | None:
        """Publish a tick. Returns what is done with then; None: it was refused, and is tried again."""
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
        attributes = schedule.attributes(tick.at)
        if self._is_promoted(topic.name, attributes.key) or topic.intake.publish_with([schedule.body], attributes):
            tick = replace(tick, over=tick.at)  # it was published before a crash, and without the later ones
        self._schedules.finish(tick)
        return tick

    def _is_promoted(self, topic: str, key: str) -> bool:
        """Return True if a promoted log has the message of a tick, perhaps of another log's schedule."""
        topics = [promoted.topics.get(topic) for promoted in self._broker.logs[1:]]
        return any(one is not None and one.intake.recognizes(key) for one in topics)

    def _note(self, ticks: list[Tick]) -> None:
        if not self._is_stopped:
            self._schedules.note(ticks)
            self._wake()

    # schedules of promoted logs

    def _take_over_batch(self) -> bool:
        """Copy at most AT_ONCE schedules of promoted logs to the own log. Return whether there were any."""
        waiting = (
            (promoted, key)
            for promoted in self._broker.logs[1:]
            for key in promoted.context.schedules.known
            if self._may_move((promoted.context.position, key)) and self._is_attached(promoted, key[0])
        )
        found = list(islice(waiting, AT_ONCE))
        if not found or self._broker.refusal:
            return False
        for promoted, key in found:
            self._take_over(promoted, key)
        self._wake()
        return True

    def _may_move(self, place: tuple[int, Key]) -> bool:
        """Return True unless a schedule waits for the copies that its topic asks for now, or too many others do."""
        if place not in self._moving:
            return len(self._moving) < MOST_MOVING
        return self._moving[place] != self._marks_of(place[1][0])

    def _marks_of(self, topic: str) -> tuple[Mark, ...]:
        return self._broker.topics[topic].marks if topic in self._broker.topics else ()

    def _is_attached(self, promoted: Broker, topic: str) -> bool:
        """Return True unless a topic of a promoted log is still to be made here."""
        return topic in self._broker.topics or topic not in promoted.topics

    def _take_over(self, promoted: Broker, key: Key) -> None:
        """Copy a schedule to the own log, and remove it from the promoted one once that is safe."""
        source, place = promoted.context.schedules, (promoted.context.position, key)
        schedule, topic = source.known[key], self._broker.topics.get(key[0])
        over = _published(promoted, schedule, source.noted[key])
        if isinstance(schedule.recurrence, At) and schedule.recurrence.next_after(over) is None:
            source.remove(key)  # its only message is in the promoted log
            return
        own = self._schedules.known.get(key, schedule)  # if there is one, the client asked this node last
        marks = self._schedules.put(own, over)
        _warn(schedule)
        if topic is not None:
            marks += topic.await_copies()
        self._moving[place] = self._marks_of(key[0])

        def remove() -> None:
            self._moving.pop(place, None)
            if source.known.get(key) is schedule and promoted in self._broker.logs:
                source.remove(key)
                self._wake()

        self._when_sent(marks, remove)  # copies may come later than replies wait for them


def _warn(schedule: Schedule) -> None:
    if isinstance(schedule.recurrence, Cron) and schedule.recurrence.zone is None:
        zone = schedule.recurrence.timezone
        log.error("SCHEDULE: %s of %s is never due: no time zone %s is known here", schedule.name, schedule.topic, zone)


def _published(promoted: Broker, schedule: Schedule, over: int) -> int:
    """Return the time up to which the ticks of a schedule are in a promoted log, which may lack the record of the last ones."""
    topic = promoted.topics.get(schedule.topic)
    while topic is not None and (tick := schedule.recurrence.next_after(over)) is not None:
        if not topic.intake.recognizes(schedule.attributes(tick).key):
            break
        over = tick
    return over

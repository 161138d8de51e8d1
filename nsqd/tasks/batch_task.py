"""The task that finds batches that are done (nsqd/core/batches), and publishes their follow-ups; between turns."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

import trio

from nsqd.core.batches.batches import Batches
from nsqd.core.batches.table import NamedBatch
from nsqd.core.broker import Broker
from nsqd.core.limits import TooMany
from nsqd.core.sequence.mark import Mark
from nsqd.core.topic import Topic
from nsqd.tasks.schedule_task import WhenSent

EVERY = 0.2  # s
IDLE = 1.0  # s, while the node has no batch
NEXT = 0.01  # s, while there are more members to look at
LOOKED_AT = 300  # batches and members each time: a millisecond
AT_ONCE = 100  # follow-ups each time


class BatchTask:
    """Ends the batches of a node. All methods are for the reactor's thread."""

    def __init__(self, broker: Broker, when_sent: WhenSent, wake: Callable[[], None]) -> None:
        """`wake` makes the turn that commits what was published."""
        self._broker, self._when_sent, self._wake = broker, when_sent, wake
        # follow-ups of promoted logs that wait for their copies: topic and its marks, batch, their numbers
        self._awaited: list[tuple[Topic, tuple[Mark, ...], NamedBatch, list[int]]] = []

    async def run(self) -> None:
        """Find batches that are done, and publish their follow-ups, until cancelled."""
        batches = self._broker.context.batches
        has_more = False
        while True:
            pause = EVERY if any(table.known for table in batches.shards) else IDLE
            await trio.sleep(NEXT if has_more else pause)
            has_more = self.step(int(time.time()))

    def step(self, now: int) -> bool:
        """Find batches that are done at `now` (s since the epoch), and publish some follow-ups.

        Returns True if there are more members to look at now.
        """
        batches = self._broker.context.batches
        if self._broker.agenda.is_held:
            return False  # the log may have another leader
        has_more = batches.find_done(now, LOOKED_AT)
        self._forget_awaited()
        for table, batch, numbers in batches.ready(AT_ONCE):
            published: dict[Topic, list[int]] = {}
            for number in numbers:
                topic = self._publish(batches, batch, number)
                if topic is not None:
                    published.setdefault(topic, []).append(number)
            for topic, sent in published.items():
                marks: tuple[Mark, ...] = ()  # in the own log, the record follows the messages
                if table is not batches:  # copies may come later than replies wait for them
                    marks = topic.await_copies()
                    self._awaited.append((topic, topic.marks, batch, sent))
                self._when_sent(marks, partial(self._note, table, batch, sent))
        return has_more

    def _forget_awaited(self) -> None:
        """Forget follow-ups that have their copies, and try those again whose topic asks for other copies by now."""
        for topic, marks, batch, numbers in self._awaited:
            if topic.marks != marks:
                batch.sent.difference_update(numbers)
        self._awaited = [one for one in self._awaited if not one[2].sent.isdisjoint(one[3])]

    def _publish(self, batches: Batches, batch: NamedBatch, number: int) -> Topic | None:
        """Publish a follow-up. Returns its topic; None: it was refused, and is tried again."""
        follow_up = batch.follow_ups[number]
        try:
            topic = self._broker.admit(follow_up.topic)
        except TooMany:
            batches.put_off(batch, number)
            return None
        topic.intake.publish_with([follow_up.body], batches.attributes(batch, number))
        batch.sent.add(number)
        self._wake()
        return topic

    def _note(self, table: Batches, batch: NamedBatch, numbers: list[int]) -> None:
        if table.known.get(batch.name) is batch:
            table.note_followed(batch, numbers)
            self._wake()

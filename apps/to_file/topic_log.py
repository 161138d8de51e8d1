"""One topic: messages come in, lines go to the files, and each message is finished once its line is durable.

Invariant: `_held` has every message that is neither finished nor requeued. `_written` and `_unwritten` are the same messages in
order: those whose lines are in the open file, and those whose lines are not.

While writing fails, the messages are held and touched: the nsqds send no more than max_in_flight of them, so the rest
stays there. This file knows no socket and no clock.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from apps.to_file.output import Output
from apps.to_file.schedule import LAST_RETRY, Retry, SyncWindow, Touches

log = logging.getLogger("penstock")

COLLISION_MS = 1000  # ms until a message is redelivered whose id another message has


class Message(Protocol):
    """What this file needs of penstock.client's Message."""

    id: bytes
    body: bytes
    timestamp: int

    def finish(self) -> None: ...
    def requeue(self, ms: int | None = None, backoff: bool = False) -> None: ...
    def touch(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Now:
    """The time by both clocks."""

    monotonic: float  # s
    local: datetime  # with a zone


class TopicLog:
    """The messages of one topic between their arrival and their end.

    `name_at` returns the name of the file at a time. `skips_empty` means that a file is opened for a message only.
    """

    def __init__(
        self,
        title: str,
        output: Output,
        name_at: Callable[[datetime], str],
        window: SyncWindow,
        touches: Touches,
        most_held: int,
        skips_empty: bool,
    ) -> None:
        self._title = title  # topic/channel
        self._output = output
        self._name_at = name_at
        self._window = window
        self._touches = touches
        self._most_held = most_held
        self._skips_empty = skips_empty
        self._retry = Retry()
        self._again: Callable[[Now], None] = self._write_and_sync  # the step to try again after a failure
        self._closes = False  # the file is to be closed when the next attempt to write works
        self._held: dict[bytes, Message] = {}
        self._written: list[Message] = []
        self._unwritten: list[Message] = []

    # ---- queries

    @property
    def waiting(self) -> int:
        """Return the number of messages that wait for a sync."""
        return len(self._held)

    # ---- commands

    def take(self, batch: Sequence[Message], now: Now) -> None:
        """Write the messages that have arrived, and sync if enough wait."""
        if not batch:
            return
        self._hold(batch, now.monotonic)
        self._window.arrived(now.monotonic, len(self._held))
        if self._retry.is_failing:
            self._give_back_too_many()
        elif self._attempt(self._write, now) and self._window.is_due(now.monotonic, len(self._held)):
            self._attempt(self._sync, now)

    def tick(self, now: Now) -> None:
        """Do what is due by time: rotation, sync, touches, the next attempt after a failure."""
        if self._touches.is_due(now.monotonic):
            for message in self._held.values():
                message.touch()
        if self._retry.is_failing:
            if now.monotonic >= self._retry.at:
                self._attempt(self._again, now)
        elif self._window.is_time(now.monotonic):
            self._attempt(self._on_interval, now)
        elif self._held and self._window.is_due(now.monotonic, len(self._held)):
            self._attempt(self._sync, now)

    def hang_up(self, now: Now) -> None:
        """Sync, and close the file; the next message opens another one. While writing fails, this is done later."""
        self._closes = True
        if not self._retry.is_failing:
            self._attempt(self._write_and_sync, now)

    def stop(self, now: Now) -> None:
        """Sync and close the file for the last time. Messages that cannot be written are requeued."""
        self._closes = True
        if not self._held:  # whether writing works again will not be known
            self._retry.worked()
        if not self._attempt(self._write_and_sync, now) and self._held:
            log.error("[%s] requeueing %d records that are not on disk", self._title, len(self._held))
            self._give_back(list(self._held.values()))

    # ---- helpers

    def _hold(self, batch: Sequence[Message], now: float) -> None:
        """Add messages to those that wait. One that waits already was delivered again, and is written once only."""
        new = {message.id: message for message in batch}
        if len(new) == len(batch) and self._held.keys().isdisjoint(new):
            self._held |= new
            self._unwritten += batch
            return
        is_late = False
        for message in batch:
            before = self._held.setdefault(message.id, message)
            if before is message:
                self._unwritten.append(message)
            elif (before.timestamp, before.body) == (message.timestamp, message.body):
                self._held[message.id] = message
                is_late = True
            else:  # of another nsqd, which was given the same node id: it is redelivered when the first one is finished
                message.requeue(COLLISION_MS)
        if is_late:
            self._touches.too_late(now)

    def _attempt(self, step: Callable[[Now], None], now: Now) -> bool:
        """Do a step that writes, and return whether it worked. After a failure, all messages are unwritten again."""
        try:
            step(now)
        except OSError as error:
            self._output.roll_back()
            self._unwritten = self._written + self._unwritten
            self._written = []
            is_first = not self._retry.is_failing
            delay = self._retry.failed(now.monotonic)
            if is_first:
                why = f"{error}, trying again in {delay:g} s, then at intervals of up to {LAST_RETRY:g} s"
                log.error("[%s] cannot write: %s; nothing is finished until it works", self._title, why)
            self._again = step if step == self._on_interval else self._write_and_sync
            return False
        if self._retry.worked():
            log.info("[%s] writing works again", self._title)
        return True

    def _write(self, now: Now) -> None:
        """Write the unwritten messages, and rotate where it is due."""
        while self._unwritten:
            self._rotate_if_due(now)
            batch = self._unwritten
            if len(batch) > (fits := self._output.fitting([len(message.body) + 1 for message in batch])):
                batch = batch[:fits]
            self._output.append(b"\n".join([message.body for message in batch]) + b"\n")
            self._written += batch
            self._unwritten = self._unwritten[len(batch) :]

    def _sync(self, now: Now) -> None:
        """Make the written messages durable, and finish them."""
        if self._written:
            log.info("[%s] syncing %d records to disk", self._title, len(self._written))
            self._output.sync()
            self._finish()
        self._window.synced(now.monotonic, len(self._written))
        self._written = []

    def _write_and_sync(self, now: Now) -> None:
        self._write(now)
        self._sync(now)
        if self._closes:
            self._output.close()
            self._closes = False

    def _on_interval(self, now: Now) -> None:
        """Sync, and rotate although there is no message: it ends files in time, and makes empty ones unless told not to."""
        self._write_and_sync(now)
        self._rotate_if_due(now, has_message=False)

    def _rotate_if_due(self, now: Now, has_message: bool = True) -> None:
        name = self._name_at(now.local)
        reason = self._output.reason_to_rotate(name, now.monotonic)
        if self._output.is_open and not reason:
            return
        if reason:
            log.info("[%s] %s, rotating...", self._title, reason)
            if has_message:
                self._sync(now)
        if has_message or not self._skips_empty:
            self._output.rotate(name, now.monotonic)
        else:
            self._output.close()

    def _finish(self) -> None:
        """Finish the messages that are durable: usually all."""
        if len(self._written) == len(self._held):
            for message in self._held.values():
                message.finish()
            self._held.clear()
            return
        for message in self._written:
            self._held.pop(message.id).finish()

    def _give_back_too_many(self) -> None:
        """Requeue the oldest beyond a limit: the server has timed them out, or it would not have sent more."""
        excess = len(self._held) - self._most_held
        if excess > 0:
            self._give_back(list(self._held.values())[:excess])

    def _give_back(self, messages: Sequence[Message]) -> None:
        ids = {message.id for message in messages}
        for message in messages:
            message.requeue(0)
            del self._held[message.id]
        self._unwritten = [message for message in self._unwritten if message.id not in ids]
        self._written = [message for message in self._written if message.id not in ids]

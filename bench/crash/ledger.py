"""The checker's ledger: publishes, deliveries, commands, and the findings. Pure: bytes and times are arguments.

A message is recognized by the number at the start of its body. A *copy* is the message in one channel. A command of
the checker is *settled* when a later reply on the same connection proves that the server has handled it, because NSQ's FIN
and REQ have no replies of their own. Times are ns of the monotonic clock as the checker saw them, so they are never too early
for a reply and never too late for a request.

Nothing is concluded from a command without a reply: an unanswered publish may come or not, an unsettled FIN may have been
lost. A power cut takes back what was settled less than `window` ns before it; after the last power cut nothing is excused.

See docs/contributing/testing.md#the-crash-checker.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import replace

from bench.crash.messages import NEVER, Copy, Findings, Message, Reply

EARLY_BY = 1_000_000  # ns by which a message may come too early: delays are stated in ms
_MOST_PROBLEMS = 20  # that are described


class Ledger:
    """The ledger of one trial: it records publishes, deliveries and commands, and returns the findings."""

    def __init__(
        self, topics: Mapping[str, Sequence[str]], window: int = 0, own_windows: Mapping[str, int] | None = None
    ) -> None:
        """Begin empty. `topics`: the channels that must get the messages of each topic.

        `window`: the time in ns before a power cut whose results it may take back; `own_windows`: the same for some topics.
        """
        self._topics = topics
        self._windows = dict.fromkeys(topics, window) | dict(own_windows or {})
        self._messages: list[Message] = []  # by number
        self._ids: dict[tuple[str, bytes], int] = {}  # (topic, message id) -> number
        self._unsafe: dict[int, Copy] = {}  # by id(): copies whose last FIN or REQ a crash may take back
        self._crashes = 0
        self.has_acknowledged = False  # a publish was answered with OK
        self._has_contact = True  # the server has answered or delivered since the last crash
        self._last_contact = 0  # when the last crash was, or the one before if no server answered between them
        self._cuts: list[tuple[int, int, int]] = []  # power cuts: (life that it ended, when, when the server saw it)
        self._counts = Findings()
        self.last_due = 0  # the latest `due` of all messages
        self.last_delivery = 0  # monotonic ns of the last delivery
        self._last_place = (-1, 0)  # priority and id of the last job that `delivered_last` got
        self._stalled_until = 0  # deliveries seen before this may have been sent before the server was stopped
        self.problems: list[str] = []  # descriptions of the first ones

    # ---- events

    def publish(
        self, topic: str, sizes: Sequence[int], delay: int, now: int, priority: int = 0, only: str = ""
    ) -> list[Message]:
        """Note a publish that is about to be sent; `delay` is in ns, and `only` names the one channel that gets it."""
        first = len(self._messages)
        due = now + delay if delay else 0
        self.last_due = max(self.last_due, due)
        made = [
            Message(first + n, size, topic, self._crashes, now, due, priority, only) for n, size in enumerate(sizes)
        ]
        self._messages += made
        return made

    def answered(self, messages: Sequence[Message], reply: Reply, now: int) -> None:
        """Note the reply to a publish."""
        for message in messages:
            message.reply, message.answered = reply, now
        self._has_contact = True
        self.has_acknowledged |= reply is Reply.OK and bool(messages)

    def delivered(self, topic: str, channel: str, data: bytes, message_id: bytes, now: int) -> Copy | None:
        """Note a delivery; return the copy, or None if the message is unknown."""
        self._counts.deliveries += 1
        self.last_delivery = now
        self._has_contact = True
        message = self._known(topic, data)
        if message is None or message.only not in ("", channel):
            self._counts.unexpected += 1
            self._problem(f"unexpected on {topic}/{channel}: {len(data)} bytes, {data[:40]!r}")
            return None
        self._check_id(message, message_id)
        copy = message.copies.get(channel)
        if copy is None:
            copy = message.copies[channel] = Copy(message, channel, message.due, priority=message.priority)
        self._check_delivery(copy, now)
        copy.deliveries += 1
        copy.not_before = 0
        copy.stalled = now < self._stalled_until
        copy.returned = False
        copy.finished = copy.finished and copy.settled != 0
        return copy

    def finish(self, copy: Copy) -> int:
        """Note a FIN that is about to be sent; return the number to pass to `settle`."""
        copy.finished = True
        return self._command(copy)

    def requeue(self, copy: Copy, delay: int, now: int, priority: int = 0) -> int:
        """Note a REQ or release that is about to be sent; `delay` is in ns. Return the number to pass to `settle`."""
        copy.returned = True
        copy.priority = priority
        copy.not_before = now + delay if delay and not copy.stalled else 0
        self.last_due = max(self.last_due, copy.not_before)
        return self._command(copy)

    def bury(self, copy: Copy, priority: int) -> int:
        """Note a bury that is about to be sent; return the number to pass to `settle`."""
        copy.returned = True
        copy.priority = priority
        copy.not_before = NEVER
        return self._command(copy)

    def kick(self, copy: Copy) -> None:
        """Note that a buried copy is about to be kicked."""
        copy.not_before = 0

    def kick_all(self) -> None:
        """Note that all buried copies are about to be kicked."""
        for message in self._messages:
            for copy in message.copies.values():
                if copy.not_before == NEVER:
                    copy.not_before = 0

    def delivered_last(self, copy: Copy, job: int) -> None:
        """Note a delivery to the only client while all jobs are ready: no job may be more urgent than the one before it."""
        if copy.priority is None:
            return
        place = copy.priority, job
        if place < self._last_place:
            self._counts.inverted += 1
            self._problem(f"inverted: message {copy.message.number}, of {place}, came after one of {self._last_place}")
        self._last_place = place

    def settle(self, commands: Sequence[tuple[Copy, int]], now: int) -> None:
        """Note that the server has certainly handled these FINs, REQs and other commands."""
        for copy, command in commands:
            if copy.commands == command:
                copy.settled = now

    def stalled(self, until: int) -> None:
        """Note that the server was stopped for a while, and sent nothing before that arrives later than `until`.

        Timeouts may have come before commands meanwhile.
        """
        self._stalled_until = until
        for message in self._messages:
            for copy in message.copies.values():
                copy.stalled = True
                if not copy.settled:
                    copy.not_before = 0

    def crash(self, at: int, power: bool = False, gone: int = 0) -> None:
        """Note that the server went down just after `at`. `power`: data that the system had not written is lost, too.

        `gone`: the server ran on, and from then on none of its syncs could succeed; a sync at that moment may have lied.
        Until a server answers after a crash, none may run, and then nothing is synced: a window does not count that time.
        """
        at = at if self._has_contact else self._last_contact
        self._has_contact, self._last_contact = False, at
        if power:
            self._cuts.append((self._crashes, at, gone))
        self._crashes += 1
        for key, copy in list(self._unsafe.items()):
            window = self._windows[copy.message.topic]
            if not copy.settled or (power and _in_doubt(copy.settled, at, gone, window)):
                copy.settled = copy.not_before = 0
                copy.priority = None
                del self._unsafe[key]
        if power:
            self._unsafe.clear()

    # ---- queries

    @property
    def attempted(self) -> int:
        """Return the number of messages published so far."""
        return len(self._messages)

    def missing(self) -> list[tuple[Message, str]]:
        """Return (message, channel) for all acknowledged messages that are not finished yet."""
        return [
            (message, channel)
            for message in self._messages
            if message.reply is Reply.OK
            for channel in ((message.only,) if message.only else self._topics[message.topic])
            if (copy := message.copies.get(channel)) is None or not copy.finished
        ]

    def findings(self) -> Findings:
        """Return the findings. Call it when nothing more will come."""
        result = replace(self._counts)
        replies = [message.reply for message in self._messages]
        result.acked, result.unknown, result.refused = map(replies.count, (Reply.OK, Reply.NONE, Reply.REFUSED))
        lost: dict[int, bool] = {}  # number of each lost message -> whether it is excused
        for message, channel in self.missing():
            excused = lost[message.number] = self._excused(message)
            if not excused:
                self._problem(self._loss(message, channel))
        result.excused = sum(lost.values())
        result.lost = len(lost) - result.excused
        result.survived = result.acked - len(lost)
        return result

    # ---- helpers

    def _known(self, topic: str, data: bytes) -> Message | None:
        digits = data[:20].partition(b",")[0]
        if not digits.isdigit() or int(digits) >= len(self._messages):
            return None
        message = self._messages[int(digits)]
        return message if message.topic == topic and message.body == data else None

    def _check_id(self, message: Message, message_id: bytes) -> None:
        number = self._ids.setdefault((message.topic, message_id), message.number)
        if number != message.number:
            self._counts.collisions += 1
            self._problem(f"id {message_id!r} was message {number}, and now is {message.number}")

    def _check_delivery(self, copy: Copy, now: int) -> None:
        where = f"message {copy.message.number} on {copy.message.topic}/{copy.channel}"
        if now < copy.not_before - EARLY_BY:
            self._counts.early += 1
            ahead = "though buried" if copy.not_before == NEVER else f"by {(copy.not_before - now) / 1e6:.1f} ms"
            self._problem(f"early: {where}, {ahead}")
        if copy.finished and copy.settled:
            self._counts.resurrected += 1
        elif copy.deliveries and not copy.returned:
            self._counts.duplicated += 1

    def _command(self, copy: Copy) -> int:
        copy.commands += 1
        copy.settled = 0
        self._unsafe[id(copy)] = copy
        return copy.commands

    def _excused(self, message: Message) -> bool:
        place = bisect_left(self._cuts, (message.life, 0, 0))
        if place == len(self._cuts):
            return False
        life, at, gone = self._cuts[place]
        if message.life == life and message.invoked > gone > 0:
            return False
        return _in_doubt(message.answered, at, gone, self._windows[message.topic])

    def _loss(self, message: Message, channel: str) -> str:
        copy = message.copies.get(channel)
        seen = f"delivered {copy.deliveries} times, never finished" if copy else "never delivered"
        return (
            f"lost: message {message.number} of {message.size} bytes on {message.topic}/{channel}, acked in life"
            f" {message.life}, {'with a delay, ' if message.due else ''}{seen}"
        )

    def _problem(self, text: str) -> None:
        if len(self.problems) < _MOST_PROBLEMS:
            self.problems.append(text)


def _in_doubt(known: int, at: int, gone: int, window: int) -> bool:
    """Return True if an event that was known at `known` may have been undone by the power cut."""
    return (window > 0 and at - known < window) or (gone > 0 and known >= at)

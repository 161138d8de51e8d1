"""The checker as a client of beanstalkd: put, reserve, delete, release, bury, kick. A reply settles its command.

Jobs that are put, released or buried have one of three priorities; the drain, a single client, must get all in their order.
"""

from __future__ import annotations

from socket import socket

from bench.crash.history import History
from bench.crash.ledger import Ledger
from bench.crash.link import Link
from bench.crash.messages import Copy, Message, Reply
from bench.crash.mix import LEFT_IN_FLIGHT, MS, Answer, Mix

TUBE = "default"
_SECOND = 1000  # ms: the unit of beanstalkd's delays
_TTR = 600  # s: longer than any run of the checker
_RESERVE = b"reserve\r\n"
_RESERVES = 50  # reserves that the drain sends at once
_BURIED, _KICKED = 0.4, 0.1  # shares: of immediate releases that become a bury; of replies that a kick follows
_LATE = 1_200_000_000  # ns by which a delay may end too late


class Putter(Link):
    """A link that puts jobs, `window` of them unanswered at all times."""

    def __init__(self, sock: socket, ledger: Ledger, history: History, mix: Mix, window: int) -> None:
        super().__init__(sock, ledger, history, mix)
        self._window = window
        self._pending: list[tuple[Message, int]] = []  # with the end of each put in the queued bytes

    def outstanding(self) -> int:
        return sum(end <= self.sent for _, end in self._pending)

    def step(self, now: int) -> None:
        while len(self._pending) < self._window:
            order = self._mix.order(batches=False, delay_unit_ms=_SECOND)
            size, priority = min(order.sizes[0], 60_000), _priority(self._mix)
            (message,) = self._ledger.publish(TUBE, [size], order.delay_ms * MS, now, priority)
            self._history.add(f"publish {TUBE} {message.number} delay={order.delay_ms} priority={priority}")
            terms = priority, order.delay_ms // 1000, _TTR, len(message.body), message.body
            self.say(b"put %d %d %d %d\r\n%b\r\n" % terms)
            self._pending.append((message, self.queued))

    def received(self, data: bytes, now: int) -> None:
        *lines, self._in = (self._in + data).split(b"\r\n")
        for line in lines:
            good = line.startswith(b"INSERTED ")
            message, _ = self._pending.pop(0)
            self._ledger.answered([message], Reply.OK if good else Reply.REFUSED, now)
            self._history.add(f"{'ok' if good else f'refused {line!r}'} {message.number}")


class Worker(Link):
    """A link that reserves one job after another, and deletes, releases, buries or keeps it.

    From time to time it kicks one of the jobs that it buried.
    """

    def __init__(self, sock: socket, ledger: Ledger, history: History, mix: Mix) -> None:
        super().__init__(sock, ledger, history, mix)
        self._left = 0  # jobs that it keeps reserved
        self._buried: list[tuple[bytes, Copy]] = []
        self._unsettled: tuple[Copy, int] | None = None  # the command that waits for its reply
        self.say(_RESERVE)

    def received(self, data: bytes, now: int) -> None:
        replies, self._in = _replies(self._in + data)
        for line, body in replies:
            if line[0] == b"RESERVED":
                self._reserved(line[1], body, now)
            else:
                self._settle(b" ".join(line), now)

    def _settle(self, reply: bytes, now: int) -> None:
        if self._unsettled is not None and reply in (b"DELETED", b"RELEASED", b"BURIED"):
            self._ledger.settle([self._unsettled], now)
            self._history.add("settled 1")
        elif self._unsettled is not None:
            self._history.add(f"error {reply!r}")
        self._unsettled = None
        if self._buried and self._mix.chance(_KICKED):
            job, copy = self._buried.pop()
            self._ledger.kick(copy)
            self._history.add(f"kick {TUBE} {copy.message.number}")
            self.say(b"kick-job %b\r\n" % job)
        else:
            self.say(_RESERVE)

    def _reserved(self, job: bytes, body: bytes, now: int) -> None:
        copy = self._ledger.delivered(TUBE, TUBE, body, job, now)
        number = copy.message.number if copy else -1
        self._history.add(f"deliver {TUBE} {number} id={job.decode()}")
        if copy is None:
            self.say(b"delete %b\r\n" % job)
            return
        answer, priority = self._mix.answer(copy.deliveries), _priority(self._mix)
        if answer is Answer.LEAVE and self._left < LEFT_IN_FLIGHT:
            self._left += 1
            self.say(_RESERVE)
        elif answer is Answer.REQUEUE and self._mix.chance(_BURIED):
            self._unsettled = copy, self._ledger.bury(copy, priority)
            self._history.add(f"bury {TUBE} {number} priority={priority}")
            self._buried.append((job, copy))
            self.say(b"bury %b %d\r\n" % (job, priority))
        elif answer in (Answer.REQUEUE, Answer.REQUEUE_LATER):
            seconds = self._mix.delay_ms(_SECOND) // 1000 if answer is Answer.REQUEUE_LATER else 0
            self._unsettled = copy, self._ledger.requeue(copy, seconds * 1000 * MS, now, priority)
            self._history.add(f"req {TUBE} {number} delay={seconds * 1000} priority={priority}")
            self.say(b"release %b %d %d\r\n" % (job, priority, seconds))
        else:
            self._unsettled = copy, self._ledger.finish(copy)
            self._history.add(f"fin {TUBE} {number}")
            self.say(b"delete %b\r\n" % job)


class Drainer(Link):
    """A link that takes all remaining jobs, alone and when the delays of all jobs are over.

    First it kicks the buried jobs; then all must come in order.
    """

    def __init__(self, sock: socket, ledger: Ledger, history: History, mix: Mix) -> None:
        super().__init__(sock, ledger, history, mix)
        self._begun = False
        self._unsettled: list[tuple[Copy, int]] = []  # deletes that wait for their replies

    def step(self, now: int) -> None:
        if not self._begun and now > self._ledger.last_due + _LATE:
            self._begun = True
            self._ledger.kick_all()
            self._history.add(f"kick {TUBE} all")
            self.say(b"kick 4000000000\r\n" + _RESERVE * _RESERVES)

    def received(self, data: bytes, now: int) -> None:
        replies, self._in = _replies(self._in + data)
        for line, body in replies:
            if line[0] == b"RESERVED":
                self._reserved(line[1], body, now)
            elif line[0] == b"DELETED":
                self._ledger.settle([self._unsettled.pop(0)], now)
            elif line[0] != b"KICKED":
                self._history.add(f"error {line!r}")

    def _reserved(self, job: bytes, body: bytes, now: int) -> None:
        copy = self._ledger.delivered(TUBE, TUBE, body, job, now)
        self._history.add(f"deliver {TUBE} {copy.message.number if copy else -1} id={job.decode()}")
        if copy is not None:
            self._ledger.delivered_last(copy, int(job))
            self._unsettled.append((copy, self._ledger.finish(copy)))
        self.say(b"delete %b\r\n" % job + _RESERVE)


def _replies(data: bytes) -> tuple[list[tuple[list[bytes], bytes]], bytes]:
    """Return the line of each complete reply, split, with its body (b"" if it has none), and the rest of the data."""
    found = []
    while (end := data.find(b"\r\n")) >= 0:
        line, rest = data[:end].split(), data[end + 2 :]
        size = int(line[2]) + 2 if line[0] == b"RESERVED" else 0
        if len(rest) < size:
            break
        found.append((line, rest[: max(0, size - 2)]))
        data = rest[size:]
    return found, data


def _priority(mix: Mix) -> int:
    return int(mix.uniform(0, 3)) * 1000

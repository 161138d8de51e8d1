"""The checker as a client of beanstalkd: put, reserve, delete and release. Every command has a reply, which settles it."""

from __future__ import annotations

from socket import socket

from bench.crash.history import History
from bench.crash.ledger import Ledger
from bench.crash.link import Link
from bench.crash.messages import Copy, Fate, Message
from bench.crash.mix import LEFT_IN_FLIGHT, MS, Answer, Mix

TUBE = "default"
_SECOND = 1000  # ms: the unit of its delays
_TTR = 600  # s: longer than any run of it
_RESERVE = b"reserve\r\n"


class Putter(Link):
    """put, `window` of them unanswered at all times."""

    def __init__(self, sock: socket, ledger: Ledger, history: History, mix: Mix, window: int) -> None:
        super().__init__(sock)
        self._ledger = ledger
        self._history = history
        self._mix = mix
        self._window = window
        self._pending: list[tuple[Message, int]] = []  # and where its put ends in what was queued
        self._in = b""

    def outstanding(self) -> int:
        return sum(end <= self.sent for _, end in self._pending)

    def step(self, now: int) -> None:
        while len(self._pending) < self._window:
            order = self._mix.order(batches=False, delay_unit_ms=_SECOND)
            (message,) = self._ledger.publish(TUBE, [min(order.sizes[0], 60_000)], order.delay_ms * MS, now)
            self._history.add(f"publish {TUBE} {message.number} delay={order.delay_ms}")
            self.say(b"put 0 %d %d %d\r\n%b\r\n" % (order.delay_ms // 1000, _TTR, len(message.body), message.body))
            self._pending.append((message, self.queued))

    def received(self, data: bytes, now: int) -> None:
        *lines, self._in = (self._in + data).split(b"\r\n")
        for line in lines:
            good = line.startswith(b"INSERTED ")
            message, _ = self._pending.pop(0)
            self._ledger.answered([message], Fate.OK if good else Fate.REFUSED, now)
            self._history.add(f"{'ok' if good else f'refused {line!r}'} {message.number}")


class Worker(Link):
    """Reserves one job after the other, and deletes, releases or keeps it. At the drain it deletes all that come."""

    def __init__(self, sock: socket, ledger: Ledger, history: History, mix: Mix, drain: bool) -> None:
        super().__init__(sock)
        self._ledger = ledger
        self._history = history
        self._mix = mix
        self._drain = drain
        self._left = 0  # jobs it keeps
        self._in = b""
        self._said: tuple[Copy, int] | None = None  # the delete or release that waits for its reply
        self.say(_RESERVE)

    def received(self, data: bytes, now: int) -> None:
        self._in += data
        while (end := self._in.find(b"\r\n")) >= 0:
            words = self._in[:end].split()
            rest = self._in[end + 2 :]
            if words[0] != b"RESERVED":
                self._in = rest
                self._settle(b" ".join(words), now)
                continue
            size = int(words[2])
            if len(rest) < size + 2:
                return
            self._in = rest[size + 2 :]
            self._reserved(words[1], rest[:size], now)

    def _settle(self, reply: bytes, now: int) -> None:
        if self._said is not None and reply in (b"DELETED", b"RELEASED"):
            self._ledger.settle([self._said], now)
            self._history.add("settled 1")
        else:
            self._history.add(f"error {reply!r}")
        self._said = None
        self.say(_RESERVE)

    def _reserved(self, job: bytes, body: bytes, now: int) -> None:
        copy = self._ledger.delivered(TUBE, TUBE, body, job, now)
        number = copy.message.number if copy else -1
        self._history.add(f"deliver {TUBE} {number} id={job.decode()}")
        if copy is None:
            self.say(b"delete %b\r\n" % job)
            return
        answer = Answer.FINISH if self._drain else self._mix.answer(copy.deliveries)
        if answer is Answer.LEAVE and self._left < LEFT_IN_FLIGHT:
            self._left += 1
            self.say(_RESERVE)
        elif answer in (Answer.REQUEUE, Answer.REQUEUE_LATER):
            seconds = self._mix.delay_ms(_SECOND) // 1000 if answer is Answer.REQUEUE_LATER else 0
            self._said = copy, self._ledger.requeue(copy, seconds * 1000 * MS, now)
            self._history.add(f"req {TUBE} {number} delay={seconds * 1000}")
            self.say(b"release %b 0 %d\r\n" % (job, seconds))
        else:
            self._said = copy, self._ledger.finish(copy)
            self._history.add(f"fin {TUBE} {number}")
            self.say(b"delete %b\r\n" % job)

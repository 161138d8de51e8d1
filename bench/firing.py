"""Messages that wait for a time, with one topic for each channel, and how late they arrive.

Each channel has one consumer and three kinds of messages:
  D  published with a delay (DPUB); finished when it arrives
  R  requeued with a delay (REQ) at its first delivery; finished at the second
  H  held in flight until its timeout, and again after that; the first timeout is measured

A due time is taken before the request that sets it is sent, so the measured lateness is never too small.
"""

from __future__ import annotations

import random
import time
from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from struct import Struct, pack

from bench.crowd import Crowd, Member, Message
from bench.outcome import Outcome, timed
from bench.wire import SIZE, connect, expect_ok, identify, sized

_HEAD = Struct(">cq")  # the kind, and when the message is due (D) or was published, in monotonic ns
_MILLISECOND = 1_000_000  # ns
_GRACE = 2.0  # s after the window in which late messages may still arrive
_SETTLE = 2.0  # s between the last request and the window
_RDY = 2500
_DELIVERY_TIMEOUT = 60.0  # s


@dataclass
class Firing:
    """A load of firing messages (see bench.load). The fields are the plan; everything else is state."""

    host: str
    ports: dict[str, int]
    channels: int
    delayed: int  # D per channel
    requeued: int  # R per channel
    held: int  # H per channel
    spread: float  # s: delays are evenly spread from 1 s to this
    timeout_min: int  # ms: each consumer asks for a timeout from this
    timeout_max: int  # ... to this
    seconds: float

    def prepare(self) -> None:
        self._random = random.Random(1)
        self._timeouts = [self._random.randint(self.timeout_min, self.timeout_max) for _ in range(self.channels)]
        self._dues: list[int] = []  # due times of all messages, in ns
        self._fired: list[tuple[int, int]] = []  # (due, arrived) in ns
        self._requeued: dict[tuple[int, bytes], int] = {}  # (member, id) -> due
        self._first_deliveries = 0  # deliveries of R and H
        self._crowd = Crowd(self.host, self.ports["TCP"], self._receive)
        self._crowd.subscribe(
            (f"t{i}", "ch", _RDY, {"msg_timeout": timeout, "output_buffer_size": -1})
            for i, timeout in enumerate(self._timeouts)
        )
        self._fill()
        self._crowd.serve(_SETTLE)

    def run(self) -> Outcome:
        begin = time.monotonic_ns()
        end = begin + int(self.seconds * 1e9)
        self._crowd.serve(self.seconds)
        seconds = (time.monotonic_ns() - begin) / 1e9
        self._crowd.serve(_GRACE)
        late = [arrived - due for due, arrived in self._fired if begin <= due < end]
        self._dues.sort()
        due = bisect_left(self._dues, end) - bisect_left(self._dues, begin)
        early = sum(lateness < 0 for lateness in late)
        waiting = len(self._dues) - bisect_right(self._dues, begin)
        detail = f"{waiting} were waiting at the start" + (f", {early} FIRED EARLY" if early else "")
        return timed(Outcome(due, seconds, missing=due - len(late), detail=detail), late)

    def _fill(self) -> None:
        publisher = connect(self.host, self.ports["TCP"])
        identify(publisher, heartbeat_interval=-1)
        for channel, timeout in enumerate(self._timeouts):
            publisher.sendall(self._dpubs(channel))
            expect_ok(publisher, self.delayed)
            now = time.monotonic_ns()
            publisher.sendall(self._mpub(channel, now))
            expect_ok(publisher)
            self._dues += [now + timeout * _MILLISECOND] * self.held
            self._crowd.serve(0)
        end = time.monotonic() + _DELIVERY_TIMEOUT
        wanted = self.channels * (self.requeued + self.held)
        while self._first_deliveries < wanted:
            self._crowd.serve(0.1)
            if time.monotonic() > end:
                raise SystemExit(f"firing: {wanted - self._first_deliveries} of {wanted} were never delivered")

    def _delay(self) -> int:
        return self._random.randint(1000, int(self.spread * 1000))  # ms

    def _dpubs(self, channel: int) -> bytes:
        parts = []
        for _ in range(self.delayed):
            delay = self._delay()
            due = time.monotonic_ns() + delay * _MILLISECOND
            self._dues.append(due)
            parts.append(f"DPUB t{channel} {delay}\n".encode() + sized(_body(b"D", due)))
        return b"".join(parts)

    def _mpub(self, channel: int, now: int) -> bytes:
        bodies = sized(_body(b"R", now)) * self.requeued + sized(_body(b"H", now)) * self.held
        return f"MPUB t{channel}\n".encode() + sized(pack(">i", self.requeued + self.held) + bodies)

    def _receive(self, member: Member, messages: list[Message], now: int) -> bytes:
        """Note the messages that arrived, and return the commands that answer them."""
        return b"".join([self._answer(member, message, now) for message in messages])

    def _answer(self, member: Member, message: Message, now: int) -> bytes:
        kind, when = _HEAD.unpack_from(message.body)
        self._first_deliveries += message.attempts == 1 and kind != b"D"
        if kind == b"H":
            if message.attempts == 2:
                self._fired.append((when + self._timeouts[member.number] * _MILLISECOND, now))
            return b""
        if kind == b"R" and message.attempts == 1:
            delay = self._delay()
            due = time.monotonic_ns() + delay * _MILLISECOND
            self._dues.append(due)
            self._requeued[member.number, message.id] = due
            return b"REQ %s %d\n" % (message.id, delay)
        self._fired.append((when if kind == b"D" else self._requeued.pop((member.number, message.id)), now))
        return b"FIN %s\n" % message.id


def _body(kind: bytes, when: int) -> bytes:
    return _HEAD.pack(kind, when).ljust(SIZE, b"x")

"""A consumer that requeues messages with a delay, all or every second one, for a given time."""

from __future__ import annotations

import time
from dataclasses import dataclass

from bench.outcome import Outcome
from bench.upgrade import introduce
from bench.wire import FRAME, HEARTBEAT, expect_ok

_READ = 1 << 18  # bytes
_RDY = 2500


@dataclass
class Release:
    """A load of one consumer that requeues (see bench.load). The fields are the plan; everything else is state."""

    host: str
    ports: dict[str, int]
    topic: str
    channel: str
    seconds: float  # at most
    delay: int = 200  # ms of a requeue
    finish_half: bool = False  # True: finish every second message
    messages: int = 1 << 60  # at most

    def prepare(self) -> None:
        self._wire = introduce(self.host, self.ports["TCP"], "", heartbeat_interval=60_000)
        self._wire.sendall(f"SUB {self.topic} {self.channel}\n".encode())
        expect_ok(self._wire)

    def run(self) -> Outcome:
        self._wire.sendall(b"RDY %d\n" % _RDY)
        began, count, held = time.perf_counter(), 0, b""
        while time.perf_counter() < began + self.seconds and count < self.messages:
            more = self._wire.recv(_READ)
            if not more:
                raise SystemExit("load: the server has hung up")
            data = held + more
            if HEARTBEAT in data:
                data = data.replace(HEARTBEAT, b"")
                self._wire.sendall(b"NOP\n")
            whole = len(data) // FRAME * FRAME
            held = data[whole:]
            frames = [data[at : at + FRAME] for at in range(0, whole, FRAME)]
            answers = [b"REQ %b %d\n" % (frame[18:34], self.delay) for frame in frames]
            if self.finish_half:
                answers[count % 2 :: 2] = [b"FIN %b\n" % frame[18:34] for frame in frames[count % 2 :: 2]]
            self._wire.sendall(b"".join(answers))
            count += len(frames)
        return Outcome(count, time.perf_counter() - began)
